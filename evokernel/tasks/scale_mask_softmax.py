"""Attention scores scaled, masked causally and for padding, and turned into weights."""

import torch
from torch import nn

BATCH = 4
HEADS = 12
LENGTH = 512
HEAD_WIDTH = 64

EVOKERNEL = {
    "title": "scale + mask + softmax",
    "level": 2,
    "sizes": {"cuda": {"BATCH": 16, "HEADS": 16, "LENGTH": 1024}},
}


class Model(nn.Module):
    def __init__(self, head_width):
        super().__init__()
        self.scale = head_width**-0.5

    def forward(self, scores, mask):
        scores = scores * self.scale
        scores = scores.masked_fill(mask, float("-inf"))
        return torch.softmax(scores, dim=-1)


def get_inputs():
    scores = HEAD_WIDTH**0.5 * torch.randn(BATCH, HEADS, LENGTH, LENGTH)
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH,))
    padding = torch.arange(LENGTH) >= lengths[:, None]
    return [scores, future | padding[:, None, None, :]]


def get_init_inputs():
    return [HEAD_WIDTH]
