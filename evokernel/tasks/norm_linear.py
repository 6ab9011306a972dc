"""Layer norm, then a projection without bias: how a block of a pre-norm transformer begins."""

import torch
from torch import nn

TOKENS = 1024
WIDTH = 512
OUTPUTS = 1536

EVOKERNEL = {
    "title": "layer norm + linear",
    "level": 2,
    "sizes": {"cuda": {"TOKENS": 32768, "WIDTH": 1024, "OUTPUTS": 3072}},
}


class Model(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, outputs, bias=False)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.2)
        nn.init.normal_(self.linear.weight, std=width**-0.5)

    def forward(self, x):
        return self.linear(self.norm(x))


def get_inputs():
    return [0.5 + 1.5 * torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, OUTPUTS]
