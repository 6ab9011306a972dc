"""A stack of matrices times one matrix."""

import torch
from torch import nn

STACK = 6
ROWS = 64
INNER = 96
COLUMNS = 72


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(STACK, ROWS, INNER), torch.rand(INNER, COLUMNS)]


def get_init_inputs():
    return []
