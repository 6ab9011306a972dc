"""Owns attention as one Triton kernel: scores, softmax and weighted values block by block.

Three stages are attention if the first one's product is read by a softmax along its rows alone, and
the second product has these weights on its left. A program holds a block of queries; it sweeps over
the keys with a running maximum and a sum relative to it (Dao et al. 2022, "FlashAttention").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evokernel.frozen import Frozen
from evokernel.proposers.templates.choices import Choice
from evokernel.proposers.templates.choices import Value as Chosen
from evokernel.proposers.templates.contraction import Contraction, Fused, Matrix, Pipeline, Stage
from evokernel.proposers.templates.expressions import (
    Constant,
    Map,
    Program,
    Value,
    arguments,
)
from evokernel.proposers.templates.triton.frame import operands, power
from evokernel.proposers.templates.triton.kernel import (
    Extent,
    Launch,
    Operand,
    Parameter,
    Text,
    Written,
)
from evokernel.proposers.templates.triton.looped import exponential, finite
from evokernel.proposers.templates.triton.products import LEAST
from evokernel.proposers.templates.triton.resting import store_elements
from evokernel.proposers.templates.triton.shortening import as_chosen
from evokernel.proposers.templates.triton.sizes import constants, number
from evokernel.proposers.templates.triton.spelling import HALF, TYPES
from evokernel.proposers.templates.triton.statements import Statements
from evokernel.proposers.templates.triton.tile import Tile, needs_wide, terms
from evokernel.proposers.templates.works import Pair, pair

_WIDEST = 256
"""Width of a head up to which a program holds whole queries and results (ours)."""


class Attention(Frozen):
    """Three stages that one kernel can do."""

    scores: Contraction
    softmax: Fused
    values: Contraction
    both: Pair
    """Of the softmax."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that it stands for."""
        return (self.scores, self.softmax, self.values)


def found(pipeline: Pipeline) -> Attention | None:
    """The attention of a pipeline, if it has one."""
    for values in pipeline.contractions:
        softmax = _writer(pipeline, values.left.key)
        if not isinstance(softmax, Fused):
            continue
        products = [_writer(pipeline, key) for key in softmax.reads]
        scores = [stage for stage in products if isinstance(stage, Contraction)]
        both = pair(softmax.program)
        if len(scores) != 1 or both is None:
            continue
        one = Attention(scores=scores[0], softmax=softmax, values=values, both=both)
        if _fits(pipeline, one):
            return one
    return None


def _writer(pipeline: Pipeline, key: str) -> Stage | None:
    return next((stage for stage in pipeline.stages if stage.writes == key), None)


def _fits(pipeline: Pipeline, one: Attention) -> bool:
    scores, softmax, values = one.scores, one.softmax, one.values
    between = {scores.writes, softmax.writes}
    readers = [s for s in pipeline.stages if between & set(s.reads)]
    alone = len(readers) == 2 and not between & set(pipeline.results)
    matrices = isinstance(scores.right, Matrix) and isinstance(values.right, Matrix)
    sizes = (
        scores.batch == values.batch
        and scores.rows == values.rows
        and values.depth == scores.cols == softmax.program.domain.cols
        and max(scores.depth, values.cols) <= _WIDEST
    )
    grid = not softmax.program.domain.depth and softmax.program.kind == "rows"
    lying = values.left.down == scores.cols and values.left.across == 1 and not values.left.offset
    reads_once = softmax.reads.count(scores.writes) == 1
    simple = len(scores.program.outputs) == len(softmax.program.outputs) == 1
    counted = bool(scores.batch) or not pipeline.moving  # queries themselves are not free
    fits = counted and alone and matrices and sizes and grid and lying and reads_once and simple
    return fits and one.both.kind == "online" and _is_softmax(softmax.program, one.both)


