"""Product with the second matrix transposed."""

import torch
from torch import nn

ROWS = 256
INNER = 320
COLUMNS = 192


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b.T)


def get_inputs():
    return [torch.rand(ROWS, INNER), torch.rand(COLUMNS, INNER)]


def get_init_inputs():
    return []
