"""Convolution of volumes."""

import torch
from torch import nn

BATCH = 2
CHANNELS = 3
FILTERS = 12
SIDE = 18


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv3d(channels, filters, kernel_size=3, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
