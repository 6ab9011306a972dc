"""Huber loss of a regression, averaged over all elements."""

import torch
from torch import nn
from torch.nn import functional as F

ROWS = 16384
COLUMNS = 512

EVOKERNEL = {
    "title": "Huber loss",
    "level": 1,
    "sizes": {"cuda": {"ROWS": 262144}},
}


class Model(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, predictions, targets):
        return F.huber_loss(predictions, targets, delta=self.delta)


def get_inputs():
    targets = torch.randn(ROWS, COLUMNS)
    return [targets + 0.8 * torch.randn(ROWS, COLUMNS), targets]


def get_init_inputs():
    return [0.5]
