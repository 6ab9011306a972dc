"""Owns the values of the families that are made for a class of operators.

Each pattern keeps shape and dtype. It must show along whichever dimension an operator works, so it
is laid along all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SPIKE = 100.0
"""A spike over the largest value: `exp` overflows unless the maximum is subtracted first."""
OFFSET = 300.0
"""A mean over the root mean square: a variance made of mean squares loses five digits."""
SWING = 1.0
"""Height of what cancels over the root mean square."""
TRIAD = (2.0, -1.0, -1.0)
"""What cancels, over and over: lanes, tiles and threads take steps of powers of two, so that sums
cancel within each of them, as they do in order; with +1 and -1 they would not, and no vector kernel
could be as exact as one that adds in order."""
DECADES = 2.0
"""`wide` values reach so many decades below and above the root mean square."""
FINENESS = 8.0
"""Constant values are multiples of one over this, so that their sums are exact."""


def spiked(values: torch.Tensor, index: int, seed: int, is_signed: bool) -> torch.Tensor:
    """Some rows along each dimension have one huge value: in the first place, or in the last.

    Every fourth spike is negative where the sign is free.
    """
    import torch

    largest = float(values.abs().nan_to_num(0, 0, 0).max()) or 1.0
    height = largest * min(SPIKE, float(torch.finfo(values.dtype).max) ** 0.5 / largest)
    out = values.clone()
    ends = [(dim, end) for dim in range(out.dim()) for end in (0, -1) if out.shape[dim] > 1]
    for dim, end in ends or [(0, 0)] * bool(out.dim()):
        face = out.select(dim, end)
        number = torch.arange(face.numel(), device=face.device).reshape(face.shape)
        chosen = number % 3 == (0 if end == 0 or face.numel() < 3 else 1)
        face.masked_fill_(chosen, height)
        if is_signed and face.numel() >= 3:
            face.masked_fill_(chosen & (number // 3 % 4 == 3), -height)
    return out


def offset(values: torch.Tensor, index: int, seed: int, is_signed: bool) -> torch.Tensor:
    """A large mean with the same small variance, in every second row the other way.

    What the first tensor has above zero, the second one has below: products are negative, too.
    """
    import torch

    height = min(OFFSET * _rms(values), _reach(values))
    if not is_signed or not values.dim():
        return values + height
    number = torch.arange(values.shape[0], device=values.device)
    number = number.reshape(-1, *[1] * (values.dim() - 1))
    return values + height * (1 - 2 * ((number + index) % 2)).to(values.dtype)


def constant(values: torch.Tensor, index: int, seed: int, is_signed: bool) -> torch.Tensor:
    """Rows, or planes, of one value each; the first half of many planes is one value altogether."""
    import torch

    if values.dim() < 2:
        return _even(values).flatten()[:1].expand_as(values).clone()
    planes = _even(values.flatten(2) if values.dim() > 2 else values)
    rows = planes[..., :1].expand_as(planes).clone()
    half = rows.shape[0] // 2
    if values.dim() > 2 and half:
        rows[:half] = rows[:half, :1, :1]
    return torch.reshape(rows, values.shape)


def cancelling(values: torch.Tensor, index: int, seed: int, is_signed: bool) -> torch.Tensor:
    """Signs that alternate along every dimension, so that sums nearly cancel.

    Of several tensors, only the even ones alternate: products of two that do would not cancel.
    """
    height = SWING * _rms(values)
    if index % 2 or not is_signed:
        return values + height
    return values + _alternating(values) * height


def binary(values: torch.Tensor, index: int, seed: int, is_signed: bool) -> torch.Tensor:
    """Zeros and ones: every sum of products is a whole number, and exact in any order."""
    middle = 0.0 if bool((values < 0).any()) else float(values.median())
    return (values > middle).to(values.dtype)


def wide(values: torch.Tensor, index: int, seed: int, is_signed: bool) -> torch.Tensor:
    """Sizes over four decades and both signs: around 0, and far into both saturations."""
    import torch

    device = values.device
    draw = torch.Generator(device).manual_seed(seed % 2**63)
    exponents = torch.rand(values.shape, generator=draw, device=device)
    exponents = exponents.mul_(2 * DECADES).sub_(DECADES)
    sizes = torch.pow(10.0, exponents).mul_(min(_rms(values), _reach(values) / 10**DECADES))
    if is_signed:
        signs = torch.randint(0, 2, values.shape, generator=draw, device=device)
        sizes.mul_(signs.mul_(2).sub_(1))
    return sizes.to(values.dtype)


def one_hot(values: torch.Tensor) -> torch.Tensor:
    """Probabilities of which one is 1: the first, the last, or another in turn."""
    import torch

    rows = values.reshape(-1, values.shape[-1])
    number = torch.arange(rows.shape[0], device=rows.device)
    place = torch.where(number % 3 == 0, 0, torch.where(number % 3 == 1, -1, number))
    out = torch.zeros_like(rows)
    out.scatter_(1, (place % rows.shape[1])[:, None], 1.0)
    return out.reshape(values.shape)


def relabelled(labels: torch.Tensor, seed: int) -> torch.Tensor:
    """The same whole numbers in another order, the least and the greatest at both ends.

    Negative ones, by which losses mark what to ignore, move like the others.
    """
    import torch

    flat = labels.reshape(-1)
    draw = torch.Generator(flat.device).manual_seed(seed % 2**63)
    out = flat[torch.randperm(flat.numel(), generator=draw, device=flat.device)].clone()
    valid = flat[flat >= 0]
    if flat.numel() >= 4 and valid.numel():
        out[0], out[-1] = valid.max(), valid.min()
    return out.reshape(labels.shape)


def thinned(mask: torch.Tensor, seed: int) -> torch.Tensor:
    """Half of what is masked is no longer, so that no row is masked more than before."""
    import torch

    draw = torch.Generator(mask.device).manual_seed(seed % 2**63)
    return mask & (torch.rand(mask.shape, generator=draw, device=mask.device) < 0.5)


FLOATING: dict[str, Callable[[torch.Tensor, int, int, bool], torch.Tensor]] = {
    "spiked": spiked,
    "offset": offset,
    "constant": constant,
    "cancelling": cancelling,
    "binary": binary,
    "wide": wide,
}
"""Patterns of floating values: (values, position among the inputs, seed, whether the sign is free)
to new values of the same shape and dtype."""


def _rms(values: torch.Tensor) -> float:
    return float(values.double().square().mean().sqrt()) or 1.0


def _reach(values: torch.Tensor) -> float:
    """How far values may go so that a few hundred of their squares stay finite."""
    import torch

    return math.sqrt(float(torch.finfo(values.dtype).max)) / 16


def _even(values: torch.Tensor) -> torch.Tensor:
    """Rounded to few bits, and not all to zero."""
    step = 2.0 ** math.ceil(math.log2(max(1.0, 2.0 / _rms(values)))) * FINENESS
    return (values.double() * step).round().div(step).to(values.dtype)


def _alternating(values: torch.Tensor) -> torch.Tensor:
    """`TRIAD` along every dimension, one step further from each line to the next."""
    import torch

    place = torch.zeros((), dtype=torch.int64, device=values.device)
    for dim, size in enumerate(values.shape):
        steps = torch.arange(size, device=values.device)
        place = place + steps.reshape(size, *[1] * (values.dim() - dim - 1))
    return torch.tensor(TRIAD, dtype=values.dtype, device=values.device)[place % len(TRIAD)]
