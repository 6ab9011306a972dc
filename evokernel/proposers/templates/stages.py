"""Owns the way from a graph to one program or a `Pipeline`: what is stored, what is fused.

Every product is a stage. What a product reads must lie in memory: a tensor from outside, another
product, or something that a stage of its own stores first. What follows a product point by point
goes into its stage if nobody else needs the product.
"""

from __future__ import annotations

import math

from evokernel.opgraph import Node, OpGraph
from evokernel.proposers.templates.contraction import Contraction, Fused, Pipeline, Stage, plain
from evokernel.proposers.templates.expressions import (
    Level,
    Load,
    Output,
    Program,
    Source,
    Unsupported,
)
from evokernel.proposers.templates.lowering import lower, require_rules
from evokernel.proposers.templates.naming import Names
from evokernel.proposers.templates.operands import Lying, of_matrices, of_windows
from evokernel.proposers.templates.rewriting import PRODUCTS
from evokernel.proposers.templates.rowwise import moving_tensors
from evokernel.proposers.templates.storing import Storage, as_input, key_of, stored_key


def fitted(graph: OpGraph) -> Program | Pipeline:
    """One program for the graph, as `with_products` writes it, or stages where one does not do.

    Raises:
        Unsupported: names the operator that has no place in either.
    """
    if any(node.op in PRODUCTS for node in graph.nodes):
        return _Cutter(graph).pipeline()
    try:
        return lower(graph)
    except Unsupported as reason:
        require_rules(graph)
        try:
            return _Cutter(graph).pipeline()
        except Unsupported:
            raise reason from None


class _Cutter:
    """Makes the stages that store a graph's tensors."""

    def __init__(self, graph: OpGraph) -> None:
        self._storage = Storage(graph)
        self._reads = self._storage.reads()
        self._stages: list[Stage] = []

    def pipeline(self) -> Pipeline:
        storage = self._storage
        for name in storage.results:
            self._emit(name)
        tensors = {key for stage in self._stages for key in stage.reads}
        names = Names()
        outside = [_source(node, names) for node in self._outside if key_of(node) in tensors]
        outputs = [self._output(i, name, names) for i, name in enumerate(storage.results)]
        results = [stored_key(name) for name in storage.results]
        made = {stored_key(name): node for name, node in storage.nodes.items()}
        between = [s.writes for s in self._stages if s.writes not in results]
        found = Pipeline(
            sources=tuple(outside),
            outputs=tuple(outputs),
            results=tuple(results),
            between=tuple(_source(made[key], names) for key in between),
            stages=tuple(self._stages),
        )
        moving = moving_tensors(found, storage.graph.row_inputs or ())
        return found.model_copy(update={"moving": moving})

    @property
    def _outside(self) -> list[Node]:
        """Tensors from outside: inputs, then parameters, then constants."""
        kinds = ("input", "parameter", "constant")
        found = [n for n in self._storage.graph.nodes if n.kind in kinds and n.value is None]
        return sorted(found, key=lambda n: kinds.index(n.kind))

    def _emit(self, name: str) -> None:
        """Make the stage that stores a tensor, after those that store what it reads."""
        if any(stage.writes == stored_key(name) for stage in self._stages):
            return
        partner, stage = (name, None) if name in self._storage.products else self._partner(name)
        for other in (*self._reads[name], *self._reads.get(partner, ())):
            if other != partner:
                self._emit(other)
        if stage is None and name in self._storage.products:
            stage = self._contraction(name, name, self._plain(name))
        if stage is None:
            stage = Fused(program=self._storage.program(name), writes=stored_key(name))
        self._stages.append(stage)

    def _partner(self, name: str) -> tuple[str, Stage | None]:
        """The product whose stage may make a tensor too, and that stage."""
        products = [p for p in self._storage.products if p in self._reads[name]]
        for product in reversed(products):
            readers = [n for n, reads in self._reads.items() if product in reads]
            if readers != [name] or product in self._storage.results:
                continue
            try:
                program = self._storage.program(name, self._grid(product))
            except Unsupported:
                continue
            if _takes_in_order(program, product):
                return product, self._contraction(product, name, program)
        return "", None

    def _grid(self, product: str) -> tuple[int, ...]:
        """The product's axes: what counts rows, and columns."""
        shape = self._storage.nodes[product].outputs[0].shape
        if not self._storage.is_image(product):
            return shape
        return (*shape[:2], math.prod(shape[2:]))

    def _plain(self, product: str) -> Program:
        *rows, cols = self._grid(product)
        node = as_input(self._storage.nodes[product])
        return plain(rows, cols, _source(node, Names()))

    def _contraction(self, product: str, writes: str, program: Program) -> Contraction:
        storage, is_image = self._storage, self._storage.is_image(product)
        found = [storage.find(ref, is_image) for ref in storage.operands(product)]
        left, right = (Lying(key_of(node), view) for node, view in found)
        make = of_windows if is_image else of_matrices
        return Contraction(
            program=program,
            product=stored_key(product),
            writes=stored_key(writes),
            **make(storage.nodes[product], left, right),
        )

    def _output(self, number: int, name: str, names: Names) -> Output:
        spec = self._storage.nodes[name].outputs[0]
        wish = "out" if len(self._storage.results) == 1 else f"out{number}"
        return Output(name=names.take(wish), value=0, shape=spec.shape, dtype=spec.dtype)


def _takes_in_order(program: Program, product: str) -> bool:
    """Whether a program over the product's grid uses each of its numbers in its place only."""
    if program.kind != "pointwise" or any(o.walk for o in program.outputs):
        return False
    keys = [source.key for source in program.sources]
    loads = [v for v in program.values if isinstance(v, Load)]
    read = [load for load in loads if keys[load.access.source] == stored_key(product)]
    order = dict(program.domain.in_order)
    if len(read) != 1 or read[0].level is not Level.ELEMENT or read[0].access.guards:
        return False
    return all(getattr(read[0].access, name) == order[name] for name in order)


def _source(node: Node, names: Names) -> Source:
    wish = node.op if node.kind == "parameter" else node.name
    spec = node.outputs[0]
    return Source(
        name=names.take(wish),
        kind="input" if node.kind == "call" else node.kind,
        key=key_of(node),
        shape=spec.shape,
        dtype=spec.dtype,
    )
