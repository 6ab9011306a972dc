"""Owns sweeps that do two dependent reductions at once: online softmax, and moments by merging."""

from collections.abc import Iterable, Mapping

from evokernel.proposers.templates import emit
from evokernel.proposers.templates.expressions import Map, Program, Reduce, arguments
from evokernel.proposers.templates.kernel import Resting
from evokernel.proposers.templates.lines import Lines
from evokernel.proposers.templates.sweep import Span, Work, buffer, prefetches
from evokernel.proposers.templates.works import Pair

_ONLINE = """const V old_ = {first}_lanes_;
{first}_lanes_ = maximum(old_, most_);
const V low_ = select(isinf({first}_lanes_), 0.0f, {first}_lanes_);
const V scale_ = select(isinf(old_), {second}_lanes_, {second}_lanes_ * {exp}(old_ - low_));"""
"""A lane's sum is relative to its maximum so far, or to 0 while that is infinite: a sum of nothing
stays 0, and one with an infinite part stays as it is."""

_MOMENTS = """const V shift_ = near_ - mean_lanes_;
const V share_ = {number} / (seen_ + {number});
mean_lanes_ = mean_lanes_ + shift_ * share_;
square_lanes_ = square_lanes_ + square_ + shift_ * shift_ * (seen_ * share_);
seen_ = seen_ + {number};"""
"""Merges a block into what was seen before, by the rule for means and squared deviations of two
samples: Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983."""


class MergedWriter:
    """Writes the sweep of a pair, and the values of both reductions."""

    def __init__(
        self, program: Program, both: Pair, unroll: int, text: Lines, rest: Resting
    ) -> None:
        self._program = program
        self._pair = both
        self._number = unroll
        self._text = text
        self._rest = rest
        self._first = program.values[both.first].name
        self._second = program.values[both.second].name
        top = program.values[arguments(program.values[both.second])[0]]
        self._exp = top.op if isinstance(top, Map) else ""
        self._known: dict[int, str] = {}

    def begin(self) -> None:
        """Declare what the lanes have seen so far."""
        if self._pair.kind == "online":
            self._text.add(
                f"V {self._first}_lanes_ = -std::numeric_limits<float>::infinity();",
                f"V {self._second}_lanes_ = 0.0f;",
            )
        else:
            self._text.add("V mean_lanes_ = 0.0f, square_lanes_ = 0.0f, seen_ = 0.0f;")

    def lines(self, work: Work, span: Span, known: Mapping[int, str] | None = None) -> None:
        """Write the loops over one line of columns; `known` are its values with names already."""
        self._known = dict(known or {})
        with self._text.block():
            self._text.add(f"int64_t c = {span.begin};")
            step = f"{self._number} * LANES" if self._number > 1 else "LANES"
            with self._text.block(f"for (; c + {step} <= {span.end}; c += {step})"):
                self._text.extend(prefetches(self._program, work, self._number))
                self._block(work)
            with self._text.block(f"for (; c < {span.end}; c += LANES)"):
                self._last(work, span)

    def finish(self, work: Work) -> None:
        """Write both values, and what is computed between them."""
        if self._pair.kind == "online":
            self._online_values(work)
        else:
            self._moment_values(work)

    def _block(self, work: Work) -> None:
        number = self._number
        self._text.add(f"V part_[{number}];", f"#pragma GCC unroll {number}")
        with self._text.block(f"for (int u_ = 0; u_ < {number}; ++u_)"):
            block = emit.elements(
                self._program,
                work.elements,
                "vector",
                known=self._known,
                column="c + u_ * LANES",
            )
            name = block.names[self._pair.element]
            self._text.extend(block.lines)
            self._text.extend(self._keeps(work, "c + u_ * LANES", name))
            self._text.add(f"part_[u_] = {name};")
        self._text.extend(self._online() if self._pair.kind == "online" else self._moments())

    def _keeps(self, work: Work, column: str, name: str) -> Iterable[str]:
        for value in work.keep:
            yield f"store({buffer(self._program, value)} + {column}, {name});"

    def _online(self) -> Iterable[str]:
        each = f"for (int u_ = {{}}; u_ < {self._number}; ++u_)"
        yield "V most_ = part_[0];"
        value = self._program.values[self._pair.first]
        larger = "maximum" if isinstance(value, Reduce) and value.op == "max" else "fast_max"
        yield f"{each.format(1)} most_ = {larger}(most_, part_[u_]);"
        yield from self._filled(_ONLINE)
        yield "V sum_ = 0.0f;"
        yield f"#pragma GCC unroll {self._number}"
        yield f"{each.format(0)} sum_ = sum_ + {self._exp}(part_[u_] - low_);"
        yield f"{self._second}_lanes_ = scale_ + sum_;"

    def _moments(self) -> Iterable[str]:
        each = f"for (int u_ = {{}}; u_ < {self._number}; ++u_)"
        yield "V near_ = part_[0];"
        yield f"{each.format(1)} near_ = near_ + part_[u_];"
        yield f"near_ = near_ * {1 / self._number}f;"
        yield "V square_ = 0.0f;"
        square = "square_ = square_ + (part_[u_] - near_) * (part_[u_] - near_);"
        yield f"{each.format(0)} {square}"
        yield from self._filled(_MOMENTS)

    def _filled(self, text: str) -> list[str]:
        number = f"{self._number}.0f"
        return text.format(
            first=self._first, second=self._second, number=number, exp=self._exp
        ).split("\n")

    def _last(self, work: Work, span: Span) -> None:
        """One vector at a time, the last one perhaps in part."""
        self._text.add(f"const int n = {span.end} - c < LANES ? {span.end} - c : LANES;")
        block = emit.elements(self._program, work.elements, "vector", known=self._known, count="n")
        name = block.names[self._pair.element]
        self._text.extend(block.lines)
        self._text.extend(self._keeps(work, "c", name))
        if self._pair.kind == "online":
            nothing = "-std::numeric_limits<float>::infinity()"
            self._text.add(f"const V most_ = select(first(n), {name}, {nothing});")
            self._text.extend(self._filled(_ONLINE))
            self._text.add(f"{self._second}_lanes_ = scale_ + {self._exp}(most_ - low_);")
            return
        self._text.add(
            f"const V shift_ = select(first(n), {name} - mean_lanes_, 0.0f);",
            "const V share_ = 1.0f / (seen_ + 1.0f);",
            "mean_lanes_ = mean_lanes_ + shift_ * share_;",
            "square_lanes_ = square_lanes_ + shift_ * shift_ * (seen_ * share_);",
            "seen_ = seen_ + select(first(n), 1.0f, 0.0f);",
        )

    def _online_values(self, work: Work) -> None:
        base = self._program.values[self._pair.base].name
        first, second = f"{self._first}_lanes_", f"{self._second}_lanes_"
        self._text.add(f"const float {self._first} = reduce_max({first});")
        self._rest.declare(work.between)
        self._text.add(
            f"const V low_ = select(isinf({first}), 0.0f, {first});",
            f"const M empty_ = ({first} < low_) & M({base} > {first});",
            f"{second} = select(empty_, 0.0f, {second} * {self._exp}(low_ - {base}));",
            f"const float {self._second} = reduce_sum({second});",
        )

    def _moment_values(self, work: Work) -> None:
        base = self._program.values[self._pair.base].name
        self._text.add(f"const float {self._first} = reduce_sum(seen_ * mean_lanes_);")
        self._rest.declare(work.between)
        self._text.add(
            f"const V away_ = mean_lanes_ - {base};",
            f"const float {self._second} = reduce_sum(square_lanes_ + seen_ * (away_ * away_));",
        )
