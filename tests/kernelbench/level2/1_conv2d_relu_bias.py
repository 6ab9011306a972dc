"""Convolution, ReLU, a bias a channel."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 8
FILTERS = 24
SIDE = 28


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3)
        self.bias = nn.Parameter(torch.randn(filters, 1, 1))

    def forward(self, x):
        return torch.relu(self.conv(x)) + self.bias


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
