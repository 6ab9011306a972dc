"""Mean along a given dimension of three."""

import torch
from torch import nn

BATCH = 16
ROWS = 128
COLUMNS = 96


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.mean(x, dim=self.dim)


def get_inputs():
    return [torch.rand(BATCH, ROWS, COLUMNS)]


def get_init_inputs():
    return [1]
