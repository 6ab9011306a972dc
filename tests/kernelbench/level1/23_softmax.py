"""Softmax of every row."""

import torch
from torch import nn

BATCH = 96
WIDTH = 3000


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(BATCH, WIDTH)]


def get_init_inputs():
    return []
