"""Product of two matrices, none of whose sizes is a power of two."""

import torch
from torch import nn

ROWS = 1000
INNER = 640
COLUMNS = 1100

EVOKERNEL = {
    "title": "matrix product",
    "level": 1,
    "sizes": {"cuda": {"ROWS": 4000, "INNER": 2560, "COLUMNS": 4400}},
}


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []
