"""Max pooling of volumes."""

import torch
from torch import nn

BATCH = 2
CHANNELS = 8
DEPTH = 18
HEIGHT = 20
WIDTH = 22


class Model(nn.Module):
    def __init__(self, window, stride, padding, dilation):
        super().__init__()
        self.pool = nn.MaxPool3d(window, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs():
    return [3, 2, 1, 2]
