"""A linear layer, dropout that is off, softmax."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256

EVOKERNEL = {"mode": "eval"}


class Model(nn.Module):
    def __init__(self, inputs, outputs, share):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.dropout = nn.Dropout(share)

    def forward(self, x):
        return torch.softmax(self.dropout(self.gemm(x)), dim=1)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 0.2]
