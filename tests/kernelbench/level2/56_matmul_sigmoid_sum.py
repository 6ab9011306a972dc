"""A linear layer, sigmoid, row sum."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)

    def forward(self, x):
        return torch.sum(torch.sigmoid(self.gemm(x)), dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
