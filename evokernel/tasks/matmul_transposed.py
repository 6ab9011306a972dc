"""Product with the transpose of the second matrix: similarities of queries and documents."""

import torch
from torch import nn

QUERIES = 768
DOCUMENTS = 2048
WIDTH = 384

EVOKERNEL = {
    "title": "matrix product, second transposed",
    "level": 1,
    "sizes": {"cuda": {"QUERIES": 4096, "DOCUMENTS": 16384, "WIDTH": 768}},
}


class Model(nn.Module):
    def forward(self, queries, documents):
        return torch.matmul(queries, documents.T)


def get_inputs():
    return [torch.randn(QUERIES, WIDTH), torch.randn(DOCUMENTS, WIDTH)]


def get_init_inputs():
    return []
