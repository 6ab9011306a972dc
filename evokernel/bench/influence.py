"""Owns the influence of inputs and weights: does each change the output by more than is allowed?"""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from evokernel.bench import correctness
from evokernel.bench.reference import copied
from evokernel.bench.rehearsal import Finding, Rehearsal
from evokernel.errors import TaskError
from evokernel.nested import leaves, map_leaves
from evokernel.wording import counted


def of_inputs(rehearsal: Rehearsal) -> Finding:
    """Exchange one input tensor after the other for that of another seed.

    A floating one whose exchange does not show is disturbed as well: the mean over many values that
    are drawn alike is always nearly the same. One that holds whole numbers and is the same for
    every seed is left out: those of one's own choice may be no valid labels, indices or masks.
    """
    silent: list[str] = []
    kept: list[str] = []
    count = 0
    others = [leaf for _, leaf in leaves(rehearsal.other_inputs)]
    for place, (path, leaf) in enumerate(leaves(rehearsal.inputs)):
        if not isinstance(leaf, torch.Tensor) or not leaf.numel():
            continue
        tries = _others(leaf, others[place] if place < len(others) else None)
        if not tries:
            kept.append(path)
            continue
        count += 1
        if all(_is_silent(rehearsal, place, other) for other in tries):
            silent.append(path)
    if silent:
        return Finding(
            False,
            f"{_named('input', silent)} could be ignored: exchanging {_it(silent)} leaves the "
            f"output within the tolerance; leave {_it(silent)} out, or make {_it(silent)} matter",
        )
    left_out = _left_out(kept) if kept else ""
    return Finding(True, f"{_each(count, 'input tensor')} changes the output{left_out}")


def of_weights(rehearsal: Rehearsal, seconds: float = math.inf) -> Finding:
    """Disturb one parameter or buffer after the other.

    Exempt are those that `forward` does not read: whole numbers (a batch norm's count of batches),
    statistics that training mode only writes, and what the operator graph does not hold. After so
    many `seconds` no further one is begun with.
    """
    limit, late = time.monotonic() + seconds, 0
    silent: list[str] = []
    exempt: list[str] = []
    count = 0
    written = _written(rehearsal)
    for name, value in _state(rehearsal.module).items():
        if not value.is_floating_point() or not value.numel() or _is_unread(rehearsal, name):
            exempt.append(name)
            continue
        if time.monotonic() > limit:
            late += 1
            continue
        if _changes(rehearsal, value):
            count += 1
        else:
            (exempt if name in written else silent).append(name)
    if silent:
        return Finding(
            False,
            f"{_named('weight', silent)} could be left out: other values in {_it(silent)} change "
            "the output by no more than the tolerance (a bias before a normalisation, say); "
            f"remove {_it(silent)}",
        )
    if not count and not late:
        return Finding(True, "the module has no weights" + _unread(exempt))
    left = f"; no time was left for {late} more" if late else ""
    said = f"{_each(count, 'parameter or buffer')} changes the output{_unread(exempt)}{left}"
    return Finding(True, said)


def _others(leaf: torch.Tensor, other: Any) -> list[torch.Tensor]:
    """What to put in place of an input."""
    is_alike = isinstance(other, torch.Tensor) and other.shape == leaf.shape
    tries = [other] if is_alike and not torch.equal(leaf, other) else []
    return [*tries, _disturbed(leaf)] if leaf.is_floating_point() else tries


def _is_silent(rehearsal: Rehearsal, place: int, other: torch.Tensor) -> bool:
    """Whether the output stays what it was with one leaf exchanged."""
    numbers = iter(range(len(leaves(rehearsal.inputs))))
    changed = map_leaves(lambda leaf: other if next(numbers) == place else leaf, rehearsal.inputs)
    try:
        return rehearsal.passes(rehearsal.call(changed))
    except TaskError:  # inputs that belong together, e.g. offsets and lengths
        return False


def _changes(rehearsal: Rehearsal, value: torch.Tensor) -> bool:
    """Whether disturbing a weight shows; it gets its own values back."""
    before = value.detach().clone()
    with torch.no_grad():
        value.copy_(_disturbed(before))
        try:
            return not rehearsal.passes(rehearsal.call(rehearsal.inputs))
        except TaskError:  # `forward` refuses the disturbed weight, so that it reads it
            return True
        finally:
            value.copy_(before)


def _disturbed(values: torch.Tensor) -> torch.Tensor:
    """Every element raised by a random share of its size, and a bit: a variance stays positive.

    The shares differ, since a softmax, say, does not see a shift of all.
    """
    draw = torch.Generator().manual_seed(0)
    share = torch.rand(values.shape, generator=draw, dtype=torch.float64).to(values.dtype)
    return values + (values.abs() + 0.5) * (0.1 + share)


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _written(rehearsal: Rehearsal) -> set[str]:
    """Names of what a call of `forward` itself overwrites; afterwards it is as it was."""
    state = _state(rehearsal.module)
    before = {name: value.detach().clone() for name, value in state.items()}
    rehearsal.program.call(rehearsal.module, copied(rehearsal.inputs))
    found = {n for n, value in state.items() if correctness.same_bits(before[n], value)}
    with torch.no_grad():
        for name in found:
            state[name].copy_(before[name])
    return found


def _is_unread(rehearsal: Rehearsal, name: str) -> bool:
    """Whether the operator graph shows that `forward` has no use for it."""
    nodes = rehearsal.graph.nodes if rehearsal.graph else ()
    return bool(nodes) and not any(n.kind == "parameter" and n.op == name for n in nodes)


def _each(count: int, noun: str) -> str:
    match count:
        case 0:
            return f"no {noun}"
        case 1:
            return f"the only {noun}"
    return f"each of {counted(count, noun)}"


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _named(noun: str, names: list[str]) -> str:
    return f"{noun}{'s' if len(names) > 1 else ''} {_quoted(names)}"


def _it(names: list[str]) -> str:
    return "it" if len(names) == 1 else "any of them"


def _left_out(names: list[str]) -> str:
    if len(names) == 1:
        return f"; {_quoted(names)} is the same for every seed and was left out"
    return f"; {_quoted(names)} are the same for every seed and were left out"


def _unread(names: list[str]) -> str:
    is_read = "is" if len(names) == 1 else "are"
    return f"; {_quoted(names)} {is_read} not read by `forward`" if names else ""
