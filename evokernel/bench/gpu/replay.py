"""Owns a replay: a candidate's calls once more in a fresh process of ours, under a tool or none.

The process can be started ahead of need: what takes seconds, the tool and torch, then lies behind
it when there is a job. Nothing that it says decides anything about right and fast.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ValidationError

from evokernel.bench.descendants import descendants
from evokernel.bench.entry import entry
from evokernel.bench.gpu.player import ANSWERS, ORDERS, TRACE, Answer, Bundle, Job
from evokernel.bench.tensors import Package
from evokernel.config import worker_environment
from evokernel.confinement.launch import Terms
from evokernel.confinement.launch import line as confined

Manner = Literal["once", "each", "traced"]
"""`once`: each input set is called, then again between the marks that Nsight Compute looks for;
`each`: each is called once; `traced`: the first is called often, timed, then recorded."""

Lock = Callable[[], AbstractContextManager[object]]
"""Holds the device for a while."""

READY_S = 120.0
"""Seconds for the tool, torch, the device, and the candidate's import."""
END_S = 20.0
"""Seconds for the tool to write its page after the last call."""
_MOST_TEXT = 64 << 20
_MOST_LINE = 1 << 20
_SAID = "said.txt"


class ReplayFailed(Exception):
    """It came to no end: what the candidate or the tool did, in a sentence."""


class Replay:
    """A process that waits for a job; a context manager that leaves nothing behind.

    Args:
        manner: How the calls are made.
        tool: The words before the program's, such as those of Nsight Compute; a name in braces,
            `{folder}`, stands for the folder of this replay.
        settings: More of its environment.
    """

    def __init__(
        self, manner: Manner, tool: Sequence[str] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        self._quarters = tempfile.TemporaryDirectory(
            prefix="evokernel-replay-", ignore_cleanup_errors=True
        )
        self.folder = Path(self._quarters.name)
        """Where it and its tool write."""
        self._pipes = [self._pipe(name) for name in (ORDERS, ANSWERS)]
        self._heard = b""
        words = [word.replace("{folder}", str(self.folder)) for word in tool]
        program = [
            *words,
            sys.executable,
            "-c",
            entry("evokernel.bench.gpu.player"),
            str(self.folder),
            manner,
        ]
        with (self.folder / _SAID).open("wb") as said:
            self._process = subprocess.Popen(
                confined(Terms(is_fenced=False), program),  # only so that it dies with us
                env=_environment(self.folder) | dict(settings or {}),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self._pipes.append(os.pidfd_open(self._process.pid))

    def load(self, job: Job, timeout_s: float = READY_S) -> None:
        """Have it load a candidate; comes back when only the calls are left to do.

        Raises:
            ReplayFailed: It cannot.
        """
        self._tell(job.model_dump_json())
        self._await("ready", timeout_s)

    def play(self, timeout_s: float) -> Answer:
        """Have it make the calls, and wait for their end. Hold the device lock meanwhile.

        Raises:
            ReplayFailed: The candidate raised, died, or took longer.
        """
        self._tell("go")
        try:
            return Answer.model_validate(self._await("done", timeout_s))
        except ValidationError as error:
            raise ReplayFailed(f"it gave a damaged answer: {error}") from error

    def finish(self, timeout_s: float = END_S) -> int:
        """Wait until it and its tool have ended by themselves; the exit code.

        Raises:
            ReplayFailed: They have not.
        """
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ReplayFailed(f"it did not end within {timeout_s:g} s") from error

    @property
    def said(self) -> str:
        """What it and its tool wrote to their standard streams."""
        return self.text(_SAID)

    @property
    def trace(self) -> str:
        """The record of activity, in Chrome's format."""
        return self.text(TRACE)

    def text(self, name: str) -> str:
        """A file of its folder; empty where there is none, or a link."""
        try:
            file = os.open(self.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        with open(file, "rb") as opened:  # noqa: PTH123
            return opened.read(_MOST_TEXT).decode(errors="replace")

    def close(self) -> None:
        """End it with all that it started. Idempotent."""
        if not self._pipes:
            return
        for process in descendants(self._process.pid):
            with contextlib.suppress(ProcessLookupError):  # it was faster
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        while self._pipes:
            os.close(self._pipes.pop())
        self._quarters.cleanup()

    def __enter__(self) -> Self:
        """Enter a block at whose end it is ended."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End it."""
        self.close()

    def _pipe(self, name: str) -> int:
        """A named pipe, held at both ends: the other side opens it when it has come so far."""
        os.mkfifo(self.folder / name, 0o600)
        return os.open(self.folder / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _tell(self, line: str) -> None:
        rest = memoryview(line.encode() + b"\n")
        end = time.monotonic() + READY_S
        while rest:
            self._wait(self._pipes[0], select.POLLOUT, end)
            rest = rest[os.write(self._pipes[0], rest[: select.PIPE_BUF]) :]

    def _await(self, what: str, timeout_s: float) -> Any:
        end = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            self._wait(self._pipes[1], select.POLLIN, end)
            self._heard += os.read(self._pipes[1], 1 << 16)
            if len(self._heard) > _MOST_LINE:
                raise ReplayFailed("it says too much")
        line, _, self._heard = self._heard.partition(b"\n")
        try:
            told = json.loads(line)
            if what in told:
                return told[what]
        except (ValueError, TypeError) as error:
            raise ReplayFailed("it gave a damaged answer") from error
        raise ReplayFailed(str(told.get("failed", "it gave another answer"))[:500])

    def _wait(self, pipe: int, event: int, end: float) -> None:
        """Wait until a pipe can be used, with an eye on the process.

        Raises:
            ReplayFailed: The time is over, or the process.
        """
        ready = select.poll()
        ready.register(pipe, event)
        ready.register(self._pipes[2], select.POLLIN)
        found = dict(ready.poll(max(0.0, end - time.monotonic()) * 1000))
        if pipe in found:
            return
        if not found:
            raise ReplayFailed("it took too long")
        raise ReplayFailed(f"it ended by itself: {_tail(self.said)}")


def bundle(package: Package) -> Bundle:
    """A package of ours, to be opened by a process of ours as long as it is not closed here."""
    files = [f"/proc/{os.getpid()}/fd/{file}" for file in package.files]
    return Bundle(message=package.message, file=files[0] if files else "")


def _tail(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-3:])[-400:] or "without a word"


def _environment(folder: Path) -> dict[str, str]:
    """Only what is listed: no key, no token, nothing that /proc could give away."""
    places = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
    own = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1", "LC_ALL": "C"}
    return worker_environment() | own | dict.fromkeys(places, str(folder))
