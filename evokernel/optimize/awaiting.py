"""Owns `aoptimize`: a run carried out beside an event loop, and stopped with its task."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evokernel.config import RunConfig
from evokernel.graphs.stop import Stop
from evokernel.optimize import RunStopped, optimize
from evokernel.optimize.result import RunResult
from evokernel.task import Task

if TYPE_CHECKING:
    import torch


async def aoptimize(
    task: "Task | Path | str | torch.nn.Module",
    config: RunConfig | None = None,
    *,
    inputs: Sequence[Any] | None = None,
    **brought: Any,
) -> RunResult:
    """Do what `optimize` does, in a thread of its own; the event loop goes on.

    Cancelling the awaiting task ends the run before its next node (what is being measured or
    written is waited for) and then raises `CancelledError`; the run is kept and can be resumed.
    `on_event` is called in that thread.

    Args:
        task: As for `optimize`.
        config: As for `optimize`.
        inputs: As for `optimize`.
        brought: Its other arguments.
    """
    stop = brought.pop("stop", None) or Stop()
    work = asyncio.create_task(
        asyncio.to_thread(_outcome, task, config, inputs=inputs, stop=stop, **brought)
    )
    try:
        outcome = await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.request()
        await asyncio.wait({work})
        raise
    if isinstance(outcome, RunStopped):
        raise outcome
    return outcome


def _outcome(*args: Any, **kwargs: Any) -> RunResult | RunStopped:
    """A stop as a value: an event loop would die of a `KeyboardInterrupt` out of a thread."""
    try:
        return optimize(*args, **kwargs)
    except RunStopped as stopped:
        return stopped
