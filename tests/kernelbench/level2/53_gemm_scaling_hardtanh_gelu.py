"""A linear layer, scaled, hard tanh, GELU."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, scale, low, high):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.scale = scale
        self.low = low
        self.high = high

    def forward(self, x):
        return F.gelu(F.hardtanh(self.gemm(x) * self.scale, self.low, self.high))


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 0.8, -0.7, 0.9]