def _is_softmax(program: Program, both: Pair) -> bool:
    """Whether the result is exponentials over their sum, perhaps zero where there is no score."""
    if both.base != both.first:
        return False
    result: Value | None = program.values[program.outputs[0].value]
    if isinstance(result, Map) and result.op == "where":
        result = _with_zeros(program, both, result)
    if not isinstance(result, Map) or result.op != "mul":
        return False
    exps, scale = result.args[0], program.values[result.args[1]]
    is_scale = isinstance(scale, Map) and scale.op == "reciprocal" and scale.args == (both.second,)
    return is_scale and exps == arguments(program.values[both.second])[0]


def _with_zeros(program: Program, both: Pair, result: Map) -> Value | None:
    """What `where(score == -inf, 0, weights)` is beside zero; None for another choice."""
    lost, zero, weights = (program.values[i] for i in result.args)
    if not isinstance(lost, Map) or lost.op != "eq" or lost.args[0] != both.element:
        return None
    other = program.values[lost.args[1]]
    is_lost = isinstance(other, Constant) and other.number == -math.inf
    return weights if is_lost and isinstance(zero, Constant) and zero.number == 0 else None


def choices(one: Attention, dtypes: Mapping[str, str]) -> tuple[Choice, ...]:
    """What can be chosen."""
    is_half = all(dtypes[key] in HALF for key in (one.scores.left.key, one.values.right.key))
    rows, cols = (128, 64) if is_half else (64, 32)
    return (
        number("queries", rows, (64, 128) if is_half else (32, 128), "output-blocking"),
        number("keys", cols, (32, 64, 128) if is_half else (16, 64), "cache-blocking"),
        number("attention_warps", 8 if is_half else 4, (4, 8)),
        number("attention_stages", 2, (1, 3, 4), "software-pipelining"),
    )


_NAMES = ("QUERIES", "KEYS", "ATTENTION_WARPS", "ATTENTION_STAGES")


def written(
    one: Attention,
    chosen: Mapping[str, Chosen],
    dtypes: Mapping[str, str],
    name: str,
    extent: Extent,
    precision: str,
) -> Written:
    """Write the kernel; see `ProductWriter`."""
    writer = _Writer(one, chosen, dtypes, extent, precision)
    numbers = constants(choices(one, dtypes), chosen, _NAMES)
    return Written(launches=(writer.write(name, numbers),), constants=numbers)


