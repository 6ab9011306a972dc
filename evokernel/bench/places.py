"""Owns where the outputs of a timed call lie: told inside the worker, read from outside."""

from typing import Any

import torch

from evokernel.bench import trees
from evokernel.bench.hold import Hold
from evokernel.bench.inputs import InputSet
from evokernel.bench.messages import TensorFacts, Turn
from evokernel.bench.tensors import DTYPES, Layout, Package, is_dense, span
from evokernel.bench.trees import BadTree
from evokernel.bench.wire import Message


def told(output: Any, inputs: InputSet, slot: int) -> tuple[Message, list[torch.Tensor]]:
    """Structure and places of an output, and tensors that must live until they were read.

    Raises:
        BadTree: It cannot be described.
    """
    alive: list[torch.Tensor] = []
    places: list[Message] = []

    def number(tensor: torch.Tensor) -> int | None:
        if not is_plain(tensor) or not is_dense(tensor) or tensor.device.type != "cpu":
            return None
        plain = tensor.detach().resolve_conj().resolve_neg()
        alive.append(plain)
        places.append({"address": plain.data_ptr(), "facts": describe(tensor, inputs, slot)})
        return len(alive) - 1

    tree = trees.encode(output, number, foreign=True)
    return {"tree": tree, "places": places}, alive


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether nothing but the library's own methods answer for it: asking others would run them."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not vars(tensor)


def describe(tensor: torch.Tensor, inputs: InputSet, slot: int) -> Message:
    """What `TensorFacts` says of a tensor, without its path."""
    return {
        "path": "",
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "device": str(tensor.device),
        "type_name": trees.type_name(tensor),
        "requires_grad": tensor.requires_grad,
        "aliases": inputs.owner(tensor, slot),
    }


def fetch(hold: Hold, turn: Turn, limit: int) -> tuple[Any, tuple[Layout, ...]]:
    """Read the output of a turn out of the memory of its worker.

    Args:
        hold: The worker, stopped.
        turn: Tells where the output lies.
        limit: Bytes that it may have.

    Returns:
        The nested value, its tensors contiguous, and their layouts.

    Raises:
        BadTree: It is damaged, too large, or names dtypes that there are not.
        Unreachable: There is no memory where it says.
    """
    if turn.refusal:
        raise BadTree(turn.refusal)
    layouts = tuple(_layout(place.facts) for place in turn.places)
    if sum(layout.bytes for layout in layouts) > limit:
        raise BadTree(f"tensors of more than {limit} bytes")
    flats = [torch.empty(layout.span, dtype=DTYPES[layout.dtype]) for layout in layouts]
    for flat, place, layout in zip(flats, turn.places, layouts, strict=True):
        hold.read(place.address, flat.data_ptr(), layout.bytes)
    value = Package(turn.tree, layouts, None, 0).value(flats)
    return value, layouts


def _layout(facts: TensorFacts) -> Layout:
    if facts.dtype not in DTYPES or len(facts.shape) != len(facts.strides):
        raise BadTree("a tensor that cannot be")
    if min(facts.shape + facts.strides, default=0) < 0:
        raise BadTree("a tensor of negative size")
    elements = span(facts.shape, facts.strides)
    return Layout(
        dtype=facts.dtype, shape=facts.shape, strides=facts.strides, offset=0, span=elements
    )
