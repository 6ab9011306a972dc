"""Scale and shift per channel, then hard-swish: a folded batch norm of a mobile network."""

import torch
from torch import nn
from torch.nn import functional as F

IMAGES = 16
CHANNELS = 128
SIDE = 56

EVOKERNEL = {
    "title": "channel scale + shift + hard-swish",
    "level": 2,
    "sizes": {"cuda": {"IMAGES": 512}},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(1.0 + 0.2 * torch.randn(channels, 1, 1))
        self.shift = nn.Parameter(0.5 * torch.randn(channels, 1, 1))

    def forward(self, x):
        return F.hardswish(x * self.scale + self.shift)


def get_inputs():
    return [2.0 * torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
