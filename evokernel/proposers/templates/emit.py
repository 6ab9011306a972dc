"""Owns the way from values of a program to C++ statements, in vector form and in scalar form.

The loop structures are the templates'. What they ask for, and where:

    addressing.parameters(program)               `const float* x, const float* scale, float* out`
    addressing.pointers(program)                 once per row: `const float* x_row = x + r * 4096;`
    emit.at_rest(program, program.before)        ROW and SCALAR: `const float scale_r = scale[r];`
    emit.elements(program, wanted, "vector")     `const V x_c = load(x_row + c);` ...
    emit.elements(..., count="n")                the same for a rest of `n < LANES` columns
    emit.store("vector", "out_row + c", name)    stores a value
    folds.Fold.of(program, reduction, "vector")  an accumulator: declare, step, merge, finish
    folds.carries(program, scans)                what a sweep with scans declares before it
    header.preamble(source)                      includes, and what `source` uses of vectormath.h

Both forms write the same names; `V` is a vector of `LANES` floats, `M` a mask, and a plain float
may stand wherever a `V` is expected. A ROW or SCALAR value goes by its `name`, a constant by its
literal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from evokernel.frozen import Frozen
from evokernel.proposers.templates.addressing import element, pointer
from evokernel.proposers.templates.domain import Inside
from evokernel.proposers.templates.expressions import (
    Constant,
    Level,
    Load,
    Map,
    Pick,
    Program,
    Reduce,
    Scan,
    Value,
    arguments,
)
from evokernel.proposers.templates.folds import Form, carry_type, combination
from evokernel.proposers.templates.literals import C_TYPES, literal
from evokernel.proposers.templates.operators import OPERATORS

_NESTED = 64
"""Longest expression, in characters, that is written into another one instead of getting a name."""


class Block(Frozen):
    """C++ statements and what their results are called."""

    lines: tuple[str, ...]
    """Without indentation."""
    names: dict[int, str]
    """Value index to the expression that stands for it after these lines: an identifier or a
    literal."""


def vector_problem(program: Program, values: Iterable[int] | None = None) -> str | None:
    """Why the vector form cannot express values; None if it can.

    Args:
        program: The program.
        values: Which values; None for all elements.
    """
    if values is None:
        found = [v for v in program.values if v.level is Level.ELEMENT]
    else:
        found = [program.values[i] for i in values]
    return next((problem for value in found if (problem := _problem(value))), None)


def _problem(value: Value) -> str | None:
    if value.dtype not in ("float32", "bool"):
        return f"`{value.name}` has dtype {value.dtype}"
    if isinstance(value, Map) and not OPERATORS[value.op].vector:
        return f"`{value.op}` has no vector form"
    if isinstance(value, Load) and not _is_straight(value):
        return f"`{value.name}` is read in an order that vectors do not have"
    return None


def store(
    form: Form,
    target: str,
    value: str,
    count: str = "",
    streaming: bool = False,
    step: int = 1,
) -> str:
    """A statement that stores one element or one vector.

    Args:
        form: `vector` stores `LANES` elements, `scalar` one.
        target: Pointer expression of the (first) element.
        value: What `Block.names` says.
        count: Vector form only: name of the number of elements of a rest.
        streaming: Vector form, floats only: bypass the caches; `target` must then be aligned to
            the vector, and `stream_fence()` must follow the loop.
        step: Distance between elements; -1 for a row that is written from its end.
    """
    if form == "scalar":
        return f"*({target}) = {value};"
    if step == -1:
        return f"{_call('store_back', [target, value], count)};"
    if streaming and not count:
        return f"stream({target}, {value});"
    return f"{_call('store', [target, value], count)};"


def within(program: Program, guard: Inside, row: str = "r", column: str = "c") -> str:
    """Whether a guard lets a row, line and column pass."""
    start = element(program.domain, guard.walk, row)
    index = place(start, column, guard.walk.step) if guard.walk.step else start
    return f"scalar::within({index}, {guard.size})"


def _is_straight(load: Load) -> bool:
    """Whether vectors can read it: floats in either direction, with one guard of columns."""
    access = load.access
    guarded = [g.walk.step for g in access.guards if g.walk.step]
    if load.dtype == "bool":
        return access.step in (0, 1) and not access.guards
    return guarded in ([], [1])


def place(base: str, column: str, step: int) -> str:
    """Pointer expression of a column of a row that begins at `base`."""
    if step in (0, 1):
        return f"{base} + {column}"
    alone = column if column.isidentifier() else f"({column})"
    return f"{base} - {alone}" if step == -1 else f"{base} + {alone} * {step}"


def _call(stem: str, args: list[str], count: str) -> str:
    """A call that moves a vector, or its first `count` lanes."""
    return f"{stem}_first({', '.join([*args, count])})" if count else f"{stem}({', '.join(args)})"


def elements(
    program: Program,
    wanted: Iterable[int],
    form: Form,
    *,
    known: Mapping[int, str] | None = None,
    column: str = "c",
    count: str = "",
) -> Block:
    """Statements for one step of a sweep.

    Args:
        program: The program.
        wanted: Values whose results are needed; those of lower levels pass through.
        form: `vector` for `LANES` columns from `column` on, `scalar` for one.
        known: Values that exist already (in a cache, from an earlier block) and their names.
        column: The loop variable.
        count: Vector form only: read just this many columns; the other lanes hold something.
    """
    return _Writer(program, form, dict(known or {}), column, count, "r").write(wanted)


def at_rest(
    program: Program,
    wanted: Iterable[int],
    *,
    known: Mapping[int, str] | None = None,
    row: str = "r",
) -> Block:
    """Statements for ROW and SCALAR values, in scalar form; reductions go by their names."""
    names = dict(known or {})
    for index, value in enumerate(program.values):
        if isinstance(value, Reduce):
            names.setdefault(index, value.name)
    return _Writer(program, "scalar", names, "c", "", row).write(wanted)


class _Writer:
    """Writes the statements of one block."""

    def __init__(
        self,
        program: Program,
        form: Form,
        names: dict[int, str],
        column: str,
        count: str,
        row: str,
    ) -> None:
        self._program = program
        self._form = form
        self._names = names
        self._column = column
        self._count = count
        self._row = row
        self._lines: list[str] = []
        self._uses: Counter[int] = Counter()
        self._nested: dict[int, tuple[str, int]] = {}

    def write(self, wanted: Iterable[int]) -> Block:
        wanted = tuple(wanted)
        resting = self._resting(wanted)
        order = self._program.closure(wanted, [*self._names, *resting])
        self._names.update({i: self._program.values[i].name for i in resting})
        self._uses.update(wanted)
        self._uses.update(wanted)  # Twice: what is wanted keeps a name of its own.
        for index in order:
            self._uses.update(arguments(self._program.values[index]))
        for index in order:
            self._value(index)
        return Block(lines=tuple(self._lines), names=dict(self._names))

    def _resting(self, wanted: tuple[int, ...]) -> list[int]:
        """Values that a sweep finds declared: those of lower levels, constants aside."""
        if all(self._program.values[i].level is not Level.ELEMENT for i in wanted):
            return []
        return [
            i
            for i, v in enumerate(self._program.values)
            if v.level is not Level.ELEMENT and not isinstance(v, Constant) and i not in self._names
        ]

    def _value(self, index: int) -> None:
        value = self._program.values[index]
        match value:
            case Constant():
                self._names[index] = literal(value.number, value.dtype)
            case Load():
                self._declare(index, self._load(value))
            case Pick():
                self._declare(index, self._pick(value))
            case Scan():
                self._scan(index, value)
            case Map():
                self._map(index, value)
            case Reduce():
                raise ValueError(f"the reduction `{value.name}` must be known before it is used")

    def _declare(self, index: int, text: str) -> None:
        value = self._program.values[index]
        self._lines.append(f"const {self._type(value.dtype)} {value.name} = {text};")
        self._names[index] = value.name

    def _type(self, dtype: str) -> str:
        if self._form == "scalar":
            return C_TYPES[dtype]
        return "M" if dtype == "bool" else "V"

    def _load(self, value: Load) -> str:
        text, known = self._read(value)
        outside = "0" if self._form == "scalar" else "V(0.0f)"
        for guard in value.access.guards:
            if guard != known:
                inside = within(self._program, guard, self._row, self._column)
                text = f"{inside} ? {text} : {outside}"
        return text

    def _read(self, value: Load) -> tuple[str, Inside | None]:
        """The load, and the guard that it looks after itself."""
        access = value.access
        if access.step == 0:
            source = self._program.sources[access.source]
            return f"{source.name}[{element(self._program.domain, access, self._row)}]", None
        base = pointer(self._program, access)
        where = place(base, self._column, access.step)
        if self._form == "scalar":
            return f"{base}[{self._column}]" if access.step == 1 else f"*({where})", None
        for guard in access.guards:
            if guard.walk.step:
                column = f"{element(self._program.domain, guard.walk, self._row)} + {self._column}"
                args = [where, column, str(guard.size), self._count or "LANES"]
                return f"load_inside<{access.step}>({', '.join(args)})", guard
        if access.step > 1:
            return f"load_apart<{access.step}>({where}, {self._count or 'LANES'})", None
        if access.step == -1:
            return _call("load_back", [where], self._count), None
        stem = "load_mask" if value.dtype == "bool" else "load"
        return _call(stem, [where], self._count), None

    def _pick(self, value: Pick) -> str:
        index = self._names[value.index]
        place = pointer(self._program, value.access)
        return f"{place}[{index} >= 0 && {index} < {self._program.domain.cols} ? {index} : 0]"

    def _scan(self, index: int, value: Scan) -> None:
        carry, arg = f"{value.name}_carry", self._operand(value.arg, "scan()", 0)
        kind, step = carry_type(value), combination(value.op, vector=False)
        if self._form == "scalar":
            self._lines.append(f"{carry} = {step.format(carry, f'{kind}({arg})')};")
            self._declare(index, f"static_cast<{C_TYPES[value.dtype]}>({carry})")
            return
        if self._program.domain.across:  # The lanes are columns, each with a carry of its own.
            both = combination(value.op, vector=True).format(carry, f"V({arg})")
            self._lines.append(f"{carry} = {both};")
            self._declare(index, f"narrow({carry})" if kind == "double" else carry)
            return
        if value.op == "prod":
            self._declare(index, f"running_product({carry}, {arg})")
            return
        inner = f"{value.name}_run"
        self._lines.append(f"const V {inner} = scan_{value.op}({arg});")
        before = f"V(static_cast<float>({carry}))"
        self._declare(index, combination(value.op, vector=True).format(before, inner))
        self._lines.append(f"{carry} = {step.format(carry, f'{kind}(last({inner}))')};")

    def _map(self, index: int, value: Map) -> None:
        operator = OPERATORS[value.op]
        template = operator.scalar if self._form == "scalar" else operator.vector
        if self._form == "vector" and value.op == "cast" and value.dtype == "bool":
            template = "{0} != 0.0f"
        args = [self._operand(a, template, i) for i, a in enumerate(value.args)]
        one = literal(1, value.dtype)
        text = template.format(*args, t=C_TYPES[value.dtype], one=one)
        cheap = operator.group in ("arithmetic", "comparison", "logic")
        if cheap and self._uses[index] == 1 and len(text) <= _NESTED:
            self._nested[index] = (text, _strength(template))
        else:
            self._declare(index, text)

    def _operand(self, index: int, template: str, place: int) -> str:
        """An argument as the template takes it, in parentheses where C++ would read it wrongly."""
        if index not in self._nested:
            return self._names[index]
        text, strength = self._nested[index]
        around = _strength(template)
        # From the left, equals need none: `a - b - c`; but `--a` would be another operator.
        leads = template.startswith(f"{{{place}}}")
        binds = strength > around or (strength == around < _PREFIX and leads)
        return text if binds or around == _CALL else f"({text})"


_PREFIX, _CALL = 8, 9
"""Strengths of an operator before its argument, and of what needs no parentheses at all."""


def _strength(template: str) -> int:
    """How tightly the outermost operator of a template binds; more is tighter."""
    if template[0] in "-!":
        return _PREFIX
    if template.endswith(")"):
        return _CALL
    signs = ("?", "||", "&&", "|", "^", "&", "!=", "==", "<", ">", "+", "-", "*", "/")
    strengths = (0, 1, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
    found = (n for sign, n in zip(signs, strengths, strict=True) if f" {sign}" in template)
    return next(found, _CALL)
