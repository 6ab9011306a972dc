"""Owns the Python text of a Triton candidate: the reference's class, kernels, and `ModelNew`."""

from __future__ import annotations

import json
import re
from functools import cached_property

from evokernel.frozen import Frozen
from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program, Source, Unsupported
from evokernel.proposers.templates.reference import Reference
from evokernel.proposers.templates.triton.functions import carried
from evokernel.proposers.templates.triton.kernel import Launch, Written, renamed, wrapped
from evokernel.proposers.templates.triton.spelling import pointer
from evokernel.task import Task

_TEXT = '''"""{title}: Triton kernels, written by EvoKernel's templates.

Techniques: {techniques}.
Verified for {domain}.
"""
{plan}

# The reference, unchanged: its constructor and parameters serve the kernels too.
{reference}


# The kernels.
{imports}

{constants}


{kernels}

# How they are launched, for whoever compiles them without a GPU.
LAUNCHES = {{
{launches}
}}


def {operand}(name, tensor, shape, dtype):
    """Refuse what the kernels were not verified for; give the rest contiguous."""
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(
            f"`{{name}}` must be a tensor of {{dtype}} and shape {{shape}}; "
            f"got {{tensor.dtype}} and {{tuple(tensor.shape)}}"
        )
    return tensor.contiguous()


class ModelNew(Model):
    """`Model` with `forward` in Triton; results carry no gradient."""

    def forward({signature}):
{body}
'''


def write_module(
    task: Task,
    graph: OpGraph,
    program: Program | Pipeline,
    plan: Plan,
    written: Written,
    free: tuple[Source, ...],
    techniques: tuple[str, ...] = (),
) -> str:
    """Write a candidate.

    Args:
        task: The task; its file's text goes into the candidate.
        graph: Its operator graph.
        program: What the graph became.
        plan: How the kernels were written; the text carries it.
        written: The kernels.
        free: Inputs whose first size may differ from call to call.
        techniques: Names of the plan's techniques.

    Raises:
        Unsupported: an input is nested in a way that the graph does not tell.
    """
    reference = Reference(source=task.source)
    fixed = fixed_arguments(task, graph, reference)
    written = _beside(written, reference.model)
    call = _Call(reference=reference, program=program, written=written, free=free, fixed=fixed)
    kernels = "\n\n".join(launch.text for launch in written.launches)
    functions = carried(kernels)
    return _TEXT.format(
        operand=reference.free("operand"),
        title=task.title.replace('"""', "'''").replace("\\", "\\\\"),
        techniques=", ".join(techniques) or "none, the plain way",
        domain=call.domain,
        plan=plan.line,
        reference=reference.model,
        imports=_imports(reference.model, functions + kernels),
        constants=_constants(written),
        kernels="\n".join(filter(None, (functions, kernels))).strip("\n") + "\n",
        launches="\n".join(call.declared),
        signature=reference.signature,
        body="\n".join(f"        {line}" for line in call.statements),
    )


def _beside(written: Written, model: str) -> Written:
    """The kernels with constants that the reference's text does not name."""
    words = set(re.findall(r"\w+", model))
    names = {c.name: f"{c.name}_" for c in written.constants if c.name in words}
    return renamed(written, names, {s.name: s.name for s in written.scratches})


def _imports(model: str, kernels: str) -> str:
    lines = [] if "\nimport torch\n" in f"\n{model}\n" else ["import torch"]
    lines += ["import triton", "import triton.language as tl"]
    if "libdevice." in kernels:
        lines.append("from triton.language.extra import libdevice")
    return "\n".join(lines)


def _constants(written: Written) -> str:
    """The numbers, and what else each may be, the present one first."""
    lines = [f"{c.name} = {json.dumps(c.value)}" for c in written.constants]
    tuned = {c.name: [c.value, *c.others] for c in written.constants if c.others}
    return "\n".join([*lines, f"TUNE = {json.dumps(tuned)}"] if tuned else lines)


