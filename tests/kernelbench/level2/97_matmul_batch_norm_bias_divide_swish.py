"""A linear layer, batch norm, a bias, divided, Swish."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, eps=1e-5, momentum=0.1, divisor=1.0):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.norm = nn.BatchNorm1d(outputs, eps=eps, momentum=momentum)
        self.bias = nn.Parameter(torch.randn(1))
        self.divisor = divisor

    def forward(self, x):
        x = (self.norm(self.gemm(x)) + self.bias) / self.divisor
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 1e-5, 0.1, 1.5]
