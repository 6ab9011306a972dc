"""Products of many small pairs of matrices, as in attention over many heads."""

import torch
from torch import nn

BATCH = 48
ROWS = 256
INNER = 64
COLUMNS = 256

EVOKERNEL = {
    "title": "batched matrix product",
    "level": 1,
    "sizes": {"cuda": {"BATCH": 1024}},
}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, ROWS, INNER), torch.randn(BATCH, INNER, COLUMNS)]


def get_init_inputs():
    return []
