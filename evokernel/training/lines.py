"""Owns the environment as lines of JSON, so that any trainer in any language can drive it.

    -> {"op": "reset", "task": "softmax"}
    <- {"op": "reset", "episode": "...", "turn": 0, "done": false, "messages": [...], ...}
    -> {"op": "step", "episode": "...", "reply": "..."}
    <- {"op": "step", "episode": "...", "turn": 1, "reward": 0.0, "feedback": "...", ...}
    -> {"op": "leave", "episode": "..."}

An `id` comes back with its answer. What cannot be done is answered with `error`, and the next line
is read; the end of the input ends every process.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TextIO

from pydantic import Field, TypeAdapter, ValidationError

from evokernel.attempt import Backend
from evokernel.bench.gpu import choice
from evokernel.errors import EvoKernelError
from evokernel.frozen import Frozen
from evokernel.task import Task
from evokernel.training.environment import Environment, EnvironmentConfig, Observation

Id = str | int | None


class Reset(Frozen):
    """Begin an episode."""

    op: Literal["reset"]
    id: Id = None
    task: str
    """Name of a built-in task, path of a task file, or its whole text."""


class Step(Frozen):
    """Judge a reply."""

    op: Literal["step"]
    id: Id = None
    episode: str | None = None
    """None is that of the last `reset`."""
    reply: str


class Leave(Frozen):
    """End an episode early."""

    op: Literal["leave"]
    id: Id = None
    episode: str | None = None


Line = TypeAdapter[Reset | Step | Leave](Annotated[Reset | Step | Leave, Field(discriminator="op")])


def serve(config: EnvironmentConfig) -> None:
    """Answer lines of standard input on standard output, which carries nothing else."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a task or a library prints
    with Environment(config) as environment:
        converse(sys.stdin, answers, environment)


def converse(lines: Iterable[str], answers: TextIO, environment: Environment) -> None:
    """Answer each line with one line, in order."""
    for line in lines:
        if line.strip():
            answers.write(json.dumps(_answer(line, environment), allow_nan=False) + "\n")
            answers.flush()


def _answer(line: str, environment: Environment) -> dict[str, Any]:
    named = _named(line)
    try:
        call = Line.validate_json(line)
        return {**named, **_carried_out(call, environment)}
    except Exception as error:
        return {**named, "error": _fault(error)}


def _carried_out(call: Reset | Step | Leave, environment: Environment) -> dict[str, Any]:
    match call:
        case Reset():
            task = task_of(call.task, environment.config.backend)
            return _plain(lambda: environment.reset(task))
        case Step():
            return _plain(lambda: environment.step(call.reply, call.episode))
        case Leave():
            environment.leave(call.episode)
            return {"done": True}


def _plain(work: Callable[[], Observation]) -> dict[str, Any]:
    return work().model_dump(mode="json")


def _named(line: str) -> dict[str, Any]:
    """What of a line comes back with its answer, however wrong the rest is."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return {k: found[k] for k in ("id", "op") if k in found} if isinstance(found, dict) else {}


def _fault(error: Exception) -> dict[str, Any]:
    """What was wrong with a line, and whether it is worth sending again."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the line"
        message = f"`{place}`: {first['msg']}; expected one of the operations reset, step, leave"
        return {"kind": "BadLine", "message": message, "again": False}
    if isinstance(error, EvoKernelError):
        again = error.exit_code == 1  # a fault of ours or of the machine's, not of the line
        return {"kind": type(error).__name__, "message": str(error), "again": again}
    traceback.print_exception(error)
    said = f"{type(error).__name__}: {error}"
    return {"kind": "InternalError", "message": said, "again": False}


def task_of(text: str, backend: Backend) -> Task:
    """A task by name, by path, or by its text."""
    device = choice.device_of(backend)
    return Task.from_source(text, device=device) if "\n" in text else Task.load(text, device)
