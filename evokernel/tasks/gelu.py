"""GELU of a transformer's feed-forward activations, with the exact error function."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 4096
WIDTH = 3072

EVOKERNEL = {
    "title": "GELU",
    "level": 1,
    "sizes": {"cuda": {"TOKENS": 65536}},
}


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return []
