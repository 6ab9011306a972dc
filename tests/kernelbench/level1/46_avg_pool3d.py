"""Average pooling of volumes."""

import torch
from torch import nn

BATCH = 2
CHANNELS = 8
DEPTH = 14
HEIGHT = 20
WIDTH = 22


class Model(nn.Module):
    def __init__(self, window, stride, padding):
        super().__init__()
        self.pool = nn.AvgPool3d(window, stride=stride, padding=padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs():
    return [3, 2, 1]
