"""Convolution of signals."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 16
FILTERS = 32
LENGTH = 512


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, kernel_size=3, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
