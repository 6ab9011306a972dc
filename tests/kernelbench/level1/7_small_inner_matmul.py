"""Product whose inner dimension is short."""

import torch
from torch import nn

ROWS = 640
INNER = 24
COLUMNS = 512


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(ROWS, INNER), torch.rand(INNER, COLUMNS)]


def get_init_inputs():
    return []
