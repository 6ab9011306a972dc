"""A linear layer, instance norm of each row, a second input added and multiplied."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, eps=1e-5):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.norm = nn.InstanceNorm2d(1, eps=eps)

    def forward(self, x, y):
        x = self.gemm(x)
        x = self.norm(x.unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1)
        return (x + y) * y


def get_inputs():
    return [torch.rand(BATCH, INPUTS), torch.rand(BATCH, OUTPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
