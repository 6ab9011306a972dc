"""Layer normalisation of token features, with weight and bias."""

import torch
from torch import nn

TOKENS = 8192
WIDTH = 1024

EVOKERNEL = {
    "title": "layer norm",
    "level": 1,
    "sizes": {"cuda": {"TOKENS": 131072}},
}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [0.5 + 1.5 * torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
