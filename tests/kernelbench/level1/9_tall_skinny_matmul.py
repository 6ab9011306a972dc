"""Product of a tall and a wide matrix."""

import torch
from torch import nn

LONG = 768
SHORT = 16


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(LONG, SHORT), torch.rand(SHORT, LONG)]


def get_init_inputs():
    return []
