"""Product of a matrix and a vector: a projection while a model writes one token at a time."""

import torch
from torch import nn

OUTPUTS = 4096
WIDTH = 4096

EVOKERNEL = {
    "title": "matrix-vector product",
    "level": 1,
    "sizes": {"cuda": {"OUTPUTS": 16384, "WIDTH": 16384}},
}


class Model(nn.Module):
    def forward(self, matrix, x):
        return torch.mv(matrix, x)


def get_inputs():
    return [torch.randn(OUTPUTS, WIDTH), torch.randn(WIDTH)]


def get_init_inputs():
    return []
