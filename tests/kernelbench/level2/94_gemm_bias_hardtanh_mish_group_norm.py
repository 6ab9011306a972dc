"""A linear layer, a bias, hard tanh, Mish, group norm."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, groups):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.bias = nn.Parameter(torch.randn(outputs))
        self.norm = nn.GroupNorm(num_groups=groups, num_channels=outputs)

    def forward(self, x):
        return self.norm(F.mish(F.hardtanh(self.gemm(x) + self.bias)))


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 32]
