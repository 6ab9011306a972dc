"""Owns the parent's side of the measuring processes: warm servers, and workers with deadlines.

    with WorkerPool(cache=config.cache) as pool:
        with pool.fork(WorkerSpec(role="candidate", source=text, threads=2), build) as worker:
            worker.load(init_args, init_kwargs, seed=7, state=None)
            worker.put("normal", args, output_bytes=(4096,))
            outcome = worker.run("normal")

Every call on a worker either returns its record or raises `Faulted`, which carries the candidate's
typed `Fault`. `WorkerError` means that our own processes failed. Records: `bench.messages`.
"""

import contextlib
import os
from pathlib import Path
from typing import Self

from evokernel.bench.contact import Build, Contact
from evokernel.bench.handle import Worker
from evokernel.bench.limits import Limits
from evokernel.bench.logs import OutputLog
from evokernel.bench.messages import Faulted, Role, WorkerSpec
from evokernel.bench.process import Process
from evokernel.bench.sandbox import Cell
from evokernel.bench.scratch import Scratch
from evokernel.bench.servers import WarmServers
from evokernel.bench.warm import Kind, ServerRefused, WarmServer
from evokernel.bench.wire import Wire
from evokernel.compilers import fence
from evokernel.confinement import files
from evokernel.errors import WorkerError

__all__ = ["Build", "Worker", "WorkerPool"]

_BIRTH_S = 30.0
_LIFE_CALLS = 100
"""The CPU limit of a worker is that of this many calls at their wall limit."""
COMPILE_PRELOAD = ("torch._dynamo", "torch._inductor.compile_fx")
"""Imported by the servers of compile workers, whose first call would else wait seconds for them.
Where that starts threads (it depends on what else is installed), workers import them themselves."""


