"""A linear layer, a scale a feature, batch norm."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.randn(outputs))
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x):
        return self.norm(self.gemm(x) * self.scale)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
