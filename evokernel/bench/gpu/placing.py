"""Owns what is put on a GPU: modules, inputs, and the precision in which it computes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from evokernel.errors import TaskError
from evokernel.nested import leaves, map_leaves

if TYPE_CHECKING:
    from evokernel.program import Program
    from evokernel.task import Workload


def to_device(tree: Any, device: str) -> Any:
    """The same nesting with every tensor on a device."""
    return map_leaves(
        lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, tree
    )


def move(module: torch.nn.Module, device: str) -> None:
    """Move parameters, buffers, and tensors kept as plain attributes, which `.to` skips."""
    module.to(device)
    for part in module.modules():
        for name, value in list(vars(part).items()):
            held = not name.startswith("_") and leaves(value)
            if held and any(isinstance(leaf, torch.Tensor) for _, leaf in held):
                part.__dict__[name] = to_device(value, device)


def inputs_on(program: Program, workload: Workload, seed: int, device: str) -> list[Any]:
    """Arguments of `forward` on a GPU, drawn there where the task's file lets them.

    Drawing a gigabyte takes the processor seconds. A file that names a device or a generator of its
    own draws where it says, and what it made is moved.

    Raises:
        TaskError: The file raises.
    """
    try:
        with torch.device(device):
            made = program.make_inputs(workload, seed)
    except TaskError:
        made = program.make_inputs(workload, seed)
    found: list[Any] = to_device(made, device)
    return found


def allow_tf32(is_allowed: bool) -> None:
    """Let products of float32, convolutions too, be computed with TF32 or not."""
    with warnings.catch_warnings():
        # Both spellings of the setting warn in one version or another.
        warnings.simplefilter("ignore")
        torch.backends.cudnn.allow_tf32 = is_allowed
        torch.set_float32_matmul_precision("high" if is_allowed else "highest")


@contextmanager
def precision(is_tf32: bool) -> Iterator[None]:
    """The same for a block; the process's own settings are put back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    allow_tf32(is_tf32)
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.backends.cudnn.allow_tf32 = before[0]
            torch.set_float32_matmul_precision(before[1])
