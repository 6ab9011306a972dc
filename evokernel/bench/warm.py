"""Owns the parent's end of a warm server: its scrubbed environment, its start, forks, its end."""

import contextlib
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from evokernel.bench.entry import entry
from evokernel.bench.sandbox import Cell
from evokernel.bench.server import ServerOrder
from evokernel.bench.wire import BrokenWire, Message, Wire
from evokernel.config import worker_environment
from evokernel.errors import WorkerError

START_S = 120.0
"""Seconds that importing torch may take on a cold disk."""
_FORK_S = 60.0
_END_S = 10.0

# Freed memory is kept, huge pages are advised, for candidates and baselines alike: otherwise a call
# that returns a large tensor pays for fresh pages each time, 4-6 times its own work. No `mmap` for
# large blocks, because those go back to the system when freed. No thread cache: glibc before 2.38
# parks the few bytes that alignment leaves over there, and then cannot join freed neighbours to a
# block that the same request fits again, so that the heap grows at every call for a while.
# torch's own THP_MEM_ALLOC_ENABLE is left off: it aligns to pages, which makes that worse.
_ALLOCATOR = ":".join(
    (
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.mmap_max=0",
        "glibc.malloc.trim_threshold=0x7fffffffffff",
        "glibc.malloc.tcache_count=0",
    )
)

# Idle OpenMP threads spin this often before they sleep: seen, 30-45 ns each, 0.2 ms together. That
# is longer than the pause between two parallel regions of one call, and shorter than what lies
# between one worker's call and the other's: a waiting worker never takes a core from the timed one.
# (The default of libgomp, 300000, is 10 ms.)
_SPIN_COUNT = "5000"


class ServerRefused(WorkerError):
    """A server that must not fork: it has threads, or has run an operator."""


@dataclass(frozen=True)
class Kind:
    """What a server is fixed to when it starts."""

    threads: int
    """CPU threads of its workers, fixed by the environment at start."""
    preload: tuple[str, ...] = ()
    """Modules to import beside torch."""
    path: tuple[Path, ...] = ()
    """Folders added to its module search path."""
    isolation: str = "full"
    """One of `sandbox.ISOLATIONS`."""
    inductor: Path | None = None
    """Cache folder of torch.compile, or None."""


class WarmServer:
    """One server process; forks come from it until it ends or refuses.

    Args:
        kind: What it is fixed to.
        home: An existing folder, its home.
    """

    def __init__(self, kind: Kind, home: Path) -> None:
        self._wire, endpoint = Wire.pair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        order = ServerOrder(
            endpoint=endpoint.fileno(),
            isolation=kind.isolation,
            preload=kind.preload,
        )
        with endpoint:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    entry("evokernel.bench.server", kind.path),
                    order.model_dump_json(),
                ],
                env=_environment(kind.threads, home, kind.inductor),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(endpoint.fileno(),),
                start_new_session=True,
            )
        self._is_ready = self._has_refused = self._is_leaving = False

    @property
    def is_usable(self) -> bool:
        """Whether it runs and has not refused."""
        return self._process.poll() is None and not self._has_refused

    @property
    def pid(self) -> int:
        """The process that was started (with namespaces, the server itself is its child)."""
        return self._process.pid

    def fork(self, cell: Cell, files: tuple[int, int, int]) -> int:
        """Have a worker forked.

        Args:
            cell: Its bounds.
            files: The worker's and the reaper's end of their connections, its standard output.

        Returns:
            A PID file descriptor of its reaper.

        Raises:
            ServerRefused: It is not clean any more.
            WorkerError: The server cannot start, or died.
        """
        self.await_ready()
        reply, received = self._ask({"fork": cell.model_dump()}, files)
        if "refused" in reply:
            self._has_refused = True
            raise ServerRefused(
                f"the measuring server (pid {self.pid}) refuses to fork: {reply['refused']}. "
                "A preloaded module must not compute or start threads when imported"
            )
        return received[0]

    def await_ready(self) -> None:
        """Wait until it has imported everything.

        Raises:
            WorkerError: It cannot start.
        """
        if not self._is_ready:
            self._receive(START_S)
            self._is_ready = True

    def sweep(self) -> None:
        """Kill processes that escaped their reaper; for systems without PID namespaces."""
        if self.is_usable:
            self._ask({"sweep": True})

    def hang_up(self) -> None:
        """Tell it to leave without waiting for that; one that still imports takes seconds."""
        if self._is_leaving:
            return
        self._is_leaving = True
        with contextlib.suppress(BrokenWire):  # it may have died already
            self._wire.send({"leave": True}, timeout_s=1.0)
        self._wire.close()

    def close(self) -> None:
        """End it, and every worker with it. Idempotent.

        Raises:
            WorkerError: It survives.
        """
        self.hang_up()
        try:
            self._process.wait(_END_S if self._is_ready else START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)
        self._errors.close()

    def _ask(
        self, message: Message, files: tuple[int, ...] = ()
    ) -> tuple[Message, tuple[int, ...]]:
        try:
            self._wire.send(message, files, timeout_s=_FORK_S)
        except BrokenWire as error:
            raise self._failure(str(error)) from error
        return self._receive(_FORK_S)

    def _receive(self, timeout_s: float) -> tuple[Message, tuple[int, ...]]:
        end = time.monotonic() + timeout_s
        try:
            while (frame := self._wire.take()) is None:
                if not _is_readable(self._wire, end - time.monotonic()):
                    raise self._failure(f"it did not answer for {timeout_s:.0f} s")
                self._wire.feed()
        except BrokenWire as error:
            raise self._failure(str(error)) from error
        return frame

    @property
    def said(self) -> str:
        """Tail of what it and its reapers wrote to their standard streams."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip()

    def _failure(self, why: str) -> WorkerError:
        said = self.said
        return WorkerError(f"the measuring server (pid {self.pid}) failed: {why}\n{said}".strip())


def _environment(threads: int, home: Path, inductor: Path | None) -> dict[str, str]:
    """Only what is listed: no key, no token, nothing that /proc could give away."""
    own = {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # it starts its threads at import
        "GOMP_SPINCOUNT": _SPIN_COUNT,
        "GLIBC_TUNABLES": _ALLOCATOR,
        # Else the question whether a GPU is there opens CUDA in the server, and no worker could.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    if inductor is not None:
        own |= {
            "TORCHINDUCTOR_CACHE_DIR": str(inductor),
            "TMPDIR": str(inductor),  # on import it derives the folder of precompiled headers
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # more would be processes of their own
            # Else every worker starts interpreters, seconds, to try each instruction set again
            # that the processor's flags already grant.
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
        }
    return worker_environment() | own


def _is_readable(wire: Wire, timeout_s: float) -> bool:
    ready = select.poll()
    ready.register(wire, select.POLLIN)
    return bool(ready.poll(max(timeout_s, 0) * 1000))
