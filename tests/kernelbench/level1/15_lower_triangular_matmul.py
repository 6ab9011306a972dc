"""Product of lower triangular matrices."""

import torch
from torch import nn

SIZE = 208


class Model(nn.Module):
    def forward(self, a, b):
        return torch.tril(torch.matmul(a, b))


def get_inputs():
    return [torch.tril(torch.rand(SIZE, SIZE)), torch.tril(torch.rand(SIZE, SIZE))]


def get_init_inputs():
    return []
