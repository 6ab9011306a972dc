"""A linear layer, ReLU, divided."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, divisor):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.divisor = divisor

    def forward(self, x):
        return torch.relu(self.gemm(x)) / self.divisor


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 2.0]
