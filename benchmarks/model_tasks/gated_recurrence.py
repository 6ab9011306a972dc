"""A gated linear recurrence over time, as in linear state-space layers: h = a * h + (1 - a) * x."""

import torch
from torch import nn

BATCH = 8
STEPS = 256
CHANNELS = 1024


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels))
        self.start = nn.Parameter(torch.randn(channels))

    def forward(self, x, gate):
        keep = torch.sigmoid(gate + self.bias)
        state = self.start.expand_as(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = keep[:, step] * state + (1.0 - keep[:, step]) * x[:, step]
            states.append(state)
        return torch.stack(states, dim=1)


def get_inputs():
    return [torch.randn(BATCH, STEPS, CHANNELS), torch.randn(BATCH, STEPS, CHANNELS)]


def get_init_inputs():
    return [CHANNELS]
