"""Convolution, tanh, scaled, a bias a channel, max pooling."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 8
FILTERS = 24
SIDE = 28


class Model(nn.Module):
    def __init__(self, channels, filters, scale, window):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3)
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(filters, 1, 1))
        self.pool = nn.MaxPool2d(window)

    def forward(self, x):
        x = torch.tanh(self.conv(x)) * self.scale + self.bias
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS, 2.0, 2]
