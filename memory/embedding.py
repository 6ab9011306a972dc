"""Owns `StructuralEmbedder`: a situation as a point, computed offline from its operator graph."""

import hashlib
import math
from collections import Counter
from functools import lru_cache
from typing import Protocol

from evokernel.frozen import Frozen
from evokernel.opgraph import Argument, Node, OpGraph, Ref, TensorSpec

Features = dict[str, float]

WEIGHTS = {
    "operator": 1.0,
    "neighbourhood": 0.8,
    "family": 0.8,
    "pattern": 0.6,
    "dtype": 0.5,
    "shape": 0.5,
    "technique": 0.4,
    "bottleneck": 0.3,
}
"""Share of each group of features; every group has length one before it (ours, not searched)."""

PLACES = 4
"""Places per feature: where two features of a small graph meet, they meet in a part only."""

ROWS = frozenset({"softmax", "normalization", "reduction", "scan", "loss"})
"""Families that go along rows: a technique for one often serves the others."""

ROUNDS = 2
"""Rounds of neighbourhood labels: operators up to two steps away enter."""


class Situation(Frozen):
    """What an experience is about, or what a step stands before: all that is embedded."""

    graph: OpGraph | None = None
    """None where the reference could not be captured, or for a note about no particular task."""
    family: str = "unknown"
    """Family of the task's operators."""
    bottleneck: str = "unknown"
    """What bounds the start point, in a word; empty for a draft."""
    techniques: tuple[str, ...] = ()
    """Techniques of the start point."""


class Embedder(Protocol):
    """Turns a situation into a vector; another name, version or dimension is another memory."""

    name: str
    version: str
    dimension: int

    def embed(self, situation: Situation) -> tuple[float, ...]:
        """A vector of `dimension` floats of length one, or all zero where nothing is known."""


def label(embedder: Embedder) -> str:
    """Name, version and dimension in one word, as stored with the vectors."""
    return f"{embedder.name}/{embedder.version}/{embedder.dimension}"


class StructuralEmbedder:
    """Signed feature hashing of operators, neighbourhoods, shapes, dtypes, family and techniques.

    Hashing: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009.
    Neighbourhood labels: Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", 2011.
    """

    name = "structural"
    version = "1"

    def __init__(self, dimension: int = 256) -> None:
        self.dimension = dimension

    def embed(self, situation: Situation) -> tuple[float, ...]:
        """Hash every group of features, each weighted by its share, into one unit vector."""
        vector = [0.0] * self.dimension
        for group, features in _groups(situation).items():
            length = math.sqrt(sum(value * value for value in features.values()))
            for word, value in features.items():
                share = WEIGHTS[group] * value / length / math.sqrt(PLACES)
                for place, sign in _hashed(f"{group}:{word}", self.dimension):
                    vector[place] += sign * share
        norm = math.sqrt(sum(value * value for value in vector))
        return tuple(value / norm for value in vector) if norm else tuple(vector)


@lru_cache(maxsize=65536)
def _hashed(word: str, dimension: int) -> tuple[tuple[int, float], ...]:
    """Places and signs of a feature; the same in every process."""
    digest = hashlib.blake2b(word.encode(), digest_size=4 * PLACES).digest()
    numbers = (int.from_bytes(digest[4 * i : 4 * i + 4], "little") for i in range(PLACES))
    return tuple(((n >> 1) % dimension, 1.0 if n & 1 else -1.0) for n in numbers)


def _groups(situation: Situation) -> dict[str, Features]:
    groups = {
        "family": _known(situation.family),
        "pattern": _known("rows" if situation.family in ROWS else situation.family),
        "bottleneck": _known(situation.bottleneck),
        "technique": dict.fromkeys(situation.techniques, 1.0),
    }
    if situation.graph is not None:
        groups |= _graph_groups(situation.graph)
    return {name: features for name, features in groups.items() if features}


def _known(word: str) -> Features:
    return {} if word in {"", "unknown"} else {word: 1.0}


def _graph_groups(graph: OpGraph) -> dict[str, Features]:
    calls = [node for node in graph.nodes if node.kind == "call"]
    dtypes = Counter(spec.dtype for node in graph.nodes for spec in node.outputs)
    return {
        "operator": _damped(Counter(node.op for node in calls)),
        "neighbourhood": _damped(Counter(_neighbourhoods(graph))),
        "shape": _shapes(graph),
        "dtype": _damped(dtypes),
    }


def _damped(counts: Counter[str]) -> Features:
    """Counts under a square root: ten additions are not ten times as telling as one."""
    return {word: math.sqrt(count) for word, count in counts.items()}


def _neighbourhoods(graph: OpGraph) -> list[str]:
    """Labels of every call after each round, each made of its own and its arguments' labels."""
    labels = {node.name: _first_label(node) for node in graph.nodes}
    found: list[str] = []
    for _ in range(ROUNDS):
        labels = {node.name: _next_label(node, labels) for node in graph.nodes}
        found += [labels[node.name] for node in graph.nodes if node.kind == "call"]
    return found


def _first_label(node: Node) -> str:
    return node.op if node.kind == "call" else node.kind


def _next_label(node: Node, labels: dict[str, str]) -> str:
    if node.kind != "call":
        return labels[node.name]
    around = ",".join(labels.get(name, "?") for name in _arguments(node.args))
    text = f"{labels[node.name]}({around})"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _arguments(args: tuple[Argument, ...]) -> list[str]:
    names: list[str] = []
    for argument in args:
        if isinstance(argument, Ref):
            names.append(argument.node)
        elif isinstance(argument, tuple):
            names += _arguments(argument)
    return names


def _shapes(graph: OpGraph) -> Features:
    """Sizes of inputs and results on a log2 scale, counted from the innermost dimension."""
    features: Features = {}
    outside = [spec for node in graph.nodes if node.kind == "input" for spec in node.outputs]
    by_name = {node.name: node for node in graph.nodes}
    results = [
        by_name[ref.node].outputs[ref.index]
        for ref in graph.results
        if ref.node in by_name and ref.index < len(by_name[ref.node].outputs)
    ]
    for role, specs in (("in", outside), ("out", results)):
        for spec in specs:
            _bucket_sizes(features, role, spec)
    _bucket(features, "bytes", graph.min_bytes)
    if graph.min_bytes:
        _bucket(features, "intensity", graph.flops / graph.min_bytes)
    return features


def _bucket_sizes(features: Features, role: str, spec: TensorSpec) -> None:
    for place, size in enumerate(reversed(spec.shape)):
        _bucket(features, f"{role}{place}", size)


def _bucket(features: Features, name: str, size: float) -> None:
    """Share a size between its two neighbouring powers of two, so that close sizes stay close."""
    exponent = math.log2(size + 1)
    low = math.floor(exponent)
    for power, share in ((low, 1 - (exponent - low)), (low + 1, exponent - low)):
        if share:
            word = f"{name}:{power}"
            features[word] = features.get(word, 0.0) + share
