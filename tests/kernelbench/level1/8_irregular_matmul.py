"""Product of matrices whose sizes divide by nothing."""

import torch
from torch import nn

ROWS = 257
INNER = 149
COLUMNS = 331


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(ROWS, INNER), torch.rand(INNER, COLUMNS)]


def get_init_inputs():
    return []
