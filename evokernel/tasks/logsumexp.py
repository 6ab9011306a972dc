"""Log-sum-exp of every row of logits: the normaliser of a language model's loss."""

import torch
from torch import nn

TOKENS = 1024
VOCABULARY = 8192

EVOKERNEL = {
    "title": "row log-sum-exp",
    "level": 1,
    "sizes": {"cuda": {"TOKENS": 8192, "VOCABULARY": 32000}},
}


class Model(nn.Module):
    def forward(self, logits):
        return torch.logsumexp(logits, dim=-1)


def get_inputs():
    return [3.0 * torch.randn(TOKENS, VOCABULARY)]


def get_init_inputs():
    return []
