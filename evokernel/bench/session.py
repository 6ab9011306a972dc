"""Owns `Session`: what judging one task on this machine needs, made once and closed once."""

from __future__ import annotations

import copy
import os
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from evokernel.attempt import Backend, Candidate
from evokernel.bench import Say, silent
from evokernel.bench import device as devices
from evokernel.bench.device import CPU, DeviceFacts
from evokernel.bench.disturbance import device_lock
from evokernel.bench.evidence import Handed
from evokernel.bench.gpu import choice
from evokernel.bench.gpu import facts as gpu_facts
from evokernel.bench.gpu.ahead import Ahead
from evokernel.bench.gpu.facts import GpuFacts
from evokernel.bench.gpu.stage import GpuStage
from evokernel.bench.messages import Fault, Faulted, Loaded, WorkerSpec
from evokernel.bench.oracle import BUDGET_BYTES, Case, Oracle
from evokernel.bench.pace import QUICK, STANDARD, Pace
from evokernel.bench.pool import COMPILE_PRELOAD, Build, Worker, WorkerPool
from evokernel.bench.reference import free_bytes
from evokernel.bench.roofline import Roofline
from evokernel.bench.servers import WarmServers
from evokernel.bench.stage import Stage
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.choice import EveryCompiler
from evokernel.config import BenchConfig
from evokernel.errors import WorkerError
from evokernel.evaluation import Status
from evokernel.opgraph import CaptureFailed, OpGraph, capture
from evokernel.program import CASTS, Program
from evokernel.task import Task

if TYPE_CHECKING:
    from evokernel.bench.gpu.memory import Account

SLOTS = 2
"""Addresses that each timed input set takes in turn; one where inputs are large."""
BASE_BYTES = 2 << 30
"""Address space of a worker for code, thread stacks and arenas."""
ROOM = 16
"""Copies of inputs and outputs that a worker may hold: the harness's own and the candidate's."""
GPU_BASE_BYTES = 4 << 30
"""Device memory of a worker beside those copies."""
GPU_HOST_BYTES, HOST_ROOM = 6 << 30, 4
"""Host memory of a worker on a GPU: for CUDA, torch and compilers; and copies of inputs and
outputs, which pass through the host where device memory cannot be shared."""
SMALL_BYTES = 8 << 20
"""Up to this size of inputs and outputs, the quick profile too runs every family."""
MOST_OWN = 4
"""Above that size, no more families for the task's operators."""
QUICK_FAMILIES = ("normal", "large", "negated", "special")
"""For all tasks; the first one for its operators comes beside them."""
MOST_SOURCE = 1 << 20
"""Characters of a candidate's text; as JSON it has to fit into one frame."""
LOCK_S = 600.0


