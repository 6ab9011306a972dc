"""A linear layer, cut off at a learnt number and lowered by it."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, most):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.most = nn.Parameter(torch.tensor(most))

    def forward(self, x):
        return torch.min(self.gemm(x), self.most) - self.most


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 0.25]
