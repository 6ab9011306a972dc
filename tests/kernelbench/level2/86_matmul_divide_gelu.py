"""A linear layer, divided, GELU."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, divisor):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.divisor = divisor

    def forward(self, x):
        return F.gelu(self.gemm(x) / self.divisor)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 10.0]
