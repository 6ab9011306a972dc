"""Rotary position embedding of queries and keys, halves rotated as LLaMA does."""

import torch
from torch import nn

HEADS = 16
TOKENS = 2048
WIDTH = 64


class Model(nn.Module):
    def __init__(self, width, tokens, base):
        super().__init__()
        rates = base ** (-torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(tokens).float(), rates)
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def forward(self, queries, keys):
        return self.turned(queries), self.turned(keys)

    def turned(self, x):
        left, right = x.chunk(2, dim=-1)
        return x * self.cosines + torch.cat([-right, left], dim=-1) * self.sines


def get_inputs():
    return [torch.randn(2, HEADS, TOKENS, WIDTH), torch.randn(2, HEADS, TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, TOKENS, 10000.0]
