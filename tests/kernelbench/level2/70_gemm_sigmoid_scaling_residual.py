"""A linear layer, its scaled sigmoid added to it."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, scale):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.scale = scale

    def forward(self, x):
        x = self.gemm(x)
        return torch.sigmoid(x) * self.scale + x


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 2.0]
