"""Max pooling after the stem of a residual network: windows that overlap, a border that is cut."""

import torch
from torch import nn

IMAGES = 8
CHANNELS = 64
SIDE = 112

EVOKERNEL = {
    "title": "max pooling 2d",
    "level": 1,
    "sizes": {"cuda": {"IMAGES": 256}},
}


class Model(nn.Module):
    def __init__(self, window, stride, padding):
        super().__init__()
        self.pool = nn.MaxPool2d(window, stride=stride, padding=padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [3, 2, 1]
