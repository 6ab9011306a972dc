"""Residual addition and RMS norm of a decoder block; both the sum and its norm go on."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 4096
WIDTH = 1536

EVOKERNEL = {
    "title": "residual + RMS norm",
    "level": 2,
    "sizes": {"cuda": {"TOKENS": 65536, "WIDTH": 2048}},
}


class Model(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(width))
        self.eps = eps

    def forward(self, x, residual):
        hidden = x + residual
        return F.rms_norm(hidden, (hidden.shape[-1],), self.weight, self.eps), hidden


def get_inputs():
    return [torch.randn(TOKENS, WIDTH), 2.0 * torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, 1e-5]
