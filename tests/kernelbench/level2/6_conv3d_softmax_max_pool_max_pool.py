"""Convolution of volumes, softmax over channels, max pooling twice."""

import torch
from torch import nn

BATCH = 2
CHANNELS = 3
FILTERS = 12
SIDE = 18


class Model(nn.Module):
    def __init__(self, channels, filters, window):
        super().__init__()
        self.conv = nn.Conv3d(channels, filters, kernel_size=3)
        self.first = nn.MaxPool3d(window)
        self.second = nn.MaxPool3d(window)

    def forward(self, x):
        x = torch.softmax(self.conv(x), dim=1)
        return self.second(self.first(x))


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS, 2]
