"""A linear layer, batch norm, GELU, ReLU."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x):
        return torch.relu(F.gelu(self.norm(self.gemm(x))))


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
