"""Owns the running of a compiler within limits: nothing that it starts outlives the call."""

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from evokernel.compilers import fence
from evokernel.confinement.launch import line
from evokernel.frozen import Frozen
from evokernel.wording import plain

_OUTPUT_FILE = "output.txt"
_GONE_WITHIN_S = 5.0


class Limits(Frozen):
    """What one call of a compiler may use."""

    seconds: float
    """Wall seconds; the processor time of each of its processes is limited a little above."""
    memory_bytes: int
    """Address space of each of its processes, bytes."""
    file_bytes: int = 256 * 2**20
    """Largest file it may write, its messages included; bytes."""
    output_bytes: int = 256 * 2**10
    """How much of its messages is read, from the beginning; bytes."""


class Outcome(Frozen):
    """How a call ended."""

    code: int
    """Exit code; negative is the number of the signal that ended it."""
    output: str
    """What it wrote to both standard streams, capped, nothing that a terminal obeys."""
    seconds: float
    """Wall seconds."""
    timed_out: bool
    """It was killed at the wall limit."""


def run(
    command: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    limits: Limits,
    is_fenced: bool = True,
    readable: tuple[str, ...] = (),
) -> Outcome:
    """Run a command in `folder` in a session of its own, and kill what is left of it afterwards.

    Args:
        command: program and arguments.
        folder: private working folder; temporary files and messages go there.
        environment: the complete environment.
        limits: what it may use.
        is_fenced: whether it may read and write nothing else (see `fence`), and has no network.
        readable: files and folders that it may read beside its own parts.
    """
    began = time.monotonic()
    environment = {**environment, "TMPDIR": str(folder), "LC_ALL": "C", "CCACHE_DISABLE": "1"}
    terms = fence.terms(command, folder, environment, _rlimits(limits), is_fenced, readable)
    with (folder / _OUTPUT_FILE).open("w+b") as output:
        process = subprocess.Popen(
            line(terms, list(command)),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _kill(process)
        output.seek(0)
        text = plain(output.read(limits.output_bytes).decode(errors="replace"))
    seconds = time.monotonic() - began
    return Outcome(code=process.returncode, output=text, seconds=seconds, timed_out=timed_out)


def _rlimits(limits: Limits) -> dict[int, int]:
    return {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_CPU: int(limits.seconds) + 5,
        resource.RLIMIT_FSIZE: limits.file_bytes,
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group, also after a normal end: a wrapper may have left children behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + _GONE_WITHIN_S
    while _is_running(process.pid) and time.monotonic() < deadline:
        time.sleep(0.002)  # the kernel ends killed processes a moment later


def _is_running(group: int) -> bool:
    """Whether a process of the group still runs; one that only waits to be collected does not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, _, its_group = place.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False
