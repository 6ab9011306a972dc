"""Root-mean-square normalisation as LLaMA writes it out, with a weight."""

import torch
from torch import nn

TOKENS = 4096
WIDTH = 2048

EVOKERNEL = {
    "title": "RMS norm",
    "level": 1,
    "sizes": {"cuda": {"TOKENS": 65536}},
}


class Model(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def get_inputs():
    return [1.5 * torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, 1e-6]
