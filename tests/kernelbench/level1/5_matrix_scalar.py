"""A matrix times a number that is an argument."""

import torch
from torch import nn

ROWS = 512
COLUMNS = 640


class Model(nn.Module):
    def forward(self, a, factor):
        return a * factor


def get_inputs():
    return [torch.rand(ROWS, COLUMNS), 3.14]


def get_init_inputs():
    return []
