"""Convolution with 3 x 3 windows and a border of zeros, without a bias."""

import torch
from torch import nn

IMAGES = 4
CHANNELS = 64
FILTERS = 64
SIDE = 56

EVOKERNEL = {
    "title": "convolution 3 x 3",
    "level": 1,
    "sizes": {"cuda": {"IMAGES": 256}},
}


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3, padding=1, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
