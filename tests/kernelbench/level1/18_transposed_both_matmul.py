"""Product with both matrices transposed."""

import torch
from torch import nn

ROWS = 176
INNER = 272
COLUMNS = 208


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a.T, b.T)


def get_inputs():
    return [torch.rand(INNER, ROWS), torch.rand(COLUMNS, INNER)]


def get_init_inputs():
    return []
