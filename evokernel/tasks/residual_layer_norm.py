"""Bias, residual addition and layer norm, as after attention in BERT."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 2048
WIDTH = 768

EVOKERNEL = {
    "title": "bias + residual + layer norm",
    "level": 2,
    "sizes": {"cuda": {"TOKENS": 131072}},
}


class Model(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.bias = nn.Parameter(0.3 * torch.randn(width))
        self.gain = nn.Parameter(1.0 + 0.2 * torch.randn(width))
        self.shift = nn.Parameter(0.2 * torch.randn(width))
        self.eps = eps

    def forward(self, x, residual):
        hidden = x + self.bias + residual
        return F.layer_norm(hidden, (hidden.shape[-1],), self.gain, self.shift, self.eps)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH), 2.0 * torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, 1e-12]
