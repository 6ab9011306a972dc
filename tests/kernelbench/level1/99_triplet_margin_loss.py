"""Triplet margin loss of anchors, positives and negatives."""

import torch
from torch import nn

BATCH = 128
WIDTH = 700


class Model(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.loss = nn.TripletMarginLoss(margin=margin)

    def forward(self, anchor, positive, negative):
        return self.loss(anchor, positive, negative)


def get_inputs():
    return [torch.rand(BATCH, WIDTH), torch.rand(BATCH, WIDTH), torch.rand(BATCH, WIDTH)]


def get_init_inputs():
    return [1.0]
