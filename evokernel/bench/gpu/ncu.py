"""Owns Nsight Compute: where it is, whether it may read counters here, and one look with it.

Whether it may is tried once on each machine, with a kernel of torch's and in the very manner in
which candidates are looked at, and remembered in the cache folder: until the tool, the driver or
the user is another.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from evokernel.bench import Say, remembered, silent
from evokernel.bench.gpu import tools
from evokernel.bench.gpu.counters import METRICS, Counters, read
from evokernel.bench.gpu.player import Job
from evokernel.bench.gpu.replay import Lock, Replay, ReplayFailed, bundle
from evokernel.bench.tensors import pack
from evokernel.frozen import Frozen

NAME = "ncu"
FORMAT = 1
"""Raised when the way it is tried changes."""
LIMIT_S = 60.0
"""Seconds for the calls that it looks at, all passes over their kernels included."""
LAUNCHES = 16
"""Launches of a call that are looked at, at most."""
TRIES = 3
"""A version may not know some of the counters: it is tried again without them."""

_PAGE, _NO_PAGE = "page.csv", "it printed no page"
_ERROR = re.compile(r"^==(?:ERROR|WARNING)== (.+)$", re.MULTILINE)
_REMARK = "Note:"  # that the clocks are left alone, as they shall be
_NO_RIGHT = "ERR_NVGPUCTRPERM"
_RIGHT = (
    "the driver lets only administrators read counters (ERR_NVGPUCTRPERM): load it with "
    "`NVreg_RestrictProfilingToAdminUsers=0`, or give the container SYS_ADMIN"
)
_PROBE = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""


class Access(Frozen):
    """Whether Nsight Compute may be used on this machine."""

    program: str = ""
    """Its path; empty where it is not installed."""
    metrics: tuple[str, ...] = ()
    """The counters that it knows here; none where it may not read them."""
    refusal: str = ""
    """Why it may not, and what to do; empty where it may."""
    format: int = FORMAT

    @property
    def is_permitted(self) -> bool:
        """Whether counters can be read."""
        return bool(self.metrics)


def access(cache: Path, lock: Lock, device: int = 0, say: Say = silent) -> Access:
    """What was found out about this machine, from the cache folder or tried now (some 10 s).

    Args:
        cache: Folder of caches.
        lock: Holds the device.
        device: Number of the GPU.
        say: Told once, when it is tried, what came of it.
    """
    program = tools.found(NAME)
    if not program:
        return Access(refusal="Nsight Compute (`ncu`) is not installed")
    page = tools.page(cache, program)
    known = remembered.read(page, Access)
    if known is not None and known.format == FORMAT:
        return known
    say("trying whether Nsight Compute may read counters here")
    known = _tried(program, lock, device)
    if not known.is_permitted:
        say(f"profiles do without counters: {known.refusal}")
    remembered.write(page, known)
    return known


def command(program: str, metrics: Sequence[str]) -> list[str]:
    """The words before the program that it looks at."""
    words = [program, "--csv", "--page", "raw", "--print-units", "base"]
    words += ["--print-kernel-base", "function", "--log-file", f"{{folder}}/{_PAGE}"]
    words += ["--metrics", ",".join(metrics), "--launch-count", str(LAUNCHES)]
    words += ["--clock-control", "none", "--target-processes", "all"]
    return [*words, "--profile-from-start", "off"]


def start(known: Access) -> Replay:
    """A replay that waits for what it shall look at; begun early, it is ready when it is needed."""
    return Replay("once", command(known.program, known.metrics))


def look(
    replay: Replay, job: Job, lock: Lock, limit_s: float = LIMIT_S
) -> tuple[tuple[Counters, ...], str]:
    """Counters of one call's launches; and where there are none, why.

    Args:
        replay: As `start` gives it.
        job: What is called.
        lock: Holds the device.
        limit_s: Wall limit of the calls.
    """
    try:
        replay.load(job)
        with lock():
            replay.play(limit_s)
        replay.finish()
    except ReplayFailed as error:
        page = replay.text(_PAGE)
        return (), f"Nsight Compute saw nothing: {_complaint(page) or error}"
    page = replay.text(_PAGE)
    counted = read(page)
    return counted, "" if counted else f"Nsight Compute saw nothing: {_complaint(page) or _NO_PAGE}"


def _tried(program: str, lock: Lock, device: int) -> Access:
    import torch

    with pack(([], {}, None)) as making, pack([torch.ones(1 << 20)]) as inputs:
        job = Job(source=_PROBE, making=bundle(making), inputs=(bundle(inputs),), device=device)
        metrics: tuple[str, ...] = METRICS
        for _ in range(TRIES):
            with start(Access(program=program, metrics=metrics)) as replay:
                counted, refusal = look(replay, job, lock)
            if counted:
                return Access(program=program, metrics=metrics)
            unknown = [name for name in metrics if name.partition(".")[0] in refusal]
            if not unknown:
                break
            metrics = tuple(name for name in metrics if name not in unknown)
    return Access(program=program, refusal=refusal)


def _complaint(page: str) -> str:
    """Why there are no counters, in the tool's words or in better ones; empty if none are said."""
    if _NO_RIGHT in page:
        return _RIGHT
    said = (text for text in _ERROR.findall(page) if not text.startswith(_REMARK))
    return " / ".join(dict.fromkeys(said))[:2000]
