"""Instance normalisation of images, as in style transfer, with weight and bias."""

import torch
from torch import nn

IMAGES = 8
CHANNELS = 32
SIDE = 128

EVOKERNEL = {
    "title": "instance norm",
    "level": 1,
    "sizes": {"cuda": {"IMAGES": 256}},
}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [0.5 + 1.5 * torch.randn(IMAGES, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
