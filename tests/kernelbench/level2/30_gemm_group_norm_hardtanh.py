"""A linear layer, group norm of each row, hard tanh."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, groups, low, high):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.norm = nn.GroupNorm(groups, outputs)
        self.low = low
        self.high = high

    def forward(self, x):
        return F.hardtanh(self.norm(self.gemm(x)), self.low, self.high)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 8, -1.5, 1.5]
