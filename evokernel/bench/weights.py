"""Owns other values for weights that are constant, so that a kernel that leaves them out shows.

A norm whose weights are ones and whose biases are zeros, as its constructor leaves them, cannot
tell a kernel that applies them from one that does not; nor can a branch that is scaled by 1e-6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SMALL = 0.1
"""Constants up to this size are taken for "none yet" and drawn around themselves."""
SPREAD = 0.5
"""Their standard deviation; larger constants are multiplied by 1 - SPREAD to 1 + SPREAD."""


def constant(state: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Names of the floating tensors whose elements are all the same."""
    return tuple(name for name, value in state.items() if _is_constant(value))


def redrawn(state: Mapping[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """New values for the constant tensors of a module's state, by name.

    Signs of constants above `SMALL` stay, so that variances stay positive.
    """
    import torch

    draw = torch.Generator().manual_seed(seed % 2**63)
    return {name: _drawn(state[name], draw) for name in constant(state)}


def _is_constant(value: torch.Tensor) -> bool:
    if not value.is_floating_point() or not value.numel():
        return False
    return bool((value == value.flatten()[0]).all()) and bool(value.isfinite().all())


def _drawn(value: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    import torch

    centre = float(value.flatten()[0])
    if abs(centre) <= SMALL:
        made = centre + SPREAD * torch.randn(value.shape, generator=draw)
    else:
        made = centre * (1 + SPREAD * (2 * torch.rand(value.shape, generator=draw) - 1))
    return made.to(value.dtype)
