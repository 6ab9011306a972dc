"""Mean squared error, written out."""

import torch
from torch import nn

ROWS = 4096
COLUMNS = 512

EVOKERNEL = {
    "title": "mean squared error",
    "level": 1,
    "sizes": {"cuda": {"ROWS": 262144}},
}


class Model(nn.Module):
    def forward(self, predictions, targets):
        return ((predictions - targets) ** 2).mean()


def get_inputs():
    targets = torch.randn(ROWS, COLUMNS)
    return [targets + 0.5 * torch.randn(ROWS, COLUMNS), targets]


def get_init_inputs():
    return []
