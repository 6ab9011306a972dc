"""GELU by the tanh formula, written out."""

import math

import torch
from torch import nn

BATCH = 128
WIDTH = 1024


class Model(nn.Module):
    def forward(self, x):
        cubic = x + 0.044715 * torch.pow(x, 3.0)
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * cubic))


def get_inputs():
    return [torch.rand(BATCH, WIDTH)]


def get_init_inputs():
    return []
