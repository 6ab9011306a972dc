"""Convolution, bias and ReLU: a layer of a network whose batch norm is folded."""

import torch
from torch import nn
from torch.nn import functional as F

IMAGES = 8
CHANNELS = 32
FILTERS = 64
SIDE = 56

EVOKERNEL = {
    "title": "convolution + bias + ReLU",
    "level": 2,
    "sizes": {"cuda": {"IMAGES": 256}},
}


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3, padding=1)
        nn.init.normal_(self.conv.get_parameter("bias"), std=0.3)

    def forward(self, x):
        return F.relu(self.conv(x))


def get_inputs():
    return [torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
