"""Product whose inner dimension is much the longest."""

import torch
from torch import nn

ROWS = 48
INNER = 8192
COLUMNS = 40


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(ROWS, INNER), torch.rand(INNER, COLUMNS)]


def get_init_inputs():
    return []
