"""A linear layer, Swish, a bias, group norm."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, groups):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.bias = nn.Parameter(torch.randn(outputs))
        self.norm = nn.GroupNorm(groups, outputs)

    def forward(self, x):
        x = self.gemm(x)
        x = torch.sigmoid(x) * x + self.bias
        return self.norm(x)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 16]
