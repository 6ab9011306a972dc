"""Feed-forward block of a transformer: project up, ReLU, project down."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 384
WIDTH = 512
HIDDEN = 1536

EVOKERNEL = {
    "title": "MLP block",
    "level": 2,
    "sizes": {"cuda": {"TOKENS": 16384, "WIDTH": 1024, "HIDDEN": 4096}},
}


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        for layer in (self.up, self.down):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.normal_(layer.bias, std=0.2)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
