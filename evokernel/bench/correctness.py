"""Owns the comparison of what a candidate returned with what was expected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evokernel.bench import pieces
from evokernel.evaluation import Mismatch, Status
from evokernel.nested import leaves

if TYPE_CHECKING:
    import torch

    from evokernel.bench.messages import TensorFacts
    from evokernel.bench.tolerance import Limits


@dataclass(frozen=True)
class Form:
    """What an output tensor is, besides its values."""

    path: str
    """Where in the returned structure; empty for a tensor that is returned alone."""
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int
    device: str = "cpu"


@dataclass(frozen=True)
class Compared:
    """What comparing one output tensor gave."""

    worst_ratio: float
    """Largest error as a share of its limit; infinite where only one of the two is finite."""
    wrong: int
    """Elements outside their limits."""
    total: int
    """Elements compared."""
    worst: int | None = None
    """Flat index of the worst element, if any is wrong."""
    got: float | None = None
    expected: float | None = None


@dataclass(frozen=True)
class Fault:
    """A difference, and the status that it means."""

    status: Status
    path: str
    detail: str


def form(path: str, value: torch.Tensor) -> Form:
    """The form of a reference's output."""
    return Form(
        path=path,
        dtype=str(value.dtype).removeprefix("torch."),
        shape=tuple(value.shape),
        strides=tuple(value.stride()),
        bytes=value.numel() * value.element_size(),
        device=value.device.type,
    )


def skeleton(tree: Any) -> str:
    """Containers, keys and kinds of leaves as text; equal for equal structures.

    Named tuples read as plain tuples, all tensors alike.
    """
    import torch

    match tree:
        case dict():
            return "{" + ", ".join(f"{key}: {skeleton(value)}" for key, value in tree.items()) + "}"
        case tuple():
            return "(" + ", ".join(skeleton(value) for value in tree) + ")"
        case list():
            return "[" + ", ".join(skeleton(value) for value in tree) + "]"
        case torch.Tensor():
            return "tensor"
        case None:
            return "None"
    return str(getattr(tree, "type_name", type(tree).__name__))


def check_form(
    expected: str, forms: tuple[Form, ...], outputs: Any, facts: tuple[TensorFacts, ...]
) -> Fault | None:
    """Compare structure, exact types, dtypes, devices, shapes and strides; the first fault returns.

    Args:
        expected: Skeleton of the reference's output.
        forms: Forms of the reference's output tensors, in order.
        outputs: What the candidate returned.
        facts: What its worker says of each tensor.
    """
    found = skeleton(outputs)
    if found != expected:
        text = f"`forward` returned {found:.200}, the reference returns {expected:.200}"
        return Fault(Status.WRONG_STRUCTURE, "", text)
    for want, got in zip(forms, facts, strict=True):
        if fault := _check_tensor(want, got):
            return fault
    return None


def tensors(outputs: Any) -> list[tuple[str, torch.Tensor]]:
    """Path and tensor of every tensor in order of appearance."""
    import torch

    return [(path, leaf) for path, leaf in leaves(outputs) if isinstance(leaf, torch.Tensor)]


