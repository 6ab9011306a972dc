"""Owns `Contraction` and `Pipeline`: products with what follows them, and kernels in sequence.

A contraction is a stack of products `left @ right`, each of `rows x depth` times `depth x cols`,
and a point-wise program over the results. A graph with contractions, or with more than one
program can do, becomes a pipeline: stages that run one after the other, and tensors between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from evokernel.frozen import Frozen
from evokernel.proposers.templates.domain import Access, Domain
from evokernel.proposers.templates.expressions import Level, Load, Output, Program, Source


class Matrix(Frozen):
    """A stack of matrices, each element of which lies at a fixed distance from the next."""

    kind: Literal["matrix"] = "matrix"
    key: str
    """Which tensor, as `Source.key`."""
    offset: int
    batch: tuple[int, ...]
    """Strides along the axes of the stack, 0 where matrices are the same."""
    down: int
    """Stride from row to row."""
    across: int
    """Stride from column to column."""


class Patches(Frozen):
    """The windows of images as columns of matrices, for convolutions of one to three dimensions.

    Row `k` is a channel of the group and a place in the window, column `n` a place in the result;
    all spatial sizes have three entries, those that do not exist are one.
    """

    kind: Literal["patches"] = "patches"
    key: str
    """Which tensor, as `Source.key`; contiguous."""
    batch: tuple[int, ...]
    """Strides along the axes of the stack: images and groups."""
    channels: int
    """Per group."""
    size: tuple[int, int, int]
    """Of the image."""
    window: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]
    dilation: tuple[int, int, int]
    result: tuple[int, int, int]
    """Places that a window takes along each axis."""

    @property
    def padded(self) -> tuple[int, ...]:
        """Sizes of the image with zeros around it."""
        return tuple(s + 2 * p for s, p in zip(self.size, self.padding, strict=True))


class Contraction(Frozen):
    """One stage: `rows * prod(batch)` rows of products, and what is made of each number."""

    kind: Literal["contraction"] = "contraction"
    batch: tuple[int, ...]
    """Sizes of the axes of the stack; empty for one product."""
    rows: int
    cols: int
    depth: int
    dtype: str
    left: Matrix
    right: Matrix | Patches
    program: Program
    """Point-wise over `batch x rows` rows of `cols` columns."""
    product: str
    """Key of the source of `program` that stands for the product."""
    writes: str
    """Key of the tensor that the program's output is: a node's name, as sources have it."""

    @property
    def results(self) -> int:
        """Numbers that the product has."""
        return math.prod(self.batch) * self.rows * self.cols

    @property
    def reads(self) -> list[str]:
        """Keys of the tensors that it reads."""
        keys = [s.key for s in self.program.sources if s.key != self.product]
        return [*keys, self.left.key, self.right.key]

    @property
    def operations(self) -> int:
        """Floating-point operations, two for a multiply-add."""
        return 2 * self.results * self.depth

    @cached_property
    def value(self) -> int:
        """The value of `program` that is the product."""
        values = enumerate(self.program.values)
        keys = [source.key for source in self.program.sources]
        return next(
            i for i, v in values if isinstance(v, Load) and keys[v.access.source] == self.product
        )


class Fused(Frozen):
    """One stage without a product: a program of its own."""

    kind: Literal["fused"] = "fused"
    program: Program
    writes: str
    """As for a contraction."""

    @property
    def reads(self) -> list[str]:
        """Keys of the tensors that it reads."""
        return [source.key for source in self.program.sources]


Stage = Contraction | Fused


class Pipeline(Frozen):
    """Kernels that run one after the other; what one writes, later ones read."""

    sources: tuple[Source, ...]
    """Tensors from outside, inputs first."""
    outputs: tuple[Output, ...]
    results: tuple[str, ...]
    """For each output its key."""
    between: tuple[Source, ...]
    """Tensors that only stages write and read; their keys are the names of the graph's nodes."""
    stages: tuple[Stage, ...]
    moving: frozenset[str] = frozenset()
    """Keys of the tensors with a part for each row of the results, whose number may differ from
    call to call; empty if it may not."""

    @property
    def contractions(self) -> tuple[Contraction, ...]:
        """The stages that are products."""
        return tuple(s for s in self.stages if isinstance(s, Contraction))

    @property
    def heaviest(self) -> Contraction | None:
        """The product with most operations, if there is one."""
        return max(self.contractions, key=lambda stage: stage.operations, default=None)

    @property
    def fused(self) -> tuple[Program, ...]:
        """The programs of the other stages."""
        return tuple(s.program for s in self.stages if isinstance(s, Fused))

    @property
    def domain(self) -> Domain:
        """Nothing is swept as a whole: a grid of one number per row of the first output."""
        return Domain(outer=self.outputs[0].shape[:1], cols=1)

    def count(self, size: int, key: str) -> str:
        """A size of the tensor `key`, or of the stage that writes it, as a C++ expression."""
        if key not in self.moving:
            return str(size)
        each = size // self.domain.rows
        return "rows" if each == 1 else f"rows * {each}"


def plain(rows: Sequence[int], cols: int, source: Source) -> Program:
    """The program that stores a product as it is."""
    domain = Domain(outer=tuple(rows), cols=cols)
    walk = {**dict(domain.in_order), "step": 1}
    load = Load(
        name=f"{source.name}_c",
        level=Level.ELEMENT,
        dtype=source.dtype,
        access=Access(source=0, **walk),
    )
    output = Output(name="out", value=0, shape=source.shape, dtype=source.dtype)
    return Program(domain=domain, sources=(source,), values=(load,), outputs=(output,))
