"""Owns `Written`: the Triton kernels of a candidate, and how they are launched in turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from evokernel.frozen import Frozen
from evokernel.proposers.templates.expressions import Output, Source

Number = int | str

STEP = "    "


class Operand(Frozen):
    """A tensor that a kernel takes."""

    name: str
    """Its parameter in the kernel."""
    kind: Literal["source", "output", "scratch"]
    key: str
    """Key of the tensor: of a source or a stored tensor, or the name of a scratch."""
    dtype: str


class Scratch(Frozen):
    """A tensor between kernels of one structure."""

    name: str
    size: str
    """Number of elements, a Python expression."""
    dtype: str


class Parameter(Frozen):
    """A number at the top of the module, which the harness may change."""

    name: str
    value: Number
    others: tuple[Number, ...] = ()
    """What else it may be."""


class Launch(Frozen):
    """One kernel and its launch."""

    kernel: str
    """Name of the function."""
    doc: str
    """What it does, one sentence."""
    operands: tuple[Operand, ...]
    numbers: tuple[tuple[str, str], ...] = ()
    """Numbers that it is told: parameter, and Python expression of the value."""
    constants: tuple[tuple[str, str], ...] = ()
    """Numbers that it is compiled for: parameter, and Python expression of the value."""
    grid: tuple[str, ...]
    """Python expressions."""
    options: tuple[tuple[str, str], ...] = ()
    """`num_warps` and `num_stages`, as Python expressions."""
    body: tuple[str, ...]
    """Lines, indented within the function."""

    @property
    def text(self) -> str:
        """The function."""
        names = [o.name for o in self.operands] + [name for name, _ in self.numbers]
        names += [f"{name}: tl.constexpr" for name, _ in self.constants]
        head = wrapped(f"def {self.kernel}(", names, "):")
        body = [f'{STEP}"""{self.doc}"""', *(STEP + line for line in self.body)]
        return "\n".join(["@triton.jit", *head, *body, ""])


class Written(Frozen):
    """Everything that a structure needs in the module."""

    launches: tuple[Launch, ...]
    scratches: tuple[Scratch, ...] = ()
    constants: tuple[Parameter, ...] = ()


def renamed(
    written: Written, constants: Mapping[str, str], scratches: Mapping[str, str]
) -> Written:
    """The same with other names at the top of the module and in `forward`; kernels stay."""

    def text(expression: str) -> str:
        return re.sub(r"\w+", lambda word: constants.get(word[0], word[0]), expression)

    def pairs(found: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, text(value)) for name, value in found)

    def operand(one: Operand) -> Operand:
        is_scratch = one.kind == "scratch"
        return one.model_copy(update={"key": scratches[one.key]}) if is_scratch else one

    launches = [
        one.model_copy(
            update={
                "operands": tuple(operand(o) for o in one.operands),
                "numbers": pairs(one.numbers),
                "constants": pairs(one.constants),
                "options": pairs(one.options),
                "grid": tuple(text(part) for part in one.grid),
            }
        )
        for one in written.launches
    ]
    return Written(
        launches=tuple(launches),
        scratches=tuple(
            s.model_copy(update={"name": scratches[s.name], "size": text(s.size)})
            for s in written.scratches
        ),
        constants=tuple(
            c.model_copy(update={"name": constants.get(c.name, c.name)}) for c in written.constants
        ),
    )


def wrapped(head: str, parts: Sequence[str], tail: str, width: int = 100) -> list[str]:
    """A call or signature on one line, or with its parts on lines of their own if it is long."""
    line = head + ", ".join(parts) + tail
    if len(line) <= width:
        return [line]
    lines, current = [head], ""
    for part in parts:
        piece = f"{part}, "
        if len(STEP + current + piece) > width and current:
            lines.append(STEP + current.rstrip())
            current = ""
        current += piece
    indent = head[: len(head) - len(head.lstrip())]
    return [
        lines[0],
        *(indent + line for line in lines[1:]),
        f"{indent}{STEP}{current.rstrip()}",
        indent + tail,
    ]


def source_operands(sources: Iterable[Source]) -> list[Operand]:
    """The tensors that a program reads."""
    return [Operand(name=s.name, kind="source", key=s.key, dtype=s.dtype) for s in sources]


def output_operand(output: Output, key: str) -> Operand:
    """A tensor that a program writes."""
    return Operand(name=output.name, kind="output", key=key, dtype=output.dtype)


class Text:
    """Lines of a function's body, indented by blocks."""

    def __init__(self) -> None:
        """Begin without lines."""
        self._lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        """Write lines at the present depth."""
        self._lines += [STEP * self._depth + line if line else "" for line in lines]

    def begin(self, head: str) -> None:
        """Write the head of a block; what follows is inside of it."""
        self.add(head)
        self._depth += 1

    def end(self) -> None:
        """End the block."""
        self._depth -= 1

    @property
    def lines(self) -> tuple[str, ...]:
        """What was written."""
        return tuple(self._lines)


class Extent(Frozen):
    """How many rows a program has when it is called."""

    rows: str
    """Python expression of the number of rows."""
    is_free: bool = False
    """Whether it may differ from call to call."""
