"""ELU with a given scale."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 64
WIDTH = 4096


class Model(nn.Module):
    def __init__(self, alpha=1.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return F.elu(x, alpha=self.alpha)


def get_inputs():
    return [torch.rand(BATCH, WIDTH)]


def get_init_inputs():
    return [1.0]
