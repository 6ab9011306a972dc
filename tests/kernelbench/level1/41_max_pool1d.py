"""Max pooling of signals with a dilated window."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 32
LENGTH = 1000


class Model(nn.Module):
    def __init__(self, window, stride, padding, dilation):
        super().__init__()
        self.pool = nn.MaxPool1d(window, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [8, 1, 4, 3]
