"""Depthwise convolution of a mobile network: every channel has a 3 x 3 window of its own."""

import torch
from torch import nn

IMAGES = 8
CHANNELS = 96
SIDE = 56

EVOKERNEL = {
    "title": "depthwise convolution 3 x 3",
    "level": 1,
    "sizes": {"cuda": {"IMAGES": 512}},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(
            channels, channels, kernel_size=3, padding=1, groups=channels, bias=False
        )

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
