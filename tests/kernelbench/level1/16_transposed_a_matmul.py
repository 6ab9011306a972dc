"""Product with the first matrix transposed."""

import torch
from torch import nn

ROWS = 256
INNER = 320
COLUMNS = 192


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a.T, b)


def get_inputs():
    return [torch.rand(INNER, ROWS), torch.rand(INNER, COLUMNS)]


def get_init_inputs():
    return []
