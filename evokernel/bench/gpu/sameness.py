"""Owns the question whether two calls returned the same, bit by bit."""

from typing import Any

import torch


def tensors(output: Any) -> list[torch.Tensor]:
    """The tensors of what a call returned, in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return [tensor for part in output for tensor in tensors(part)]
    return []


def are_same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether they agree bit by bit, NaN included."""
    return len(some) == len(others) and all(
        one.shape == other.shape and torch.equal(_bytes(one), _bytes(other))
        for one, other in zip(some, others, strict=True)
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
