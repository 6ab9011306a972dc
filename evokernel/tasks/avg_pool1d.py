"""Average pooling of signals, as before the next stage of an audio encoder."""

import torch
from torch import nn

BATCH = 32
CHANNELS = 64
SAMPLES = 4096

EVOKERNEL = {
    "title": "average pooling 1d",
    "level": 1,
    "sizes": {"cuda": {"BATCH": 1024}},
}


class Model(nn.Module):
    def __init__(self, window, stride, padding):
        super().__init__()
        self.pool = nn.AvgPool1d(window, stride=stride, padding=padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SAMPLES)]


def get_init_inputs():
    return [8, 4, 2]
