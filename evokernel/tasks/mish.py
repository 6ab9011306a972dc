"""Mish of feature maps, as in the detectors that use it throughout."""

import torch
from torch import nn
from torch.nn import functional as F

IMAGES = 16
CHANNELS = 128
SIDE = 64

EVOKERNEL = {
    "title": "Mish",
    "level": 1,
    "sizes": {"cuda": {"IMAGES": 256}},
}


class Model(nn.Module):
    def forward(self, x):
        return F.mish(x)


def get_inputs():
    return [2.0 * torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
