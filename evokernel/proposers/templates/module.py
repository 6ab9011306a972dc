"""Owns the Python text of a candidate: the reference's class, the kernel, and `ModelNew`."""

import re
from functools import cached_property

from evokernel.frozen import Frozen
from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program, Source, Unsupported
from evokernel.proposers.templates.kernel import Kernel
from evokernel.proposers.templates.reference import Reference
from evokernel.task import Task

_TEXT = '''"""{title}: one fused C++ kernel, written by EvoKernel's templates.

Techniques: {techniques}.
Verified for {domain}.
"""
{plan}

# The reference, unchanged: its constructor and parameters serve the kernel too.
{reference}


# The kernel.
{imports}

{cpp_source} = r"""
{kernel}"""

{kernels} = cpp_module({cpp_source})


def {operand}(name, tensor, shape, dtype):
    """Refuse what the kernel was not verified for; give the rest contiguous."""
    if tensor.device.type != "cpu" or tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(
            f"`{{name}}` must be a CPU tensor of {{dtype}} and shape {{shape}}; "
            f"got {{tensor.dtype}} and {{tuple(tensor.shape)}} on {{tensor.device}}"
        )
    return tensor.contiguous()


class ModelNew(Model):
    """`Model` with `forward` as one kernel; results carry no gradient."""

    def forward({signature}):
{body}
'''


def write_module(
    task: Task,
    graph: OpGraph,
    program: Program | Pipeline,
    plan: Plan,
    kernel: Kernel,
    techniques: tuple[str, ...] = (),
) -> str:
    """Write a candidate.

    Args:
        task: The task; its file's text goes into the candidate.
        graph: Its operator graph.
        program: The fused program of the graph.
        plan: How the kernel was written; the text carries it.
        kernel: The program's kernel.
        techniques: Names of the plan's techniques.

    Raises:
        Unsupported: an input is nested in a way that the graph does not tell.
    """
    reference = Reference(source=task.source)
    fixed = fixed_arguments(task, graph, reference)
    call = _Call(reference=reference, graph=graph, program=program, kernel=kernel, fixed=fixed)
    return _TEXT.format(
        **{name.lower(): reference.free(name) for name in ("CPP_SOURCE", "kernels", "operand")},
        title=task.title.replace('"""', "'''").replace("\\", "\\\\"),
        techniques=", ".join(techniques) or "none, the plain way",
        domain=call.domain,
        plan=plan.line,
        reference=reference.model,
        imports=_imports(reference.model),
        kernel=kernel.source,
        signature=reference.signature,
        body="\n".join(f"        {line}" for line in call.statements),
    )


def _imports(model: str) -> str:
    has_torch = re.search(r"^import torch$", model, re.MULTILINE)
    own = "from evokernel.jit import cpp_module"
    return own if has_torch else f"import torch\n\n{own}"


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
        if self._free:
            lines.append(f"{self._rows} = {self._input(self._free[0])}.shape[0]")
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
            shape = _tuple_text(output.shape, self._rows if self._free else None)
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
        return self._rows if self._free else ""

    def count(self, name: str) -> str:
        """The program's `rows` or `cols` in Python."""
        count = {"rows": self.program.domain.rows, "cols": self.program.domain.cols}[name]
        each = count // self._first_size if self._free else count
        return str(count) if not self._free else _product(self._rows, each)

    @property
    def _rows(self) -> str:
        return self.reference.free("rows_")

    @cached_property
    def _first_size(self) -> int:
        return self.program.outputs[0].shape[0]

    @cached_property
    def _free(self) -> tuple[Source, ...]:
        """Inputs whose number of rows may differ from call to call; empty if none may."""
        program, positions = self.program, self.graph.row_inputs or ()
        if program.domain.across and not program.domain.outer:
            return ()
        moving = tuple(s for s in program.sources if s.kind == "input" and int(s.key) in positions)
        shapes = [*(s.shape for s in moving), *(o.shape for o in program.outputs)]
        if isinstance(program, Pipeline):
            return moving if program.moving else ()
        heads = {shape[:1] for shape in shapes}
        if not moving or len(heads) != 1 or heads <= {(), (0,), (1,)}:
            return ()
        fixed = [n for n, s in enumerate(program.sources) if s not in moving]
        return () if any(program.walks_rows(n) for n in fixed) else moving

    def _shape_text(self, source: Source, rows: str) -> str:
        return _tuple_text(source.shape, rows if source in self._free else None)

    def _place(self, source: Source) -> str:
        return self._input(source) if source.kind == "input" else _attribute(source.key)

    def _input(self, source: Source) -> str:
        place = self.reference.argument(int(source.key))
        if place is None:
            raise Unsupported(f"`forward` takes its input {source.key} inside of a list")
        return place


class _Call(Call):
    """The body of `forward` around one C++ function."""

    kernel: Kernel

    @property
    def statements(self) -> list[str]:
        """Checks, outputs, the call, the result."""
        arguments = ", ".join([*self.operands, *self.results, *self._sizes()])
        kernels = self.reference.free("kernels")
        return [
            *self.checks,
            *self.allocations(),
            f"{kernels}.{self.kernel.function}({arguments})",
            f"return {self.reference.returned(self.results)}",
        ]

    def _sizes(self) -> list[str]:
        texts = {"threads": "torch.get_num_threads()"}
        return [texts.get(size) or self.count(size) for size in self.kernel.sizes]


def _tuple_text(shape: tuple[int, ...], first: str | None) -> str:
    sizes = [str(size) for size in shape]
    if first is not None:
        sizes[0] = first
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _product(name: str, factor: int) -> str:
    return name if factor == 1 else f"{name} * {factor}"


def _attribute(path: str) -> str:
    """Python that reaches a parameter by its qualified name."""
    text = "self"
    for part in path.split("."):
        if part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{part}]" if part.isdigit() else f"[{part!r}]"
    return text
