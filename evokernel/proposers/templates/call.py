"""Owns `Call`: the body of `forward` as far as it is the same in every language."""

from functools import cached_property

from evokernel.frozen import Frozen
from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program, Source, Unsupported
from evokernel.proposers.templates.reference import Reference
from evokernel.task import Task


def fixed_arguments(task: Task, graph: OpGraph, reference: Reference) -> dict[str, str]:
    """Arguments that are no tensors: the graph was captured with their values.

    Raises:
        Unsupported: `forward` takes tensors inside of a list or dictionary.
    """
    seen = {int(node.op) for node in graph.inputs}
    if seen == set(range(len(reference.names))):
        return {}
    inputs = task.program().make_inputs()
    if any(isinstance(value, list | tuple | dict) for value in inputs):
        raise Unsupported("`forward` takes tensors inside of a list or dictionary")
    return {
        reference.argument(position) or "": repr(value)
        for position, value in enumerate(inputs)
        if isinstance(value, bool | int | float | str | None)
    }


class Call(Frozen):
    """The body of `forward` as far as it is the same for every backend."""

    reference: Reference
    graph: OpGraph
    program: Program | Pipeline
    fixed: dict[str, str]
    """Arguments that are no tensors, with the only value that the kernel is for."""

    @property
    def domain(self) -> str:
        """What was verified, in words."""
        parts = [
            f"`{source.name}` {source.dtype} {self._shape_text(source, '*')}"
            for source in self.program.sources
            if source.kind == "input"
        ]
        return ", ".join(parts) or "its parameters as they are"

    @property
    def checks(self) -> list[str]:
        """Statements that refuse other arguments than the verified ones, and name the rest."""
        lines: list[str] = []
        for name, value in self.fixed.items():
            lines.append(f"if {name} != {value}:")
            lines.append(f'    raise ValueError(f"`{name}` must be {value}; got {{{name}!r}}")')
        if self.free:
            lines.append(f"{self._rows} = {self._input(self.free[0])}.shape[0]")
        operand = self.reference.free("operand")
        for source, name in zip(self.program.sources, self.operands, strict=True):
            shape, dtype = self._shape_text(source, self._rows), f"torch.{source.dtype}"
            place = self._place(source)
            lines.append(
                f'{name} = {operand}("{source.key if source.kind != "input" else place}", '
                f"{place}, {shape}, {dtype})"
            )
        return lines

    def allocations(self, where: str = "") -> list[str]:
        """Statements that make the outputs; `where` is a device as a keyword argument."""
        lines = []
        for output, name in zip(self.program.outputs, self.results, strict=True):
            shape = _tuple_text(output.shape, self._rows if self.free else None)
            device = f", {where}" if where else ""
            lines.append(f"{name} = torch.empty({shape}, dtype=torch.{output.dtype}{device})")
        return lines

    @property
    def operands(self) -> list[str]:
        """Names of the checked tensors, in the order of the sources."""
        return [self.reference.free(f"{source.name}_") for source in self.program.sources]

    @property
    def results(self) -> list[str]:
        """Names of the outputs."""
        return [self.reference.free(f"{output.name}_") for output in self.program.outputs]

    @property
    def rows(self) -> str:
        """Name of the number of rows of the first dimension; empty where it is fixed."""
        return self._rows if self.free else ""

    def count(self, name: str) -> str:
        """The program's `rows` or `cols` in Python."""
        count = {"rows": self.program.domain.rows, "cols": self.program.domain.cols}[name]
        each = count // self._first_size if self.free else count
        return str(count) if not self.free else _product(self._rows, each)

    @property
    def _rows(self) -> str:
        return self.reference.free("rows_")

    @cached_property
    def _first_size(self) -> int:
        return self.program.outputs[0].shape[0]

    @cached_property
    def free(self) -> tuple[Source, ...]:
        """Inputs whose number of rows may differ from call to call; empty if none may."""
        return free_inputs(self.program, self.graph)

    def _shape_text(self, source: Source, rows: str) -> str:
        return _tuple_text(source.shape, rows if source in self.free else None)

    def _place(self, source: Source) -> str:
        return self._input(source) if source.kind == "input" else _attribute(source.key)

    def _input(self, source: Source) -> str:
        place = self.reference.argument(int(source.key))
        if place is None:
            raise Unsupported(f"`forward` takes its input {source.key} inside of a list")
        return place


def free_inputs(program: Program | Pipeline, graph: OpGraph) -> tuple[Source, ...]:
    """Inputs whose number of rows may differ from call to call; empty if none may."""
    positions = graph.row_inputs or ()
    if program.domain.across and not program.domain.outer:
        return ()
    moving = tuple(s for s in program.sources if s.kind == "input" and int(s.key) in positions)
    if isinstance(program, Pipeline):
        return moving if program.moving else ()
    shapes = [*(s.shape for s in moving), *(o.shape for o in program.outputs)]
    heads = {shape[:1] for shape in shapes}
    if not moving or len(heads) != 1 or heads <= {(), (0,), (1,)}:
        return ()
    fixed = [n for n, s in enumerate(program.sources) if s not in moving]
    return () if any(program.walks_rows(n) for n in fixed) else moving


def _tuple_text(shape: tuple[int, ...], first: str | None) -> str:
    sizes = [str(size) for size in shape]
    if first is not None:
        sizes[0] = first
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _attribute(path: str) -> str:
    """Python that reaches a parameter by its qualified name."""
    text = "self"
    for part in path.split("."):
        if part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{part}]" if part.isdigit() else f"[{part!r}]"
    return text


def _product(name: str, factor: int) -> str:
    return name if factor == 1 else f"{name} * {factor}"
