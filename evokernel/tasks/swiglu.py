"""SwiGLU: one half of a projection gates the other."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 2048
WIDTH = 2816

EVOKERNEL = {
    "title": "SwiGLU",
    "level": 2,
    "sizes": {"cuda": {"TOKENS": 16384, "WIDTH": 11008}},
}


class Model(nn.Module):
    def forward(self, gate, up):
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return []
