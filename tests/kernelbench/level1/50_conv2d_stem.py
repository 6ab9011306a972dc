"""Convolution with a large window and stride, as the first of a network."""

import torch
from torch import nn

BATCH = 2
CHANNELS = 3
FILTERS = 24
SIDE = 96


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=11, stride=4, padding=2)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
