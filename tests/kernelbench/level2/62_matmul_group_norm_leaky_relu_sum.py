"""A linear layer, group norm, leaky ReLU, doubled by adding."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, groups):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.norm = nn.GroupNorm(num_groups=groups, num_channels=outputs, eps=1e-5)
        self.act = nn.LeakyReLU(negative_slope=0.01)

    def forward(self, x):
        x = self.act(self.norm(self.gemm(x)))
        return x + x


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 8]
