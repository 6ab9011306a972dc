"""Projection to class scores, then log-sum-exp of every row: the normaliser without the scores."""

import torch
from torch import nn

TOKENS = 512
WIDTH = 512
CLASSES = 3000

EVOKERNEL = {
    "title": "linear + row log-sum-exp",
    "level": 2,
    "sizes": {"cuda": {"TOKENS": 131072, "WIDTH": 1024, "CLASSES": 4000}},
}


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.linear = nn.Linear(width, classes)
        nn.init.normal_(self.linear.weight, std=2.0 * width**-0.5)
        nn.init.normal_(self.linear.bias, std=0.5)

    def forward(self, x):
        return torch.logsumexp(self.linear(x), dim=-1)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, CLASSES]
