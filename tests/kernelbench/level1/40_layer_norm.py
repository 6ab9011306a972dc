"""Layer normalisation over the last three dimensions."""

import torch
from torch import nn

BATCH = 4
FEATURES = 32
SIDE = 24


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape=shape)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(BATCH, FEATURES, SIDE, SIDE)]


def get_init_inputs():
    return [(FEATURES, SIDE, SIDE)]
