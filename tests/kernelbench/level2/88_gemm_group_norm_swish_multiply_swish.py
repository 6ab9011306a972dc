"""A linear layer, group norm, Swish, a weight, Swish."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, groups):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.norm = nn.GroupNorm(groups, outputs)
        self.weight = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        x = self.norm(self.gemm(x))
        x = x * torch.sigmoid(x) * self.weight
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 16]
