"""Product of two square matrices."""

import torch
from torch import nn

SIZE = 256


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)]


def get_init_inputs():
    return []
