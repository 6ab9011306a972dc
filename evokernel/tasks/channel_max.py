"""Largest response over the channels at every place of a feature map: a spatial attention map."""

import torch
from torch import nn

IMAGES = 16
CHANNELS = 128
SIDE = 56

EVOKERNEL = {
    "title": "maximum over channels",
    "level": 1,
    "sizes": {"cuda": {"IMAGES": 512}},
}


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.amax(x, dim=self.dim, keepdim=True)


def get_inputs():
    return [torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [1]
