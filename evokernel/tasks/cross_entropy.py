"""Cross-entropy of next-token logits, averaged over the tokens that are not padding."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 512
VOCABULARY = 32000
PADDED = 64

EVOKERNEL = {
    "title": "cross-entropy",
    "level": 1,
    "sizes": {"cuda": {"TOKENS": 8192, "PADDED": 1024}},
}


class Model(nn.Module):
    def __init__(self, ignored):
        super().__init__()
        self.ignored = ignored

    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels, ignore_index=self.ignored)


def get_inputs():
    logits = 3.0 * torch.randn(TOKENS, VOCABULARY)
    labels = torch.randint(0, VOCABULARY, (TOKENS,))
    labels[TOKENS - PADDED :] = -100
    return [logits, labels]


def get_init_inputs():
    return [-100]
