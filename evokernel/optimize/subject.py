"""Owns what callers may name as a task: a file, its text, a built-in name, or a live module."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evokernel.config import RunConfig
from evokernel.errors import ConfigError
from evokernel.task import Task

if TYPE_CHECKING:
    import torch


def task_of(
    given: "Task | Path | str | torch.nn.Module",
    inputs: Sequence[Any] | None = None,
    config: RunConfig | None = None,
) -> Task:
    """The task that is meant.

    Args:
        given: A task, the name of a built-in one, the path of a task file, the text of one (more
            than one line), or a live module.
        inputs: Example arguments of a live module's `forward`.
        config: Says which backend, and so whose sizes a built-in task takes.

    Raises:
        ConfigError: inputs without a live module, or one without inputs.
        TaskError: it cannot be loaded.
        ModuleNotCaptured: a live module that cannot be written down.
    """
    from evokernel.bench.gpu import choice

    is_live = not isinstance(given, Task | Path | str)
    if is_live != (inputs is not None):
        raise ConfigError(
            "a live module needs `inputs`, example arguments of its `forward`"
            if is_live
            else f"`inputs` go with a live module; `{_short(given)}` brings its own"
        )
    if isinstance(given, Task):
        return given
    device = choice.device_of(config.backend if config else "cpp")
    if isinstance(given, str) and "\n" in given.strip():
        return Task.from_source(given, device=device)
    if isinstance(given, Path | str):
        return Task.load(given, device)
    from evokernel.program.captured import captured

    assert inputs is not None
    return captured(given, inputs, device=device)


def _short(given: object) -> str:
    return given.name if isinstance(given, Task) else str(given).strip().partition("\n")[0][:60]
