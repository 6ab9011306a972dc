"""Owns the Python text of a candidate: the reference's class, the kernel, and `ModelNew`."""

import re

from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.call import Call, fixed_arguments
from evokernel.proposers.templates.choices import Plan
from evokernel.proposers.templates.contraction import Pipeline
from evokernel.proposers.templates.expressions import Program
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