class WorkerPool:
    """Forks workers from warm servers, one for each kind; a context manager.

    Leaving the context kills every worker and every server of its own, and verifies that nothing is
    left. Not for use by several threads at once.

    Args:
        cache: Folder of compiled kernels (`cache/kernels`, which workers may read) and of
            torch.compile's own cache (`cache/inductor`, for the role `compile` alone).
        isolation: One of `sandbox.ISOLATIONS`: `full` takes every namespace that the system
            permits, the others stand for containers that refuse them.
        preload: Modules that servers import beside torch, e.g. `cupy`; they must not start threads
            or run operators.
        compile_preload: Modules that the servers of compile workers import, too, unless those start
            threads.
        path: Folders added to the servers' module search path.
        base: Folder for scratch folders; None is the system's folder for temporary files.
        hidden: Files and folders that no worker may read, such as the task's file; the built-in
            tasks always are.
        servers: Started by others, who end them; `base` is theirs then. None has servers of its
            own.
    """

    def __init__(
        self,
        cache: Path,
        isolation: str = "full",
        preload: tuple[str, ...] = (),
        compile_preload: tuple[str, ...] = COMPILE_PRELOAD,
        path: tuple[Path, ...] = (),
        base: Path | None = None,
        hidden: tuple[Path, ...] = (),
        servers: WarmServers | None = None,
    ) -> None:
        self._cache = cache.resolve()
        self._hidden = tuple(path.resolve() for path in hidden)
        self._isolation = isolation
        self._preload = preload
        self._compile_preload = compile_preload
        self._path = path
        with contextlib.suppress(OSError):  # the compiler says so, and what to do
            # A right to what does not exist yet cannot be given.
            self._kernels.mkdir(parents=True, exist_ok=True)
        self._owns_servers = servers is None
        self._servers = servers or WarmServers(base)
        self._workers: list[Worker] = []
        self._is_closed = False

    def warm(self, threads: int, role: Role = "candidate") -> None:
        """Start the server for `role` ahead of need, which takes seconds; returns at once."""
        self._server(threads, role)

    def settle(self) -> None:
        """Wait until its servers keep no core busy any more: something is going to be measured.

        Raises:
            WorkerError: One cannot start.
        """
        self._servers.settle()

    def fork(self, spec: WorkerSpec, build: Build) -> Worker:
        """A fresh worker, ready for `load`.

        Raises:
            WorkerError: A server cannot start, or refuses to fork because it has more than one
                thread or has run an operator.
        """
        try:
            return self._fork(spec, build)
        except ServerRefused:
            if spec.role != "compile" or not self._compile_preload:
                raise
        self._compile_preload = ()
        return self._fork(spec, build)

    def _fork(self, spec: WorkerSpec, build: Build) -> Worker:
        server = self._server(spec.threads, spec.role)
        scratch = Scratch(self._servers.folder, spec.scratch_bytes)
        try:
            contact = self._give_birth(server, spec, scratch, build)
        except BaseException:
            scratch.remove()
            raise
        worker = Worker(spec, contact)
        self._workers = [w for w in self._workers if w.is_alive]
        self._workers.append(worker)
        return worker

    @property
    def server_pids(self) -> tuple[int, ...]:
        """The servers' processes, for the record and for tests."""
        return tuple(self._servers.pids.values())

    def close(self) -> None:
        """Kill all workers and servers. Idempotent.

        Raises:
            WorkerError: A process or a file survived.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for worker in self._workers:
                worker.kill()
        finally:
            if self._owns_servers:
                self._servers.close()

    def __enter__(self) -> Self:
        """Enter a block at whose end all processes are killed."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Kill all processes."""
        self.close()

    def _server(self, threads: int, role: Role) -> WarmServer:
        inductor = self._inductor if role == "compile" else None
        if inductor is not None:
            inductor.mkdir(parents=True, exist_ok=True)
        own = self._compile_preload if role == "compile" else ()
        preload = (*own, *self._preload)
        return self._servers.of(Kind(threads, preload, self._path, self._isolation, inductor))

    def _give_birth(
        self, server: WarmServer, spec: WorkerSpec, scratch: Scratch, build: Build
    ) -> Contact:
        wire, worker_end = Wire.pair()
        reaper, reaper_end = Wire.pair()
        output, output_end = os.pipe2(os.O_CLOEXEC)
        log = OutputLog(output, spec.output_bytes)
        try:
            ends = (worker_end.fileno(), reaper_end.fileno(), output_end)
            process = Process(server.fork(self._cell(spec, scratch), ends))
        except BaseException:
            for part in (wire, reaper, log):
                part.close()
            raise
        finally:
            worker_end.close()
            reaper_end.close()
            os.close(output_end)
        limits = Limits(lambda: process.pid, scratch, spec.memory_bytes, spec.threads)
        contact = Contact(
            wire, reaper, process, log, scratch, limits, spec.memory_bytes, build, server.sweep
        )
        try:
            contact.greet(_BIRTH_S)
        except Faulted as error:
            reason = f"{error.fault.reason}\n{error.fault.log}\n{server.said}".strip()
            raise WorkerError(f"a worker was not born: {reason}") from error
        return contact

    def _cell(self, spec: WorkerSpec, scratch: Scratch) -> Cell:
        compiles, is_gpu = spec.role == "compile", spec.device != "cpu"
        calls_s = spec.run_s + (spec.build_s if compiles else 0.0)
        # Triton builds what launches its kernels with the host's compiler, in the worker.
        tools = fence.toolchain() if compiles or is_gpu else ()
        return Cell(
            scratch=str(scratch.path),
            scratch_bytes=spec.scratch_bytes,
            memory_bytes=spec.memory_bytes,
            threads=spec.threads,
            cpu_s=int(calls_s * _LIFE_CALLS * spec.threads) + 1,
            readable=(
                *(str(self._kernels), *map(str, self._path), *tools),
                *(files.GPU_SYSTEM if is_gpu else ()),
            ),
            writable=(str(self._inductor),) if compiles else (),
            device=spec.device,
            nodes=files.gpu_nodes() if is_gpu else (),
            hidden=tuple(map(str, self._hidden)),
            variables=self._variables(spec),
        )

    def _variables(self, spec: WorkerSpec) -> dict[str, str]:
        """What only this worker's environment has."""
        found: dict[str, str] = {}
        if spec.role == "compile" and spec.device != "cpu":
            found["TRITON_CACHE_DIR"] = str(self._inductor / "triton")
        if spec.is_blocking:
            found["CUDA_LAUNCH_BLOCKING"] = "1"
        return found

    @property
    def _kernels(self) -> Path:
        return self._cache / "kernels"

    @property
    def _inductor(self) -> Path:
        return self._cache / "inductor"
