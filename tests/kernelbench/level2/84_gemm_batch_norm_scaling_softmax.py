"""A linear layer, batch norm, a learnt scale, softmax."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.norm = nn.BatchNorm1d(outputs)
        self.scale = nn.Parameter(1.0 + torch.rand(1))

    def forward(self, x):
        return torch.softmax(self.scale * self.norm(self.gemm(x)), dim=1)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
