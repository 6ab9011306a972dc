"""A linear layer, max pooling along each row, its sum, scaled."""

import torch
from torch import nn

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, window, scale):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.pool = nn.MaxPool1d(window)
        self.scale = scale

    def forward(self, x):
        x = self.pool(self.gemm(x).unsqueeze(1)).squeeze(1)
        return torch.sum(x, dim=1) * self.scale


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 2, 0.5]
