"""Kullback-Leibler divergence of distillation: a student's log-probabilities from a teacher's."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 2048
VOCABULARY = 2048

EVOKERNEL = {
    "title": "KL divergence",
    "level": 1,
    "sizes": {"cuda": {"TOKENS": 16384, "VOCABULARY": 8192}},
}


class Model(nn.Module):
    def __init__(self, reduction):
        super().__init__()
        self.reduction = reduction

    def forward(self, student, teacher):
        return F.kl_div(student, teacher, reduction=self.reduction)


def get_inputs():
    logits = 2.0 * torch.randn(TOKENS, VOCABULARY)
    student = F.log_softmax(logits + 0.5 * torch.randn(TOKENS, VOCABULARY), dim=-1)
    return [student, F.softmax(logits, dim=-1)]


def get_init_inputs():
    return ["batchmean"]