def fixed_arguments(task: Task, graph: OpGraph, reference: Reference) -> dict[str, str]:
    """Arguments that are no tensors: the graph was captured with their values.

    Raises:
        Unsupported: a tensor is nested in one of them.
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


class _Call(Frozen):
    """The body of `forward`, and the declaration of its launches."""

    reference: Reference
    program: Program | Pipeline
    written: Written
    free: tuple[Source, ...]
    fixed: dict[str, str]

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
    def statements(self) -> list[str]:
        """Checks, outputs, launches, the result."""
        lines: list[str] = []
        for name, value in self.fixed.items():
            lines.append(f"if {name} != {value}:")
            lines.append(f'    raise ValueError(f"`{name}` must be {value}; got {{{name}!r}}")')
        if self.free:
            lines.append(f"{self.rows} = {self._input(self.free[0])}.shape[0]")
        lines += self._operands()
        lines += self._made()
        lines += self._nothing()
        for launch in self.written.launches:
            lines += self._launch(launch)
        results = [self._tensors["output", key] for key in self._results]
        lines.append(f"return {self.reference.returned(results)}")
        return lines

    @property
    def rows(self) -> str:
        """The variable that holds the first size of the inputs."""
        return self.reference.free("rows_")

    @cached_property
    def _results(self) -> list[str]:
        if isinstance(self.program, Pipeline):
            return list(self.program.results)
        return [output.name for output in self.program.outputs]

    @cached_property
    def _tensors(self) -> dict[tuple[str, str], str]:
        """Names of all tensors in `forward`, by kind and key."""
        free = self.reference.free
        found = {("source", s.key): free(f"{s.name}_") for s in self.program.sources}
        for key, output in zip(self._results, self.program.outputs, strict=True):
            found["output", key] = found["source", key] = free(f"{output.name}_")
        for scratch in self.written.scratches:
            stem = scratch.name.strip("@_").replace(".", "_")
            name = free(f"{stem}_stored" if scratch.name.startswith("@") else f"{stem}_")
            found["scratch", scratch.name] = name
            found["source", scratch.name] = found["output", scratch.name] = name
        return found

    def _operands(self) -> list[str]:
        operand, lines = self.reference.free("operand"), []
        for source in self.program.sources:
            name = self._tensors["source", source.key]
            place = self._input(source) if source.kind == "input" else _attribute(source.key)
            key = source.key if source.kind != "input" else place
            shape = self._shape_text(source, self.rows)
            lines.append(f'{name} = {operand}("{key}", {place}, {shape}, torch.{source.dtype})')
        return lines

    def _made(self) -> list[str]:
        """Outputs and what lies between kernels."""
        device = f"device={self._tensors['source', self.program.sources[0].key]}.device"
        lines = []
        for key, output in zip(self._results, self.program.outputs, strict=True):
            shape = _tuple_text(output.shape, self.rows if self.free else None)
            name = self._tensors["output", key]
            lines.append(f"{name} = torch.empty({shape}, dtype=torch.{output.dtype}, {device})")
        for scratch in self.written.scratches:
            name = self._tensors["scratch", scratch.name]
            size = scratch.size
            lines.append(f"{name} = torch.empty({size}, dtype=torch.{scratch.dtype}, {device})")
        return lines

    def _nothing(self) -> list[str]:
        """A grid of no programs cannot be launched."""
        if not self.free:
            return []
        results = [self._tensors["output", key] for key in self._results]
        return [f"if {self.rows} == 0:", f"    return {self.reference.returned(results)}"]

    def _launch(self, launch: Launch) -> list[str]:
        parts = [self._tensors[o.kind, o.key] for o in launch.operands]
        parts += [value for _, value in launch.numbers]
        parts += [f"{name}={value}" for name, value in (*launch.constants, *launch.options)]
        grid = ", ".join(launch.grid) + ("," if len(launch.grid) == 1 else "")
        return wrapped(f"{launch.kernel}[({grid})](", parts, ")", 92)

    @property
    def declared(self) -> list[str]:
        """Each launch as `LAUNCHES` has it."""
        lines = []
        for launch in self.written.launches:
            parts = [f'"{o.name}": "{pointer(o.dtype)}"' for o in launch.operands]
            parts += [f'"{name}": {self._number(value)}' for name, value in launch.numbers]
            named = (*launch.constants, *launch.options)
            parts += [f'"{name}": {self._number(value)}' for name, value in named]
            lines += [f"    {line}" for line in wrapped(f'"{launch.kernel}": {{', parts, "},", 92)]
        return lines

    def _number(self, text: str) -> str:
        """An expression of `forward` at the top of the module, for the sizes of the capture."""
        if not self.free:
            return text
        return text.replace(self.rows, str(self.free[0].shape[0]))

    def _shape_text(self, source: Source, rows: str) -> str:
        return _tuple_text(source.shape, rows if source in self.free else None)

    def _input(self, source: Source) -> str:
        place = self.reference.argument(int(source.key))
        if place is None:
            raise Unsupported(f"`forward` takes its input {source.key} inside of a list")
        return place


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


def size_text(count: int, first: int, rows: str) -> str:
    """A size as a multiple of the first size of the inputs."""
    each = count // first
    return rows if each == 1 else f"{rows} * {each}"
