"""Owns `Session`: what judging one task on this machine needs, made once and closed once."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal
from weakref import WeakKeyDictionary

from evokernel.attempt import Candidate
from evokernel.bench import Say, silent
from evokernel.bench import device as devices
from evokernel.bench.device import CPU, DeviceFacts
from evokernel.bench.disturbance import device_lock
from evokernel.bench.evidence import Handed
from evokernel.bench.messages import Fault, Faulted, Loaded, WorkerSpec
from evokernel.bench.oracle import BUDGET_BYTES, Case, Oracle
from evokernel.bench.pace import QUICK, STANDARD, Pace
from evokernel.bench.pool import Build, Worker, WorkerPool
from evokernel.bench.reference import free_bytes
from evokernel.bench.stage import Stage
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.choice import EveryCompiler
from evokernel.config import BenchConfig
from evokernel.errors import WorkerError
from evokernel.evaluation import Status
from evokernel.opgraph import CaptureFailed, OpGraph, capture
from evokernel.program import CASTS, Program
from evokernel.task import Task

SLOTS = 2
"""Addresses that each timed input set takes in turn; one where inputs are large."""
BASE_BYTES = 2 << 30
"""Address space of a worker for code, thread stacks and arenas."""
ROOM = 16
"""Copies of inputs and outputs that a worker may hold: the harness's own and the candidate's."""
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

    Raises:
        TaskError: The task's file fails.
        CompilerMissing: No compiler answers.
    """

    def __init__(self, task: Task, config: BenchConfig, say: Say = silent) -> None:
        self.task = task
        self.config = config
        self.say = say
        self.threads = config.threads or len(os.sched_getaffinity(0))
        self.secret = secrets.randbits(62) if config.seed is None else config.seed
        self.rng = random.Random(f"{self.secret}/order")
        self.compiler = EveryCompiler(config.cache, config.compile_s)
        self.has_looked_again = False
        """The peaks were measured again for a candidate that seemed too fast."""
        self._stage: Stage | None = None
        self._handed: WeakKeyDictionary[Worker, list[Handed]] = WeakKeyDictionary()
        self._stack = ExitStack()
        say("starting the measuring processes")
        file = () if task.path is None else (Path(task.path),)
        self.pool = self._stack.enter_context(WorkerPool(config.cache, hidden=file))
        self.pool.warm(self.threads)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        self.program: Program = self.task.program()
        self.graph, self.graph_note = _captured(self.program)
        self.device: DeviceFacts = devices.device_facts(
            self.config.cache, self.threads, self.compiler, self.say
        )
        self.say("computing what is right")
        self.oracle = Oracle(
            self.program, self.secret, self.graph, min(BUDGET_BYTES, free_bytes() // 8)
        )
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

    @contextmanager
    def lock(self) -> Iterator[None]:
        """The device lock, to be held while anything is timed.

        Raises:
            WorkerError: The lock stayed taken.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(device_lock(CPU, 0.0))
            except WorkerError:
                self.say("waiting for another EvoKernel process that measures on this machine")
                stack.enter_context(device_lock(CPU, LOCK_S))
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
    ) -> tuple[Worker, Loaded]:
        """A fresh worker with the candidate loaded.

        Args:
            candidate: What it imports.
            built: Told of every kernel that it asked for and got.
            oracle: Whose weights it gets; the session's by default.
            hand: Names what it is given instead of a kernel that was built for it.
            deadline_s: Wall limit of the loading, seconds.

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

        spec = self._spec("candidate", candidate.source, "ModelNew")
        worker, loaded = self._loaded(spec, build, oracle, deadline_s)
        self._handed[worker] = handed
        return worker, loaded

    def handed(self, worker: Worker) -> tuple[Handed, ...]:
        """The kernels that were built for a candidate's worker so far."""
        return tuple(self._handed.get(worker, ()))

    def fork_reference(self, role: Literal["eager", "compile"]) -> tuple[Worker, Loaded]:
        """A fresh trusted worker with the reference loaded."""
        return self._loaded(self._spec(role, self.task.source, "Model"))

    def stage(self) -> Stage:
        """What empties caches for timed calls; begun at the first need."""
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
        limit = self.config.memory_bytes or BASE_BYTES + ROOM * self._bytes()
        return WorkerSpec(
            role=role,
            source=source,
            class_name=class_name,
            mode=self.task.options.mode,
            dtype=CASTS.get(self.task.options.precision),
            threads=self.threads,
            memory_bytes=limit + self.device.flush_bytes,
            run_s=self.config.run_s,
            build_s=self.config.compile_s,
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


def _captured(program: Program) -> tuple[OpGraph | None, str]:
    try:
        return capture(program), ""
    except CaptureFailed as error:
        return None, f"work and traffic are unknown: {error}"
