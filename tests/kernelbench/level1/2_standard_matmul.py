"""Product of two matrices of different shapes."""

import torch
from torch import nn

ROWS = 320
INNER = 448
COLUMNS = 192


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(ROWS, INNER), torch.rand(INNER, COLUMNS)]


def get_init_inputs():
    return []
