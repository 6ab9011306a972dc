"""Log-softmax over a language model's vocabulary."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 512
VOCABULARY = 32000

EVOKERNEL = {
    "title": "log-softmax",
    "level": 1,
    "sizes": {"cuda": {"TOKENS": 8192}},
}


class Model(nn.Module):
    def forward(self, logits):
        return F.log_softmax(logits, dim=-1)


def get_inputs():
    return [3.0 * torch.randn(TOKENS, VOCABULARY)]


def get_init_inputs():
    return []
