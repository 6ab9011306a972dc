"""A diagonal matrix, given as a vector, times a matrix."""

import torch
from torch import nn

ROWS = 384
COLUMNS = 320


class Model(nn.Module):
    def forward(self, a, b):
        return torch.diag(a) @ b


def get_inputs():
    return [torch.rand(ROWS), torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
