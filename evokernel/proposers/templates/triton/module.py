"""Owns the Python text of a Triton candidate: the reference's class, kernels, and `ModelNew`."""

from __future__ import annotations

import json
import re
from functools import cached_property

from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.call import Call, fixed_arguments
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program
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
    techniques: tuple[str, ...] = (),
) -> str:
    """Write a candidate.

    Args:
        task: The task; its file's text goes into the candidate.
        graph: Its operator graph.
        program: What the graph became.
        plan: How the kernels were written; the text carries it.
        written: The kernels.
        techniques: Names of the plan's techniques.

    Raises:
        Unsupported: an input is nested in a way that the graph does not tell.
    """
    reference = Reference(source=task.source)
    fixed = fixed_arguments(task, graph, reference)
    written = _beside(written, reference.model)
    call = _Call(reference=reference, program=program, graph=graph, written=written, fixed=fixed)
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


class _Call(Call):
    """The body of `forward`, and the declaration of its launches."""

    written: Written

    @property
    def statements(self) -> list[str]:
        """Checks, memory, launches, the result."""
        device = f"device={self.operands[0]}.device"
        lines = [*self.checks, *self.allocations(device)]
        for scratch in self.written.scratches:
            name = self._tensors["scratch", scratch.name]
            memory = f"{scratch.size}, dtype=torch.{scratch.dtype}, {device}"
            lines.append(f"{name} = torch.empty({memory})")
        if self.free:  # a grid of no programs cannot be launched
            lines.append(f"if {self.rows} == 0:")
            lines.append(f"    return {self.reference.returned(self.results)}")
        for launch in self.written.launches:
            lines += self._launch(launch)
        return [*lines, f"return {self.reference.returned(self.results)}"]

    @cached_property
    def _tensors(self) -> dict[tuple[str, str], str]:
        """Names of all tensors in `forward`, by kind and key."""
        free = self.reference.free
        sources = (("source", source.key) for source in self.program.sources)
        found = dict(zip(sources, self.operands, strict=True))
        for key, name in zip(self._keys, self.results, strict=True):
            found["output", key] = found["source", key] = name
        for scratch in self.written.scratches:
            stem = scratch.name.strip("@_").replace(".", "_")
            name = free(f"{stem}_stored" if scratch.name.startswith("@") else f"{stem}_")
            found["scratch", scratch.name] = name
            found["source", scratch.name] = found["output", scratch.name] = name
        return found

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

    @property
    def _keys(self) -> list[str]:
        """What kernels call the outputs."""
        if isinstance(self.program, Pipeline):
            return list(self.program.results)
        return [output.name for output in self.program.outputs]


def size_text(count: int, first: int, rows: str) -> str:
    """A size as a multiple of the first size of the inputs."""
    each = count // first
    return rows if each == 1 else f"{rows} * {each}"
