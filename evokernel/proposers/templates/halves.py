"""Owns half precision in programs: numbers of 16 bits in memory, float32 in registers.

Half precision is lowered as if all of it were float32; then tensors get the dtypes back in which
they lie. A `Source` or `Output` of float16 or bfloat16 therefore stands beside values of float32:
whoever writes a load or a store converts. Results in between are not rounded to half precision.
"""

from __future__ import annotations

from evokernel.opgraph import Node, OpGraph
from evokernel.proposers.templates.contraction import Contraction, Pipeline, Stage
from evokernel.proposers.templates.expressions import Output, Program, Source
from evokernel.proposers.templates.lower_contractions import with_products
from evokernel.proposers.templates.stages import fitted
from evokernel.proposers.templates.storing import stored_key

HALVES = frozenset({"float16", "bfloat16"})
"""Dtypes that lie in memory as such and are computed in float32."""


def fitted_in_float32(graph: OpGraph) -> Program | Pipeline:
    """One program or stages for a graph in any precision, half precision computed in float32.

    Raises:
        Unsupported: names the operator that has no place in either.
    """
    made = fitted(with_products(_widened(graph)))
    dtypes = _Lying(graph)
    if not dtypes.has_halves:
        return made
    return dtypes.pipeline(made) if isinstance(made, Pipeline) else dtypes.program(made)


def _widened(graph: OpGraph) -> OpGraph:
    """The graph in float32 where it is in half precision."""

    def wide(node: Node) -> Node:
        outputs = tuple(
            spec.model_copy(update={"dtype": "float32"}) if spec.dtype in HALVES else spec
            for spec in node.outputs
        )
        return node.model_copy(update={"outputs": outputs})

    return graph.model_copy(update={"nodes": tuple(wide(node) for node in graph.nodes)})


class _Lying:
    """The dtypes in which a graph's tensors lie in memory."""

    def __init__(self, graph: OpGraph) -> None:
        self._outside: dict[tuple[str, str], str] = {}
        self._stored: dict[str, str] = {}
        self._results = tuple(graph.spec(result).dtype for result in graph.results)
        for node in graph.nodes:
            if node.kind != "call":
                self._outside[node.kind, node.op] = node.outputs[0].dtype
                continue
            for index, spec in enumerate(node.outputs):
                self._stored[stored_key(f"{node.name}.{index}")] = spec.dtype
            self._stored[stored_key(node.name)] = node.outputs[0].dtype
        found = {*self._outside.values(), *self._stored.values()}
        self.has_halves = not HALVES.isdisjoint(found)

    def program(self, program: Program) -> Program:
        """A program whose results are the graph's."""
        outputs = zip(program.outputs, self._results, strict=True)
        return program.model_copy(
            update={
                "sources": tuple(self._source(source) for source in program.sources),
                "outputs": tuple(_as(output, dtype) for output, dtype in outputs),
            }
        )

    def pipeline(self, pipeline: Pipeline) -> Pipeline:
        """A pipeline whose results are the graph's."""
        self._stored.update(zip(pipeline.results, self._results, strict=True))
        for stage in pipeline.contractions:
            self._match_operands(stage)
        return pipeline.model_copy(
            update={
                "sources": tuple(self._source(source) for source in pipeline.sources),
                "between": tuple(self._source(source) for source in pipeline.between),
                "outputs": tuple(
                    _as(o, dtype) for o, dtype in zip(pipeline.outputs, self._results, strict=True)
                ),
                "stages": tuple(self._stage(stage) for stage in pipeline.stages),
            }
        )

    def _match_operands(self, stage: Contraction) -> None:
        """What only our own rewriting stores for a product lies like the other operand."""
        keys = [stage.left.key, stage.right.key]
        for key, other in (keys, keys[::-1]):
            if key.startswith(stored_key("")) and key not in self._stored:
                self._stored[key] = self._of(other)

    def _stage(self, stage: Stage) -> Stage:
        program = stage.program
        sources = tuple(
            # A product that its own stage goes on with never leaves the registers.
            source if self._is_product(stage, source) else self._source(source)
            for source in program.sources
        )
        outputs = tuple(
            _as(output, self._stored.get(stage.writes, output.dtype)) for output in program.outputs
        )
        update = {"sources": sources, "outputs": outputs}
        return stage.model_copy(update={"program": program.model_copy(update=update)})

    def _is_product(self, stage: Stage, source: Source) -> bool:
        return isinstance(stage, Contraction) and source.key == stage.product

    def _source(self, source: Source) -> Source:
        found = self._stored.get(source.key) or self._outside.get((source.kind, source.key))
        return source if found is None else source.model_copy(update={"dtype": found})

    def _of(self, key: str) -> str:
        """The dtype of a product's operand."""
        outside = (dtype for (_, name), dtype in self._outside.items() if name == key)
        return self._stored.get(key) or next(outside, "float32")


def _as(output: Output, dtype: str) -> Output:
    return output.model_copy(update={"dtype": dtype})
