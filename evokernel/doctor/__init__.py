"""Owns the check-up of a machine: which checks there are, and that each ends in a finding.

Nothing is downloaded, nothing is sent, and nothing is left behind but the
lock file that every measurement uses. What is slow or may crash is
tried in a process of its own (`probe`), all at the same time.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from evokernel.doctor import cuda, gpu, machine, nsight, software, storage
from evokernel.doctor.finding import Finding, Settings, State, in_one_line
from evokernel.doctor.protections import protections

__all__ = ["CHECKS", "Check", "Finding", "Settings", "State", "examine"]


class Check(NamedTuple):
    """One thing to look at."""

    look: Callable[[Settings], Finding]
    is_required: bool = False
    """While it is missing no run works; also where the look itself fails."""


CHECKS = {
    "python": Check(software.python),
    "packages": Check(software.packages, is_required=True),
    "compiler": Check(software.compiler, is_required=True),
    "torch": Check(software.torch, is_required=True),
    "chroma": Check(software.chroma),
    "runs": Check(storage.runs, is_required=True),
    "home": Check(storage.home, is_required=True),
    "cache": Check(storage.cache, is_required=True),
    "memory": Check(storage.memory, is_required=True),
    "processor": Check(machine.processor),
    "protections": Check(protections),
    "counters": Check(machine.counters),
    "timing": Check(machine.timing),
    "lock": Check(machine.lock, is_required=True),
    "gpu": Check(gpu.gpu),
    "cuda": Check(cuda.cuda),
    "triton": Check(cuda.triton),
    "nsight": Check(nsight.nsight),
    "keys": Check(software.keys),
    "extras": Check(software.extras),
}
"""By name, in the order in which they are shown."""


def examine(settings: Settings, names: Sequence[str] = ()) -> Iterator[Finding]:
    """Carry out the checks side by side; findings come in the order of the table.

    Args:
        settings: Where to look.
        names: Which checks; none is all of them.
    """
    chosen = [name for name in CHECKS if not names or name in names]
    with ThreadPoolExecutor(max_workers=len(CHECKS)) as threads:
        yield from threads.map(lambda name: _finding(name, settings), chosen)


def _finding(name: str, settings: Settings) -> Finding:
    """What a check finds; where it fails itself, that is the finding: the others still count."""
    check = CHECKS[name]
    try:
        found = check.look(settings)
    except Exception as error:
        found = Finding(
            name=name,
            state="missing" if check.is_required else "warning",
            found=in_one_line(f"the check itself failed: {type(error).__name__}: {error}"),
            advice="this is a fault of EvoKernel or of a broken installation; install it anew in a "
            "fresh environment, or report this line",
        )
    return found.model_copy(update={"is_required": check.is_required})
