"""Sum of every column: the gradient of a bias over all tokens of a batch."""

import torch
from torch import nn

ROWS = 8192
COLUMNS = 1024

EVOKERNEL = {
    "title": "column sum",
    "level": 1,
    "sizes": {"cuda": {"ROWS": 262144}},
}


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [0.1 + torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
