"""Bias and GELU after a feed-forward projection, with the tanh formula of GPT-2."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 4096
WIDTH = 3072

EVOKERNEL = {
    "title": "bias + GELU (tanh)",
    "level": 2,
    "sizes": {"cuda": {"TOKENS": 65536}},
}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(0.3 * torch.randn(width))

    def forward(self, x):
        return F.gelu(x + self.bias, approximate="tanh")


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
