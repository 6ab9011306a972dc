"""Hinge loss of scores and signs."""

import torch
from torch import nn

BATCH = 96
WIDTH = 1500


class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


def get_inputs():
    return [torch.rand(BATCH, WIDTH), torch.randint(0, 2, (BATCH, 1)).float() * 2 - 1]


def get_init_inputs():
    return []
