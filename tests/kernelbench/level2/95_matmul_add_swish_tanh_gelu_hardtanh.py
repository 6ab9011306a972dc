"""A linear layer, a bias, and four activations."""

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
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        x = self.gemm(x) + self.bias
        x = torch.sigmoid(x) * x
        return F.hardtanh(F.gelu(torch.tanh(x)), min_val=-1, max_val=1)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
