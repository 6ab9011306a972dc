"""Owns the input families: what a task's inputs become, so that a wrong kernel shows.

Two well-chosen inputs find more faults than a hundred seeds of one distribution. Some families are
for all tasks, others for a class of operators. They change tensors only as far as the nature of
each allows: probabilities stay probabilities; index tensors stay, but for the labels of losses and
the masks of attention in `extreme`. What is non-negative stays so, with one exception:
values that look like `torch.rand` (uniform in [0, 1)) are the usual way to say "some input" in task
files, and a kernel that returns its input would pass for ReLU if they never became negative. They
are changed freely, unless the reference raises or answers with non-finite values; then they too
keep their domain.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from evokernel.bench import patterns
from evokernel.bench.messages import Bounds
from evokernel.nested import leaves, map_leaves
from evokernel.opgraph.operators import kind_of

if TYPE_CHECKING:
    import torch

    from evokernel.opgraph import OpGraph

FAMILIES = ("normal", "large", "small", "negated", "zeros", "ties", "special", "denormal")
"""For every task, in the order in which they are tried."""
BY_CLASS: dict[str, tuple[str, ...]] = {
    "attention": ("spiked", "wide", "extreme"),
    "softmax": ("spiked", "offset", "extreme"),
    "loss": ("extreme", "spiked", "wide", "offset"),
    "normalization": ("offset", "constant", "spiked"),
    "reduction": ("spiked", "cancelling", "binary", "offset"),
    "scan": ("cancelling", "binary", "spiked"),
    "pooling": ("spiked", "cancelling", "offset"),
    "contraction": ("binary", "cancelling", "spiked"),
    "convolution": ("binary", "cancelling", "spiked"),
    "recurrent": ("wide", "spiked"),
    "pointwise": ("wide",),
}
"""Families for a class of operators, the most telling first; see `patterns`."""
HARD = frozenset({"large", "spiked", "offset", "constant", "cancelling", "wide"})
"""Families on which the reference's own error may be small by luck; see `tolerance`."""
EXACT = frozenset({"contraction", "reduction", "scan"})
"""Classes whose `binary` results are compared exactly where all are whole numbers."""
SPECIAL = ("special", "denormal")
"""Families that a task whose `special_values` are ignored is spared."""
TELLING = tuple(family for family in FAMILIES if family not in SPECIAL)
"""Families for every task that change every element."""

LARGE = 1e3
SCALES = {"small": 1e-3, "negated": -1.0}
SPRINKLE_EVERY = 50_000
"""Elements per special value; few enough that most rows of a reduction stay finite."""


def of_graph(graph: OpGraph | None) -> tuple[str, ...]:
    """The families for the classes of operators in a graph.

    Where it is not known they are all of them but `extreme`, since whole numbers might be offsets
    or lengths, which must keep their order.
    """
    if graph is None:
        kinds = list(BY_CLASS)
    else:
        calls = [kind_of(node.op) for node in graph.nodes if node.kind == "call"]
        kinds = [graph.family, *sorted(set(calls))]
    found = dict.fromkeys(family for kind in kinds for family in BY_CLASS.get(kind, ()))
    return tuple(family for family in found if graph is not None or family != "extreme")


def is_exact(family: str, graph: OpGraph | None) -> bool:
    """Whether sums of products are exact in any order, so that no error is allowed."""
    return family == "binary" and graph is not None and graph.family in EXACT


class Nature(StrEnum):
    """What an input tensor is, judged by its values."""

    LABEL = "label"
    """Integers: labels, indices, lengths."""
    MASK = "mask"
    """Booleans."""
    EXACT = "exact"
    """Floats that hold only whole numbers: labels, masks and indices as floats; empty tensors."""
    PROBABILITY = "probability"
    """Non-negative, and the last dimension sums to one."""
    UNIFORM = "uniform"
    """Like `torch.rand`."""
    NONNEGATIVE = "nonnegative"
    """No value below zero."""
    GENERIC = "generic"
    """Any floating values."""


WHOLE = frozenset({Nature.LABEL, Nature.MASK, Nature.EXACT})
"""Natures whose values mean something by themselves."""


