"""GELU of every element."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 64
WIDTH = 4096


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.rand(BATCH, WIDTH)]


def get_init_inputs():
    return []