def compare(limits: Limits, got: torch.Tensor, briefly: bool = False) -> Compared:
    """Compare all elements of one output with their limits, a piece at a time.

    Args:
        limits: What is right.
        got: The output.
        briefly: Stop at the first piece with something wrong; its figures are of what was seen.
    """
    found = pieces.rows(got)
    wrong, worst, worst_ratio = 0, None, 0.0
    width = found.shape[1]
    for top, left in pieces.chunks(found):
        ratio = _ratios(limits, found, top, left)
        if limits.lost is not None:
            _forgive(ratio, limits.lost, top, left, width, but_infinite=True)
        if limits.unjudged is not None:
            _forgive(ratio, limits.unjudged, top, left, width)
        highest = float(ratio.max())
        if highest > 1:
            wrong += int((ratio > 1).sum())
        if highest > worst_ratio:
            worst_ratio = highest
            row, column = divmod(int(ratio.argmax()), ratio.shape[1])
            worst = (row + top.start) * width + column + left.start
        if briefly and wrong:
            break
    total = found.numel()
    if not wrong or worst is None:
        return Compared(worst_ratio=worst_ratio, wrong=0, total=total)
    place = (worst // width, worst % width)
    return Compared(
        worst_ratio=worst_ratio,
        wrong=wrong,
        total=total,
        worst=worst,
        got=float(found[place]),
        expected=float(limits.values[place]),
    )


def mismatch(workload: str, family: str, form: Form, compared: Compared) -> Mismatch:
    """Put a wrong output into words and numbers."""
    index = _index(compared.worst or 0, form.shape)
    where = f" at index {list(index)}" if index else ""
    share = compared.wrong / max(compared.total, 1)
    if math.isinf(compared.worst_ratio):
        how = "where exactly one of the two is finite, or both are special but not the same"
    else:
        how = f"where the error is {compared.worst_ratio:.3g} times what is allowed"
    return Mismatch(
        workload=workload,
        family=family,
        output=form.path,
        detail=(
            f"{compared.wrong} of {compared.total} elements ({share:.2%}) are wrong; worst{where}: "
            f"got {compared.got:.9g}, expected {compared.expected:.9g}, {how}"
        ),
        wrong=compared.wrong,
        total=compared.total,
        worst_index=index,
        got=compared.got,
        expected=compared.expected,
    )


def same_bits(first: Any, second: Any) -> str | None:
    """Compare two outcomes of the same inputs bit by bit.

    Returns:
        None if they are the same, else where they differ, in words.
    """
    import torch

    from evokernel.bench.tensors import same_bytes

    if skeleton(first) != skeleton(second):
        return "the structure of the outputs changed from one call to the next"
    for (path, one), (_, other) in zip(tensors(first), tensors(second), strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output `{path}` changed its shape or dtype from one call to the next"
        a, b = (value.contiguous().reshape(-1) for value in (one, other))
        if not same_bytes(a, b):
            differ = a.view(torch.uint8) != b.view(torch.uint8)
            count = int(differ.reshape(-1, one.element_size()).any(1).sum())
            return f"{count} of {one.numel()} elements of output `{path or 'tensor'}` differ"
    return None


def _check_tensor(want: Form, got: TensorFacts) -> Fault | None:
    name = f"output `{want.path}`" if want.path else "the output"
    if got.type_name not in {"torch.Tensor", "Tensor"}:
        text = f"{name} is a `{got.type_name}`; expected exactly `torch.Tensor`"
        return Fault(Status.WRONG_STRUCTURE, want.path, text)
    if tuple(got.shape) != want.shape:
        text = f"{name} has shape {list(got.shape)}; expected {list(want.shape)}"
        return Fault(Status.WRONG_STRUCTURE, want.path, text)
    if got.dtype.removeprefix("torch.") != want.dtype:
        text = f"{name} is {got.dtype}; expected {want.dtype}"
        return Fault(Status.WRONG_DTYPE, want.path, text)
    if got.device.partition(":")[0] != want.device:
        text = f"{name} is on `{got.device}`; expected `{want.device}`"
        return Fault(Status.WRONG_DTYPE, want.path, text)
    if _layout(got.shape, got.strides) != _layout(want.shape, want.strides):
        text = f"{name} has strides {list(got.strides)}; expected {list(want.strides)}"
        return Fault(Status.WRONG_STRUCTURE, want.path, text)
    return None


def _layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the dimensions that have any; nothing for an empty tensor."""
    if math.prod(shape) == 0:
        return ()
    return tuple(step for size, step in zip(shape, strides, strict=True) if size > 1)


def _ratios(limits: Limits, found: torch.Tensor, top: slice, left: slice) -> torch.Tensor:
    """Error over limit for one piece; infinite where special values do not match."""
    got, want = found[top, left], limits.values[top, left]
    if not want.is_floating_point():
        same = got == want
        if limits.other is not None:
            same |= got == limits.other[top, left]
        return same.float().zero_().masked_fill_(~same, math.inf)
    work = limits.scale.dtype
    got, want = got.to(work), want.to(work)
    error = (got - want).abs_()
    allowed = want.abs().add_(limits.scale[top, None]).mul_(limits.reach[top, None])
    ratio = error.div_(allowed.add_(limits.tiny))
    if math.isfinite(float(ratio.sum())):
        return ratio
    return _special_ratios(ratio, got, want)


def _special_ratios(ratio: torch.Tensor, got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Settle the elements whose ratio is not finite: right if both are the same special value."""
    same = (got == want) | (got.isnan() & want.isnan())
    ratio = ratio.masked_fill(same, 0.0)
    return ratio.masked_fill(~same & ~(got.isfinite() & want.isfinite()), math.inf)


def _forgive(
    ratio: torch.Tensor,
    ignored: torch.Tensor,
    top: slice,
    left: slice,
    width: int,
    but_infinite: bool = False,
) -> None:
    """Set the ratios of elements to zero; with `but_infinite` only those of finite results."""
    row, column = ignored // width, ignored % width
    inside = (row >= top.start) & (row < top.stop) & (column >= left.start) & (column < left.stop)
    if not bool(inside.any()):
        return
    place = row[inside] - top.start, column[inside] - left.start
    kept = ratio[place].isinf() & but_infinite
    ratio[place] = ratio[place].masked_fill(~kept, 0.0)


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, max(size, 1))
        index.append(place)
    return tuple(reversed(index))
