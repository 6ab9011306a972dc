"""Max pooling of images."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 16
HEIGHT = 50
WIDTH = 62


class Model(nn.Module):
    def __init__(self, window, stride, padding, dilation):
        super().__init__()
        self.pool = nn.MaxPool2d(window, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [4, 1, 1, 1]
