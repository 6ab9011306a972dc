"""Batch normalisation at inference: the statistics are those that training has left."""

import torch
from torch import nn

IMAGES = 16
CHANNELS = 128
SIDE = 56

EVOKERNEL = {
    "title": "batch norm (inference)",
    "level": 1,
    "mode": "eval",
    "sizes": {"cuda": {"IMAGES": 512}},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.2)
        nn.init.normal_(self.norm.get_buffer("running_mean"), mean=0.5, std=0.3)
        nn.init.uniform_(self.norm.get_buffer("running_var"), 0.5, 2.5)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [0.5 + 1.5 * torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
