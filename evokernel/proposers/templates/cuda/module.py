"""Owns the Python text of a CUDA candidate: the reference's class, the kernels, and `ModelNew`."""

from __future__ import annotations

import re

from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.call import Call, fixed_arguments
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.cuda.kernel import Kernel, Launch
from evokernel.proposers.templates.expressions import Program
from evokernel.proposers.templates.reference import Reference
from evokernel.task import Task

_TEXT = '''"""{title}: {kernels_text}, written by EvoKernel's templates.

Techniques: {techniques}.
Verified for {domain}.
"""
{plan}

# The reference, unchanged: its constructor and parameters serve the kernels too.
{reference}


# The kernels.
{imports}

{cuda_source} = r"""
{kernel}"""

{kernels} = cuda_module({cuda_source})


def {operand}(name, tensor, shape, dtype):
    """Refuse what the kernels were not verified for; give the rest contiguous and aligned."""
    if tensor.device.type != "cuda" or tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(
            f"`{{name}}` must be a CUDA tensor of {{dtype}} and shape {{shape}}; "
            f"got {{tensor.dtype}} and {{tuple(tensor.shape)}} on {{tensor.device}}"
        )
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
{wave}

class ModelNew(Model):
    """`Model` with `forward` as {kernels_text}; results carry no gradient."""

    def forward({signature}):
{body}
'''

_WAVE = '''

@functools.cache
def {wave}(device):
    """Multiprocessors of a GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count
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
        program: The program or pipeline of the graph.
        plan: How the kernels were written; the text carries it.
        kernel: The kernels and their launches.
        techniques: Names of the plan's techniques.

    Raises:
        Unsupported: an input is nested in a way that the graph does not tell.
    """
    reference = Reference(source=task.source)
    fixed = fixed_arguments(task, graph, reference)
    call = _Call(reference=reference, graph=graph, program=program, kernel=kernel, fixed=fixed)
    stays = any("wave" in launch.grid for launch in kernel.launches)
    count = len(kernel.launches)
    kernels_text = "one fused CUDA kernel" if count == 1 else f"{count} CUDA kernels"
    return _TEXT.format(
        **{n.lower(): reference.free(n) for n in ("CUDA_SOURCE", "kernels", "operand")},
        title=task.title.replace('"""', "'''").replace("\\", "\\\\"),
        kernels_text=kernels_text,
        techniques=", ".join(techniques) or "none, the plain way",
        domain=call.domain,
        plan=plan.line,
        reference=reference.model,
        imports=_imports(reference.model, stays),
        kernel=kernel.source,
        wave=_WAVE.format(wave=reference.free("wave")) if stays else "",
        signature=reference.signature,
        body="\n".join(f"        {line}" for line in call.statements),
    )


def _imports(model: str, stays: bool) -> str:
    lines = ["import functools\n"] * stays
    if not re.search(r"^import torch$", model, re.MULTILINE):
        lines.append("import torch\n")
    return "\n".join([*lines, "from evokernel.jit import cuda_module"])


class _Call(Call):
    """The body of `forward`."""

    kernel: Kernel

    @property
    def statements(self) -> list[str]:
        """Checks, memory, launches, the result."""
        results = self.results
        device = f"device={self._device()}"
        lines = [*self.checks, *self.allocations(device)]
        if self.rows:
            lines += [
                f"if {self.rows} == 0:",
                f"    return {self.reference.returned(results)}",
            ]
        for workspace in self.kernel.workspaces:
            name, size = self._of_workspace(workspace.name), self._number(workspace.size)
            text = f"torch.empty({size}, dtype=torch.{workspace.dtype}, {device})"
            lines.append(f"{name} = {text}")
        kernels = self.reference.free("kernels")
        lines += [self._launched(kernels, launch) for launch in self.kernel.launches]
        return [*lines, f"return {self.reference.returned(results)}"]

    def _device(self) -> str:
        return f"{self.operands[0]}.device" if self.operands else '"cuda"'

    def _of_workspace(self, name: str) -> str:
        return self.reference.free(name)

    def _launched(self, kernels: str, launch: Launch) -> str:
        sources = (source.name for source in self.program.sources)
        known = dict(zip(sources, self.operands, strict=True))
        known.update(zip((o.name for o in self.program.outputs), self.results, strict=True))
        tensors = [known.get(name) or self._of_workspace(name) for name in launch.tensors]
        arguments = ", ".join([*tensors, *(self._number(size) for size in launch.sizes)])
        configuration = f"{self._number(launch.grid)}, {launch.block}"
        if launch.shared:
            configuration += f", {launch.shared}"
        return f"{kernels}.{launch.function}[{configuration}]({arguments})"

    def _number(self, text: str) -> str:
        """An expression of `rows`, `cols` and `wave` in Python; worked out if nothing moves."""
        if not self.rows and "wave" not in text:
            counts = {"rows": self.program.domain.rows, "cols": self.program.domain.cols}
            return str(eval(text, {"__builtins__": {}, "max": max, "min": min}, counts))
        for name in ("rows", "cols"):
            text = re.sub(rf"\b{name}\b", self.count(name), text)
        wave = f"{self.reference.free('wave')}({self._device()})"
        return re.sub(r"\bwave\b", lambda _: wave, text)
