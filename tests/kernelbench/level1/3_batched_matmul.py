"""Products of pairs of matrices."""

import torch
from torch import nn

BATCH = 12
ROWS = 96
INNER = 80
COLUMNS = 112


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.rand(BATCH, ROWS, INNER), torch.rand(BATCH, INNER, COLUMNS)]


def get_init_inputs():
    return []
