"""A four-dimensional tensor times one matrix, by an einsum."""

import torch
from torch import nn

BATCH = 3
HEIGHT = 12
WIDTH = 16
INNER = 64
COLUMNS = 48


class Model(nn.Module):
    def forward(self, a, b):
        return torch.einsum("bijl,lk->bijk", a, b)


def get_inputs():
    return [torch.rand(BATCH, HEIGHT, WIDTH, INNER), torch.rand(INNER, COLUMNS)]


def get_init_inputs():
    return []
