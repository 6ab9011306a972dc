"""Product of a matrix and a column."""

import torch
from torch import nn

ROWS = 512
INNER = 2048


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(ROWS, INNER), torch.rand(INNER, 1)]


def get_init_inputs():
    return []