def nature(tensor: torch.Tensor) -> Nature:
    """Judge a tensor by dtype and values; NaN and infinities count as generic."""
    if tensor.numel() == 0 or tensor.is_complex():
        return Nature.EXACT
    if not tensor.is_floating_point():
        return Nature.MASK if str(tensor.dtype) == "torch.bool" else Nature.LABEL
    values = tensor.detach().float()
    if bool((values == values.round()).all()):
        return Nature.EXACT
    if not bool((values >= 0).all()):
        return Nature.GENERIC
    if _sums_to_one(values):
        return Nature.PROBABILITY
    mean = float(values.mean())
    if float(values.max()) <= 1 and values.numel() >= 16 and 0.35 < mean < 0.65:
        return Nature.UNIFORM
    return Nature.NONNEGATIVE


def natures(inputs: Any) -> tuple[Nature, ...]:
    """The nature of every tensor of nested inputs, in order of appearance."""
    import torch

    return tuple(nature(leaf) for _, leaf in leaves(inputs) if isinstance(leaf, torch.Tensor))


def apply(
    family: str, inputs: Any, kinds: tuple[Nature, ...], seed: int, keep_domain: bool = False
) -> Any:
    """The inputs of a family, made from a workload's normal inputs.

    Args:
        family: One of `FAMILIES`, or one of a class of operators.
        inputs: Nested inputs; they are left alone.
        kinds: What `natures` says of them.
        seed: Places the special values.
        keep_domain: Treat uniform values as non-negative ones that stay below one.

    Returns:
        New nested inputs of the same shapes and dtypes.
    """
    import torch

    tensors = [leaf for _, leaf in leaves(inputs) if isinstance(leaf, torch.Tensor)]
    made = {
        id(tensor): _changed(family, tensor, kind, (index, seed + index), keep_domain)
        for index, (tensor, kind) in enumerate(zip(tensors, kinds, strict=True))
    }

    def pick(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        changed = made[id(leaf)]
        return leaf.clone() if changed is None else _laid_out(changed, leaf)

    return map_leaves(pick, inputs)


def changes(family: str, kinds: tuple[Nature, ...], keep_domain: bool = False) -> bool:
    """Whether a family makes other inputs than the normal ones; `normal` itself counts."""
    if family == "normal":
        return True
    return any(_touches(family, kind, keep_domain) for kind in kinds)


def bounds(inputs: Any, kinds: tuple[Nature, ...], keep_domain: bool, moves: bool = True) -> Bounds:
    """What has to remain of inputs in a timed repetition.

    Args:
        inputs: Nested inputs.
        kinds: What `natures` says of them.
        keep_domain: Uniform values stay between 0 and 1.
        moves: Integers may change places, but for those in ascending order, which may be offsets.
    """
    import torch

    tensors = [leaf for _, leaf in leaves(inputs) if isinstance(leaf, torch.Tensor)]
    rules: dict[str, list[Any]] = {"nonnegative": [], "mixed": [], "moved": [], "fixed": []}
    for index, (tensor, kind) in enumerate(zip(tensors, kinds, strict=True)):
        if kind is Nature.NONNEGATIVE:
            rules["nonnegative"].append(index)
        elif kind is Nature.UNIFORM and keep_domain:
            rules["mixed"].append((index, 1))
        elif kind is Nature.PROBABILITY and tensor.is_contiguous():
            rules["mixed"].append((index, tensor.shape[-1]))
        elif kind is Nature.LABEL and moves and not _ascends(tensor):
            rules["moved"].append(index)
        elif kind in {*WHOLE, Nature.PROBABILITY} and not tensor.is_complex():
            rules["fixed"].append(index)
    return Bounds.model_validate(rules)


def _laid_out(changed: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The same values with the strides of another tensor of that shape."""
    import torch

    return changed if changed.stride() == like.stride() else torch.empty_like(like).copy_(changed)


def _ascends(tensor: torch.Tensor) -> bool:
    flat = tensor.reshape(-1)
    return bool((flat[1:] >= flat[:-1]).all())


def _sums_to_one(values: torch.Tensor) -> bool:
    if values.dim() == 0 or values.shape[-1] < 2:
        return False
    return bool(((values.sum(-1) - 1).abs() < 1e-3).all())


def _changed(
    family: str, tensor: torch.Tensor, kind: Nature, place: tuple[int, int], keep_domain: bool
) -> torch.Tensor | None:
    """New values, or None; `place` is the position among the inputs, and a seed."""
    if family == "normal" or not _touches(family, kind, keep_domain):
        return None
    index, seed = place
    if family in patterns.FLOATING:
        is_signed = kind is not Nature.NONNEGATIVE
        return patterns.FLOATING[family](tensor, index, seed, is_signed)
    if family in SCALES:
        return tensor * SCALES[family]
    match family:
        case "large":
            return tensor * _large(tensor)
        case "zeros":
            return (tensor * 0.0).abs()  # no negative zeros
        case "ties":
            unit = kind is Nature.UNIFORM and keep_domain
            return _level(tensor) if kind is Nature.PROBABILITY else _tied(tensor, unit)
        case "special":
            return _sprinkled(_thinned(tensor), kind is Nature.NONNEGATIVE, seed)
        case "denormal":
            return _denormal(tensor)
        case "extreme":
            return _extreme(tensor, kind, seed)
    known = ", ".join((*FAMILIES, *patterns.FLOATING, "extreme"))
    raise ValueError(f"`{family}` is no input family; known: {known}")


def _touches(family: str, kind: Nature, keep_domain: bool) -> bool:
    """Whether a family changes a tensor of that nature."""
    if family == "extreme":
        return kind in {Nature.LABEL, Nature.MASK, Nature.PROBABILITY}
    match kind:
        case Nature.EXACT | Nature.LABEL | Nature.MASK:
            return False
        case Nature.PROBABILITY:
            return family == "ties"
        case Nature.NONNEGATIVE:
            return family != "negated"
        case Nature.UNIFORM if keep_domain:
            return family in {"small", "zeros", "ties", "denormal"}
    return True


def _extreme(tensor: torch.Tensor, kind: Nature, seed: int) -> torch.Tensor:
    if kind is Nature.PROBABILITY:
        return patterns.one_hot(tensor)
    is_mask = kind is Nature.MASK
    return patterns.thinned(tensor, seed) if is_mask else patterns.relabelled(tensor, seed)


def _large(tensor: torch.Tensor) -> float:
    """`LARGE`, or less where squares would leave the range of a narrow dtype such as float16."""
    import torch

    largest = float(tensor.abs().max())
    reach = float(torch.finfo(tensor.dtype).max) ** 0.5
    return min(LARGE, reach / largest) if largest > 0 else LARGE


def _level(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.full_like(tensor, 1.0 / tensor.shape[-1])


def _tied(tensor: torch.Tensor, unit: bool) -> torch.Tensor:
    """Small whole numbers (or 0 and 1), so that maxima tie and sums and products are exact."""
    rms = float(tensor.double().square().mean().sqrt())
    levels = (tensor.double() / max(rms, 1e-300)).round().clamp(-2, 2)
    return (levels.clamp(0, 1) if unit else levels).to(tensor.dtype)


def _thinned(tensor: torch.Tensor) -> torch.Tensor:
    """A quarter of the elements zero, here and there: zero times infinity is not zero.

    Places follow from multiplication by a constant (Knuth, The Art of Computer Programming 3,
    section 6.4), so that they are no pattern of rows or columns.
    """
    import torch

    place = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)
    return tensor.masked_fill((place * 2654435761 >> 13) % 4 == 0, 0.0)


def _sprinkled(tensor: torch.Tensor, floor: bool, seed: int) -> torch.Tensor:
    import torch

    values = (float("nan"), float("inf")) if floor else (float("nan"), float("inf"), -float("inf"))
    count = min(64, max(len(values), tensor.numel() // SPRINKLE_EVERY))
    device = tensor.device
    draw = torch.Generator(device).manual_seed(seed % 2**63)
    places = torch.randint(tensor.numel(), (count,), generator=draw, device=device)
    chosen = [values[i % len(values)] for i in range(count)]
    specials = torch.tensor(chosen, dtype=tensor.dtype, device=device)
    out = tensor.clone()
    where = torch.unravel_index(places, tensor.shape) if tensor.dim() else ()
    out[where] = specials if tensor.dim() else specials[0]
    return out


def _denormal(tensor: torch.Tensor) -> torch.Tensor:
    """Scaled so that the largest value is a hundredth of the smallest normal number."""
    import torch

    largest = max(float(tensor.abs().max()), 1e-300)
    factor = 0.01 * float(torch.finfo(tensor.dtype).tiny) / largest
    return (tensor.double() * factor).to(tensor.dtype)
