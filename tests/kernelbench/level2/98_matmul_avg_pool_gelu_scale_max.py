"""A linear layer, average pooling along each row, GELU, scaled, row maximum."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 96
INPUTS = 320
OUTPUTS = 256


class Model(nn.Module):
    def __init__(self, inputs, outputs, window, scale):
        super().__init__()
        self.gemm = nn.Linear(inputs, outputs)
        self.pool = nn.AvgPool1d(kernel_size=window)
        self.scale = scale

    def forward(self, x):
        x = self.pool(self.gemm(x).unsqueeze(1)).squeeze(1)
        return torch.max(F.gelu(x) * self.scale, dim=1).values


def get_inputs():
    return [torch.rand(BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, 16, 2.0]