class _Writer:
    """Writes one kernel."""

    def __init__(
        self,
        one: Attention,
        chosen: Mapping[str, Chosen],
        dtypes: Mapping[str, str],
        extent: Extent,
        precision: str,
    ) -> None:
        self._one = one
        stages = (one.scores, one.softmax, one.values)
        programs = apart([as_chosen(stage.program, chosen) for stage in stages])
        self._before, self._softmax, self._after = programs
        self._dtypes = dtypes
        self._extent = extent
        self._precision = precision
        self._text = Text()
        domains = (self._before.domain, self._after.domain)
        self._wide = any(needs_wide(domain, extent.is_free) for domain in domains)

    def write(self, name: str, numbers: Sequence[Parameter]) -> Launch:
        one, text = self._one, self._text
        depth, width = (max(LEAST, power(n)) for n in (one.scores.depth, one.values.cols))
        rows = one.scores.rows
        text.add(f"blocks_ = tl.cdiv({rows}, QUERIES)", "item_ = tl.program_id(0) // blocks_")
        wide = ".to(tl.int64)" if self._wide else ""
        if wide:
            text.add(f"item_ = item_{wide}")
        text.add("m_ = tl.program_id(0) % blocks_ * QUERIES + tl.arange(0, QUERIES)")
        text.add(f"has_row_ = (m_ < {rows})[:, None]", f"r = (item_ * {rows} + m_)[:, None]")
        text.add(f"d = tl.arange(0, {depth})", f"e_ = tl.arange(0, {width})")
        self._queries()
        text.add(
            'top_ = tl.full([QUERIES, 1], -float("inf"), tl.float32)',
            "total_ = tl.zeros([QUERIES, 1], tl.float32)",
            f"mixed_ = tl.zeros([QUERIES, {width}], tl.float32)",
        )
        self._loop()
        result = self._softmax.values[self._softmax.outputs[0].value]
        is_zero = isinstance(result, Map) and result.op == "where"
        mean = "mixed_ / total_"
        text.add(f"product_ = {f'tl.where(total_ == 0.0, 0.0, {mean})' if is_zero else mean}")
        self._store(width)
        return self._launch(name, numbers)

    def _place(self, matrix: Matrix, name: str, offset: bool = True) -> str:
        batch = self._one.scores.batch
        parts = [name, *terms("item_", batch, matrix.batch, self._wide)]
        if matrix.offset and offset:
            parts.append(str(matrix.offset))
        return " + ".join(parts)

    def _queries(self) -> None:
        left, depth = self._one.scores.left, self._one.scores.depth
        mask = (
            "has_row_" if power(depth) == depth >= LEAST else f"has_row_ & (d < {depth})[None, :]"
        )
        place = f"{self._place(left, 'query_')} + m_[:, None] * {left.down}"
        self._text.add(
            f"queries_ = tl.load({place} + d[None, :] * {left.across}, mask={mask}, other=0.0)"
        )

    def _loop(self) -> None:
        scores, values, text = self._one.scores, self._one.values, self._text
        keys, right = scores.right, values.right
        assert isinstance(keys, Matrix)
        assert isinstance(right, Matrix)
        text.begin(f"for start_ in range(0, {scores.cols}, KEYS):")
        text.add("n = start_ + tl.arange(0, KEYS)")
        exact = scores.cols % 128 == 0
        text.add(f"has_column_ = (n < {scores.cols})[None, :]")
        masks = [*["has_column_"] * (not exact)]
        if not power(scores.depth) == scores.depth >= LEAST:
            masks.append(f"(d < {scores.depth})[:, None]")
        place = f"{self._place(keys, 'key_')} + d[:, None] * {keys.down}"
        text.add(self._load("keys_", f"{place} + n[None, :] * {keys.across}", masks))
        text.add(f"product_ = {self._dot('queries_', 'keys_', scores.left.key, keys.key)}")
        score = self._score(exact)
        text.add(f"new_ = {self._larger(f'tl.max({score}, 1, keep_dims=True)')}")
        text.add(f"low_ = {finite('new_')}")
        text.add(f"weights_ = {self._exp(f'({score} - low_)')}")
        text.add(f"scale_ = {self._exp('(top_ - low_)')}")
        text.add("total_ = total_ * scale_ + tl.sum(weights_, 1, keep_dims=True)", "top_ = new_")
        masks = [*[f"(n < {scores.cols})[:, None]"] * (not exact)]
        if not power(values.cols) == values.cols >= LEAST:
            masks.append(f"(e_ < {values.cols})[None, :]")
        place = f"{self._place(right, 'value_')} + n[:, None] * {right.down}"
        text.add(self._load("values_", f"{place} + e_[None, :] * {right.across}", masks))
        self._mix(right.key)
        text.end()

    def _larger(self, other: str) -> str:
        return f"tl.maximum(top_, {other})"

    def _load(self, name: str, place: str, masks: list[str]) -> str:
        mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
        return f"{name} = tl.load({place}{mask})"

    def _dot(self, one: str, two: str, *keys: str) -> str:
        dtypes = [self._dtypes[key] for key in keys]
        if dtypes[0] == dtypes[1] and dtypes[0] in HALF:
            return f"tl.dot({one}, {two})"
        if dtypes[0] != dtypes[1]:
            one, two = f"{one}.to(tl.float32)", f"{two}.to(tl.float32)"
        return f'tl.dot({one}, {two}, input_precision="{self._precision}")'

    def _mix(self, key: str) -> None:
        dtype, names = self._dtypes[key], ["weights_", "values_"]
        how = f', input_precision="{self._precision}"'
        if dtype in HALF:
            names[0], how = f"weights_.to({TYPES[dtype]})", ""
        self._text.add(f"mixed_ = tl.dot({names[0]}, {names[1]}, mixed_ * scale_{how})")

    def _exp(self, argument: str) -> str:
        return exponential(self._softmax, self._one.both, argument)

    def _tile(self, program: Program, column: str, sizes: tuple[str, str], mask: str) -> Tile:
        return Tile(
            shape="rows",
            domain=program.domain,
            row="r",
            inner=column,
            kept_mask="has_row_",
            inner_mask=mask,
            sizes=sizes,
            wide=self._wide,
        )

    def _score(self, exact: bool) -> str:
        """Write what becomes of a block of scores up to the softmax."""
        sizes, mask = ("QUERIES", "KEYS"), "" if exact else "has_column_"
        before = Statements(
            self._before, self._tile(self._before, "n[None, :]", sizes, mask), self._text
        )
        before.known[self._one.scores.value] = "product_"
        name = before.name(self._before.outputs[0].value)
        inside = Statements(
            self._softmax, self._tile(self._softmax, "n[None, :]", sizes, mask), self._text
        )
        keys = [source.key for source in self._softmax.sources]
        for index, value in enumerate(self._softmax.values):
            if value.kind == "load" and keys[value.access.source] == self._one.scores.writes:
                inside.known[index] = name
        name = inside.name(self._one.both.element)
        if exact:
            return name
        self._text.add(f'score_ = tl.where(has_column_, {name}, -float("inf"))')
        return "score_"

    def _store(self, width: int) -> None:
        cols = self._one.values.cols
        tile = self._tile(self._after, "e_[None, :]", ("QUERIES", str(width)), "")
        if width != cols:
            self._text.add(f"has_result_ = (e_ < {cols})[None, :]")
            tile = tile.model_copy(update={"inner_mask": "has_result_"})
        statements = Statements(self._after, tile, self._text)
        statements.known[self._one.values.value] = "product_"
        store_elements(statements, tuple(range(len(self._after.outputs))))

    def _launch(self, name: str, numbers: Sequence[Parameter]) -> Launch:
        one, body = self._one, self._text.lines
        sides = {
            "query_": one.scores.left.key,
            "key_": one.scores.right.key,
            "value_": one.values.right.key,
        }
        found = [
            Operand(name=side, kind="source", key=key, dtype=self._dtypes[key])
            for side, key in sides.items()
        ]
        hidden = {one.scores.product, one.scores.writes, one.values.product}
        for program in (self._before, self._softmax):
            sources = operands(program, ["" for _ in program.outputs], body)
            found += [o for o in sources if o.key not in hidden and o.kind == "source"]
        after = operands(self._after, [one.values.writes], body)
        found += [o for o in after if o.kind == "output" or o.key not in hidden]
        return Launch(
            kernel=name,
            doc="Holds a block of queries and sweeps over keys and values.",
            operands=tuple({o.name: o for o in found}.values()),
            constants=tuple((c.name, c.name) for c in numbers if c.name in ("QUERIES", "KEYS")),
            grid=(f"triton.cdiv({one.scores.rows}, QUERIES) * {self._items}",),
            options=(("num_warps", "ATTENTION_WARPS"), ("num_stages", "ATTENTION_STAGES")),
            body=body,
        )

    @property
    def _items(self) -> str:
        return self._extent.rows


def apart(programs: Sequence[Program]) -> list[Program]:
    """The programs with another name for each tensor, for one kernel that reads them all."""
    names: dict[str, str] = {}
    found = []
    for program in programs:
        sources = []
        for source in program.sources:
            name = next((n for n, key in names.items() if key == source.key), source.name)
            while names.setdefault(name, source.key) != source.key:
                name = f"{name}_"
            sources.append(source.model_copy(update={"name": name}))
        found.append(
            Program(
                domain=program.domain,
                sources=tuple(sources),
                values=program.values,
                outputs=program.outputs,
            )
        )
    return found
