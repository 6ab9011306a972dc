"""Owns what a task's tensors look like, found without giving them storage."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evokernel.errors import TaskError
from evokernel.frozen import Frozen
from evokernel.nested import leaves, map_leaves
from evokernel.opgraph import TensorSpec
from evokernel.program import Program, spec_of
from evokernel.task import Workload

if TYPE_CHECKING:
    import torch


class Shapes(Frozen):
    """Every tensor of one call."""

    inputs: tuple[TensorSpec, ...]
    """Tensors among forward's flattened arguments."""
    parameters: tuple[TensorSpec, ...]
    """Parameters and buffers."""
    outputs: tuple[TensorSpec, ...] | None
    """What forward returns, flattened; None if that depends on values."""


def shadow(program: Program) -> Program:
    """The same task executed a second time.

    Whatever a file keeps for later (a cached mask, say) must not hold a tensor without storage
    when it is called for real.
    """
    return Program(program.task)


def fake_inputs(program: Program, workload: Workload | None = None) -> list[Any]:
    """Arguments of `forward` without storage; real ones where the file looks at values."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return program.make_inputs(workload)
    except TaskError:
        return program.make_inputs(workload)


def shapes(
    program: Program, workload: Workload | None = None, cut: Callable[[list[Any]], list[Any]] = list
) -> Shapes:
    """Find the tensors of one call.

    Args:
        program: The executed task; it is executed again for this.
        workload: One of its workloads; None is the first.
        cut: Changes the inputs first, e.g. to fewer rows.

    Raises:
        TaskError: the file cannot make its inputs or its module; that `forward` does not run is
            no error here.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with silence(), FakeTensorMode(allow_non_fake_inputs=True):
        second = shadow(program)
        try:
            module = second.build()
            inputs = cut(second.make_inputs(workload))
        except (TaskError, RuntimeError):  # torch cannot convert fake parameters to fp16 or bf16
            return _real(second, workload, cut)
        try:
            outputs = _specs(second.call(module, inputs))
        except TaskError:
            outputs = None
        return Shapes(inputs=_specs(inputs), parameters=_state(module), outputs=outputs)


def cut_rows(inputs: list[Any], positions: Sequence[int], start: int, stop: int) -> list[Any]:
    """The same arguments, the tensors at `positions` (counted flat) cut along dimension 0."""
    numbers = iter(range(len(leaves(inputs))))

    def narrow(leaf: Any) -> Any:
        return leaf[start:stop] if next(numbers) in positions else leaf

    narrowed: list[Any] = map_leaves(narrow, inputs)
    return narrowed


def _real(
    program: Program, workload: Workload | None, cut: Callable[[list[Any]], list[Any]]
) -> Shapes:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        module, inputs = program.build(), cut(program.make_inputs(workload))
    return Shapes(inputs=_specs(inputs), parameters=_state(module), outputs=None)


def _specs(tree: Any) -> tuple[TensorSpec, ...]:
    import torch

    return tuple(spec_of(leaf) for _, leaf in leaves(tree) if isinstance(leaf, torch.Tensor))


def _state(module: "torch.nn.Module") -> tuple[TensorSpec, ...]:
    return _specs([*module.parameters(), *module.buffers()])


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What looks at a file in advance says nothing: prints, warnings and logs come with the run.

    Tracers comment on foreign code at length, and a file executed again prints again.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sink = io.StringIO()
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            contextlib.redirect_stderr(sink),
            contextlib.redirect_stdout(sink),
        ):
            yield
    finally:
        logging.disable(disabled)
