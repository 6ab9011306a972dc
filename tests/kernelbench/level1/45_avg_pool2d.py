"""Average pooling of images in windows that do not overlap."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 16
SIDE = 66


class Model(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.pool = nn.AvgPool2d(window)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [11]
