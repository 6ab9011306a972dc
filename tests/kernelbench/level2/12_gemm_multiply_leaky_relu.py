"""A linear layer, times a number, leaky ReLU."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, times, slope):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.times = times
        self.slope = slope

    def forward(self, x):
        return F.leaky_relu(self.gemm(x) * self.times, self.slope)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 2.0, 0.1]
