"""Convolution, less a number, tanh, less a number, average pooling."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 8
FILTERS = 24
SIDE = 28


class Model(nn.Module):
    def __init__(self, channels, filters, first, second, window):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3)
        self.first = first
        self.second = second
        self.pool = nn.AvgPool2d(window)

    def forward(self, x):
        x = torch.tanh(self.conv(x) - self.first) - self.second
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS, 0.5, 0.2, 2]