class Session:
    """The trusted side of judging one task: processes, truth, device and compiler.

    Args:
        task: What candidates are for.
        config: How they are judged.
        say: Told in a few words what begins now.
        backend: The language of the kernels, which says where they run.
        servers: Warm servers that others share; None has its own.

    Raises:
        TaskError: The task's file fails.
        CompilerMissing: No compiler answers.
        DeviceMissing: The backend needs a GPU, and none can be used.
    """

    def __init__(
        self,
        task: Task,
        config: BenchConfig,
        say: Say = silent,
        backend: Backend = "cpp",
        servers: WarmServers | None = None,
    ) -> None:
        self.task = task
        self.config = config
        self.say = say
        self.threads = config.threads or len(os.sched_getaffinity(0))
        self.secret = secrets.randbits(62) if config.seed is None else config.seed
        self.rng = random.Random(f"{self.secret}/order")
        self.place = choice.device_of(backend)
        """Where candidates run, as torch names it."""
        if self.place != "cpu":
            choice.require(backend)
        first: Backend = "cpp" if self.place == "cpu" else "cuda"
        self.compiler = EveryCompiler(config.cache, config.compile_s, first=first)
        self.has_looked_again = False
        """The peaks were measured again for a candidate that seemed too fast."""
        self._stage: Stage | None = None
        self._account: Account | None = None
        self._ahead: Ahead | None = None
        self._handed: WeakKeyDictionary[Worker, list[Handed]] = WeakKeyDictionary()
        self._built: dict[str, list[Handed]] = {}
        self._stack = ExitStack()
        say("starting the measuring processes")
        file = () if task.path is None else (Path(task.path),)
        preload, for_compile = _preloads(self.place)
        pool = WorkerPool(
            config.cache,
            hidden=file,
            preload=preload,
            compile_preload=for_compile,
            servers=servers,
        )
        self.pool = self._stack.enter_context(pool)
        self.pool.warm(self.threads)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        self.program: Program = self.task.program()
        self.graph, self.graph_note = _captured(self.program)
        self.device: Roofline = self._facts()
        self.say("computing what is right")
        budget = free_bytes(self.place) // 8
        if self.place == "cpu":
            budget = min(BUDGET_BYTES, budget)
        self.oracle = Oracle(self.program, self.secret, self.graph, budget, device=self.place)
        self._stack.callback(self.oracle.close)
        self.cases: tuple[Case, ...] = self.oracle.cases(self._families())
        self.oracle.prepare(self.cases)
        self.reweighed = self.oracle.with_other_weights()
        if self.reweighed is not None:
            self._stack.callback(self.reweighed.close)

    @property
    def contract(self) -> Literal["own_kernels_only", "library_allowed"]:
        """The policy that holds: the task's, else the command's."""
        return self.task.options.contract or self.config.contract

    @property
    def pace(self) -> Pace:
        """How long to measure, and how calm it must be."""
        if self.config.measurement == "quick":
            return QUICK
        return replace(STANDARD, quiet_s=self.config.quiet_s)

    @property
    def telling_cases(self) -> tuple[Case, ...]:
        """The cases for many candidates: all where they are cheap, else the most telling ones."""
        if self._bytes() <= SMALL_BYTES:
            return self.cases
        return tuple(case for case in self.cases if case.family in QUICK_FAMILIES)

    @property
    def min_bytes(self) -> int | None:
        """Bytes that any implementation of the timed workload moves; None if unknown."""
        return self.graph.min_bytes if self.graph is not None else None

    @property
    def gpu(self) -> int | None:
        """Number of the GPU that candidates run on; None where it is the processor."""
        return None if self.place == "cpu" else int(self.place.partition(":")[2] or 0)

    @contextmanager
    def turn(self, limit_s: float = LOCK_S) -> Iterator[None]:
        """The lock of the device alone.

        Args:
            limit_s: How long to wait for who has it.

        Raises:
            WorkerError: The lock stayed taken.
        """
        if self.gpu is None:
            with device_lock(CPU, limit_s):
                yield
            return
        from evokernel.bench.gpu.lock import gpu_lock, lock_name

        with gpu_lock(lock_name(self.gpu), limit_s):
            yield

    @contextmanager
    def lock(self) -> Iterator[None]:
        """The device lock, to be held while anything is timed.

        Raises:
            WorkerError: The lock stayed taken.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(self.turn(0.0))
            except WorkerError:
                self.say("waiting for another EvoKernel process that measures on this machine")
                stack.enter_context(self.turn())
            waits = self.pace.quiet_s > 0
            self.say("measuring, as soon as the machine is quiet" if waits else "measuring")
            yield

    def fork(
        self,
        candidate: Candidate,
        built: Callable[[Artefact], None] | None = None,
        oracle: Oracle | None = None,
        hand: Callable[[KernelSource, Artefact], Artefact] | None = None,
        deadline_s: float | None = None,
        is_blocking: bool = False,
    ) -> tuple[Worker, Loaded]:
        """A fresh worker with the candidate loaded.

        Args:
            candidate: What it imports.
            built: Told of every kernel that it asked for and got.
            oracle: Whose weights it gets; the session's by default.
            hand: Names what it is given instead of a kernel that was built for it.
            deadline_s: Wall limit of the loading, seconds.
            is_blocking: See `WorkerSpec`.

        Raises:
            Faulted: It cannot be imported, built or constructed; the worker is gone.
        """
        if (size := len(candidate.source)) > MOST_SOURCE:
            reason = f"its text has {size:,} characters; at most {MOST_SOURCE:,} are read"
            raise Faulted(Fault(status=Status.INVALID_SOURCE, reason=reason, phase="load"))
        handed: list[Handed] = []

        def build(kernel: KernelSource) -> Artefact | BuildFailure:
            answer = self.compiler.build(kernel)
            if not isinstance(answer, Artefact):
                return answer
            if built is not None:
                built(answer)
            handed.append(Handed(kernel, answer))
            return hand(kernel, answer) if hand is not None else answer

        if self._ahead is not None:
            self._ahead.wait_for(candidate)
        spec = self._spec("candidate", candidate.source, "ModelNew")
        spec = spec.model_copy(update={"is_blocking": is_blocking})
        worker, loaded = self._loaded(spec, build, oracle, deadline_s)
        self._handed[worker] = handed
        if hand is None:
            self._built[candidate.sha] = handed
        return worker, loaded

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Say which candidates come next: their kernels are built while the device measures.

        For the processor nothing is: what is built takes the cores that are timed.
        """
        if self.gpu is None:
            return
        if self._ahead is None:
            self._ahead = self._begin_ahead()
            self._stack.callback(self._ahead.close)
        self._ahead.begin(candidates)

    def _begin_ahead(self) -> Ahead:
        hidden = () if self.task.path is None else (Path(self.task.path),)
        preload = _preloads(self.place)[0]
        spec = WorkerSpec(
            role="candidate",
            source="",
            threads=1,
            memory_bytes=GPU_HOST_BYTES,
            run_s=self.config.run_s,
            build_s=self.config.compile_s,
        )
        return Ahead(
            WorkerPool(self.config.cache, hidden=hidden, preload=preload),
            spec,
            self.compiler.build,
            (self.oracle.init_args, self.oracle.init_kwargs),
        )

    def handed(self, worker: Worker) -> tuple[Handed, ...]:
        """The kernels that were built for a candidate's worker so far."""
        return tuple(self._handed.get(worker, ()))

    def built(self, candidate: Candidate) -> tuple[Handed, ...]:
        """The kernels that a candidate asked for when it was loaded last.

        Raises:
            Faulted: It had to be loaded first, and cannot be.
        """
        if candidate.sha not in self._built:
            self.fork(candidate)[0].kill()
        return tuple(self._built[candidate.sha])

    def fork_reference(self, role: Literal["eager", "compile"]) -> tuple[Worker, Loaded]:
        """A fresh trusted worker with the reference loaded."""
        return self._loaded(self._spec(role, self.task.source, "Model"))

    def quick(self, config: BenchConfig) -> Session:
        """The same processes, truth and device, judged with less; closed with this session."""
        other = copy.copy(self)
        other.config = config
        other.cases = self.telling_cases
        return other

    def stage(self) -> Stage | GpuStage:
        """What empties caches for timed calls; begun at the first need."""
        if self.gpu is not None:
            return GpuStage(self.gpu, self.device.flush_bytes)
        if self._stage is None or not self._stage.worker.is_alive:
            self._stage = Stage.set_up(
                self.pool, self.threads, self.device.flush_bytes, self._bytes(), self.compiler.build
            )
        return self._stage

    def put_timed(self, worker: Worker) -> None:
        """Give a worker the input sets that timed repetitions draw from."""
        sizes = self.oracle.expected(self.cases[0]).output_bytes
        for case in self.oracle.timed_cases():
            slots = 1 if self.oracle.is_large else SLOTS
            worker.put(case.name, self.oracle.package(case), slots=slots, output_bytes=sizes)

    def drop_timed(self, worker: Worker) -> None:
        """Free them."""
        for case in self.oracle.timed_cases():
            worker.drop(case.name)

    def close(self) -> None:
        """End every process and give all memory back."""
        self._stack.close()

    def measure_again(self) -> None:
        """Measure the device's peaks once more; the caller holds the lock."""
        cache, known = self.config.cache, self.device
        if isinstance(known, GpuFacts):
            again = gpu_facts.measure_again(cache, known.index, self.compiler, known)
            self.device = again.at(known.precision)
        elif isinstance(known, DeviceFacts):
            self.device = devices.measure_again(cache, self.threads, self.compiler, known)

    def _facts(self) -> Roofline:
        cache = self.config.cache
        if self.gpu is None:
            settle = self.pool.settle
            return devices.device_facts(cache, self.threads, self.compiler, self.say, settle)
        from evokernel.bench.gpu import placing
        from evokernel.bench.gpu.memory import Account

        self._account = Account(self.place)
        self._stack.enter_context(placing.precision(self.task.options.precision == "tf32"))
        facts = gpu_facts.gpu_facts(cache, self.gpu, self.compiler, self.say)
        return facts.at(self.task.options.precision)

    def _families(self) -> tuple[str, ...]:
        general, own = self.oracle.input_families, self.oracle.own_families
        if self._bytes() <= SMALL_BYTES:
            return general
        if self.config.measurement == "standard":
            return tuple(name for name in general if name not in own[MOST_OWN:])
        return (*QUICK_FAMILIES, *own[:1])

    def _bytes(self) -> int:
        """Bytes of one call's inputs and outputs."""
        (normal,) = self.oracle.cases(("normal",))[:1]
        return self.oracle.package(normal).bytes + sum(self.oracle.expected(normal).output_bytes)

    def _spec(
        self, role: Literal["candidate", "eager", "compile"], source: str, class_name: str
    ) -> WorkerSpec:
        size = self._bytes()
        limit = self.config.memory_bytes or BASE_BYTES + ROOM * size + self.device.flush_bytes
        parts: dict[str, Any] = {"memory_bytes": limit}
        if self.gpu is not None:
            parts = {
                "memory_bytes": GPU_HOST_BYTES + HOST_ROOM * size,
                "device": self.place,
                "device_bytes": min(GPU_BASE_BYTES + ROOM * size, self.device.memory_bytes),
                "is_tf32": self.task.options.precision == "tf32",
            }
        return WorkerSpec(
            role=role,
            source=source,
            class_name=class_name,
            mode=self.task.options.mode,
            dtype=CASTS.get(self.task.options.precision),
            threads=self.threads,
            run_s=self.config.run_s,
            build_s=self.config.compile_s,
            **parts,
        )

    def _loaded(
        self,
        spec: WorkerSpec,
        build: Build | None = None,
        oracle: Oracle | None = None,
        deadline_s: float | None = None,
    ) -> tuple[Worker, Loaded]:
        oracle = oracle or self.oracle
        worker = self.pool.fork(spec, build or self.compiler.build)
        if self._account is not None:
            number = id(worker)
            self._account.born(number)
            worker.on_end = partial(self._account.ended, number)
        try:
            loaded = worker.load(
                oracle.init_args,
                oracle.init_kwargs,
                seed=oracle.reference.weights_seed,
                state=oracle.reference.state,
                deadline_s=deadline_s,
            )
        except BaseException:
            worker.kill()
            raise
        return worker, loaded


def _preloads(place: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What servers import beside torch, and what those of compile workers import, too.

    On a GPU what a worker would else spend seconds on; none of it opens CUDA when it is imported.
    What torch.compile needs may, so that its workers import it themselves.
    """
    if place == "cpu":
        return (), COMPILE_PRELOAD
    names = ("cupy", "triton", "evokernel.bench.gpu.side")
    return tuple(name for name in names if find_spec(name) is not None), ()


def _captured(program: Program) -> tuple[OpGraph | None, str]:
    try:
        return capture(program), ""
    except CaptureFailed as error:
        return None, f"work and traffic are unknown: {error}"
