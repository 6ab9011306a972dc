"""Leaky ReLU with a given slope."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 64
WIDTH = 4096


class Model(nn.Module):
    def __init__(self, slope=0.01):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return F.leaky_relu(x, negative_slope=self.slope)


def get_inputs():
    return [torch.rand(BATCH, WIDTH)]


def get_init_inputs():
    return []
