"""Projection with a bias, then GELU: the first half of a feed-forward block."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 512
WIDTH = 512
HIDDEN = 2048

EVOKERNEL = {
    "title": "linear + bias + GELU",
    "level": 2,
    "sizes": {"cuda": {"TOKENS": 16384, "WIDTH": 1024, "HIDDEN": 4096}},
}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.linear = nn.Linear(width, hidden)
        nn.init.normal_(self.linear.weight, std=width**-0.5)
        nn.init.normal_(self.linear.bias, std=0.2)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
