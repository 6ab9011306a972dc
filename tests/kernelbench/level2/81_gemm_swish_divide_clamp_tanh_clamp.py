"""A linear layer, Swish, halved, clamped, tanh, clamped."""

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
        x = self.gemm(x)
        x = torch.clamp(x * torch.sigmoid(x) / 2.0, min=-1.0, max=1.0)
        return torch.clamp(torch.tanh(x), min=-1.0, max=1.0)


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
