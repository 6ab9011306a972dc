"""Group normalisation."""

import torch
from torch import nn

BATCH = 4
FEATURES = 32
GROUPS = 8
SIDE = 24


class Model(nn.Module):
    def __init__(self, features, groups):
        super().__init__()
        self.norm = nn.GroupNorm(num_groups=groups, num_channels=features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(BATCH, FEATURES, SIDE, SIDE)]


def get_init_inputs():
    return [FEATURES, GROUPS]
