"""Average pooling of signals."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 32
LENGTH = 1000


class Model(nn.Module):
    def __init__(self, window, stride=1, padding=0):
        super().__init__()
        self.pool = nn.AvgPool1d(window, stride=stride, padding=padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [4, 2, 1]
