"""Owns `LocalEvaluator`: judges candidates of one task on this machine, cheap checks first."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Self

from evokernel.attempt import Backend, Candidate
from evokernel.bench import (
    HARNESS,
    Baseline,
    Claim,
    Facts,
    Heard,
    Say,
    nobody,
    probes,
    profiler,
    promotion,
    provenance,
    silent,
    tuning,
)
from evokernel.bench.device import DeviceFacts
from evokernel.bench.gpu import attribution, choice
from evokernel.bench.gpu import profile as gpu_profile
from evokernel.bench.gpu.look import Lookout
from evokernel.bench.messages import Fault, Faulted, Loaded
from evokernel.bench.opponents import Opponents
from evokernel.bench.pool import Worker
from evokernel.bench.provenance import Subject
from evokernel.bench.race import race
from evokernel.bench.servers import WarmServers
from evokernel.bench.session import Session
from evokernel.bench.tally import Tally
from evokernel.bench.trials import REPEATS, Failure, Trials
from evokernel.bench.tries import KnownTries
from evokernel.compilers.choice import compiler_for
from evokernel.config import BenchConfig
from evokernel.errors import WorkerError
from evokernel.evaluation import Contract, Evaluation, Promotion, Status
from evokernel.profile import Profile
from evokernel.task import Task
from evokernel.tuning import Space, Tuning

FEW_REPEATS = 1
"""Bitwise repeats in the quick profile."""


class LocalEvaluator:
    """Implements `Evaluator` with a pool of worker processes on this machine.

    Args:
        task: What candidates are for.
        config: How they are judged.
        backend: The language of their kernels.
        say: Told in a few words what begins now.
        servers: Warm servers that it shares with other evaluators; None has its own.

    Raises:
        DeviceMissing: The backend needs a GPU, and none can be used.
    """

    def __init__(
        self,
        task: Task,
        config: BenchConfig,
        backend: Backend = "cpp",
        say: Say = silent,
        servers: WarmServers | None = None,
    ) -> None:
        choice.require(backend)
        self.backend: Backend = backend
        self.task = task
        self.config = config
        self._say = say
        self._servers = servers
        self._session: Session | None = None
        self._opponents: Opponents | None = None
        self._waiting: dict[str, tuple[Worker, Loaded, float]] = {}
        self._lookout: Lookout | None = None
        self._quick: LocalEvaluator | None = None

    def baselines(self) -> tuple[Baseline, ...]:
        """Prepare and time the baselines once; later calls answer from memory."""
        return self._ready()[1].baselines()

    def tune(self, candidate: Candidate, heard: Heard = nobody) -> Tuning | None:
        """Search the values that it declares; each one is checked before it is timed."""
        space = Space.declared(candidate.source)
        if space is None or not space.is_open or not self.config.tune.tries:
            return None
        session = self._ready()[0]
        known = KnownTries(self.config, session.contract, self._facts())
        return tuning.search(session, space, candidate.backend, known, heard)

    def quick(self) -> LocalEvaluator:
        """The same for the quick profile, in this one's session: tries cost about a second each."""
        if self._quick is None:
            config = self.config.model_copy(
                update={"measurement": "quick", "baselines": ("eager",)}
            )
            quick = LocalEvaluator(self.task, config, self.backend, self._say)
            quick._session = self._ready()[0].quick(config)
            quick._opponents = Opponents(quick._session)
            self._quick = quick
        return self._quick

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Say which candidates come next, so that their kernels can be built meanwhile.

        On a GPU, on the processor's cores while the device measures; else nothing happens.
        """
        self._ready()[0].expect(candidates)

    def compile(self, candidate: Candidate) -> Evaluation | None:
        """Import it in a worker and build every kernel; the worker waits for `verify`."""
        tally = self._tally(candidate)
        self._discard()
        try:
            loaded = self._load(candidate)
        except Faulted as error:
            return tally.faulted(error.fault)
        except WorkerError as error:
            return tally.failed(Failure(Status.INFRASTRUCTURE, str(error)))
        self._waiting[candidate.sha] = loaded
        return None

    def verify(self, candidate: Candidate) -> Evaluation:
        """Judge it completely: build, correctness, contract, time; the first failure returns."""
        tally = self._tally(candidate)
        try:
            waiting = self._waiting.pop(candidate.sha, None)
            worker, loaded, seconds = waiting or self._load(candidate)
            with worker:
                tally.loaded(loaded, seconds)
                return self._judge(candidate, worker, loaded, tally)
        except Faulted as error:
            return tally.faulted(self._attributed(candidate, error.fault))
        except WorkerError as error:
            return tally.failed(Failure(Status.INFRASTRUCTURE, str(error)))

    def profile(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """Add a `Profile` to the evaluation of a passed candidate."""
        if evaluation.timing is None:
            return evaluation
        self._say("looking for what bounds it")
        began = time.monotonic()
        digest = self._digest(candidate, evaluation.timing.median_ms)
        seconds = {**evaluation.seconds, "profile": round(time.monotonic() - began, 4)}
        return evaluation.model_copy(update={"profile": digest, "seconds": seconds})

    def _digest(self, candidate: Candidate, median_ms: float) -> Profile:
        session = self._ready()[0]
        if not isinstance(session.device, DeviceFacts):
            return gpu_profile.profile(session, self._looking(session), candidate, median_ms)
        evidence: probes.Evidence | None = None
        trouble: tuple[str, ...] = ()
        try:
            evidence = probes.examine(session, candidate)
        except (Faulted, WorkerError) as error:
            # It passed: what goes wrong now costs the evidence, not the verdict.
            trouble = (f"it could not be examined: {error}",)
        digest = profiler.digest(median_ms, session.graph, session.device, evidence)
        return digest.model_copy(update={"notes": (*digest.notes, *trouble)})

    def _looking(self, session: Session) -> Lookout:
        """What looks at kernels on a GPU, begun at the first need."""
        if self._lookout is None:
            gpu, is_brief = session.gpu or 0, self.config.measurement == "quick"
            self._lookout = Lookout(self.config.cache, session.turn, gpu, self._say, is_brief)
        return self._lookout

    def promote(self, claims: tuple[Claim, ...]) -> tuple[Promotion, ...]:
        """Look again at each claim in fresh processes; one that the machine spoiled stays open."""
        return promotion.promote(self._ready()[0], claims)

    def facts(self) -> Facts:
        """Machine, versions and protections that the verdicts rest on."""
        session = self._ready()[0]
        with session.fork_reference("eager")[0] as worker:
            protections = worker.protections
        return Facts(
            harness=HARNESS,
            device=session.device.fingerprint,
            peaks=session.device.in_words(),
            system=platform.platform(),
            python=platform.python_version(),
            torch=version("torch"),
            compiler=session.compiler.identity(),
            threads=session.threads,
            protections=protections.model_dump(mode="json"),
            cache_gbytes_per_s=session.device.rates[0].best,
            memory_gbytes_per_s=session.device.rates[-1].best,
            peak_gflops=session.device.ceiling_gflops,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing or limited for this task, in words."""
        session, opponents = self._ready()
        found = (session.graph_note, *session.oracle.notes, *opponents.notes)
        return tuple(note for note in found if note)

    def __enter__(self) -> Self:
        """Nothing is started before it is needed; a missing compiler is told at once.

        Raises:
            CompilerMissing: No compiler answers.
        """
        first: Backend = "cpp" if self.backend == "cpp" else "cuda"
        compiler_for(first, self.config.cache, self.config.compile_s)
        return self

    def __exit__(self, *exc: object) -> None:
        """End every process."""
        if self._quick is not None:
            self._quick._leave()
        self._leave()
        if self._session is not None:
            self._session.close()
        self._session = self._opponents = self._quick = None

    def _leave(self) -> None:
        """End what is this evaluator's own; the session may be another's."""
        self._discard()
        if self._lookout is not None:
            self._lookout.close()
        self._lookout = None

    def _ready(self) -> tuple[Session, Opponents]:
        """The session, begun at the first need."""
        if self._session is None or self._opponents is None:
            self._session = Session(self.task, self.config, self._say, self.backend, self._servers)
            self._opponents = Opponents(self._session)
        return self._session, self._opponents

    def _tally(self, candidate: Candidate) -> Tally:
        return Tally(candidate, self._facts())

    def _facts(self) -> dict[str, str]:
        """What every verdict of this evaluator rests on."""
        return {
            "task": self.task.sha,
            "harness": HARNESS,
            "device": self._ready()[0].device.fingerprint,
            "measurement": self.config.measurement,
        }

    def _load(self, candidate: Candidate) -> tuple[Worker, Loaded, float]:
        session = self._ready()[0]
        began = time.monotonic()
        worker, loaded = session.fork(candidate)
        return worker, loaded, time.monotonic() - began

    def _attributed(self, candidate: Candidate, fault: Fault) -> Fault:
        """A fault on the GPU by the kernel that made it."""
        session = self._ready()[0]
        if session.gpu is None or not attribution.is_on_device(fault):
            return fault
        self._say("looking for the kernel that failed")
        return attribution.attributed(session, candidate, fault)

    def _discard(self) -> None:
        """Kill workers that no `verify` came for."""
        while self._waiting:
            _, (worker, _, _) = self._waiting.popitem()
            worker.kill()

    def _judge(
        self, candidate: Candidate, worker: Worker, loaded: Loaded, tally: Tally
    ) -> Evaluation:
        session, opponents = self._ready()
        quick = self.config.measurement == "quick"
        trials = Trials(session.oracle, session.cases, FEW_REPEATS if quick else REPEATS)
        if loaded.state == "seeded":
            trials.notes.append(
                "its parameters have other names or shapes than the reference's: its weights are "
                "those of its own constructor under the same seed"
            )
        self._say("checking the results")
        with tally.phase("verify"):
            failure = trials.before(worker) or self._reweighed(candidate, loaded, trials)
        tally.took("first_call", worker.first_call_s)
        tally.add(correctness=trials.correctness(), log=worker.log)
        if failure is not None:
            return tally.failed(failure)
        self._say("looking at who did the work")
        with tally.phase("contract"):
            subject = Subject.of(session, candidate, worker, loaded, trials)
            kept, failure = provenance.examine(subject)
        tally.add(contract=kept)
        if failure is not None:
            return tally.failed(failure)
        return self._time(subject, kept, opponents, trials, tally)

    def _reweighed(self, candidate: Candidate, loaded: Loaded, trials: Trials) -> Failure | None:
        """Try it with other values for constant weights, in a process of its own."""
        session = self._ready()[0]
        if session.reweighed is None:
            return None
        if loaded.state != "loaded":
            trials.notes.append("constant weights kept their values: it makes weights of its own")
            return None
        worker, _ = session.fork(candidate, oracle=session.reweighed)
        with worker:
            return trials.with_other_weights(worker, session.reweighed)

    def _time(
        self,
        subject: Subject,
        kept: Contract,
        opponents: Opponents,
        trials: Trials,
        tally: Tally,
    ) -> Evaluation:
        session, worker = subject.session, subject.worker
        with tally.phase("time"):
            others = opponents.workers()
            session.put_timed(worker)
            raced = race(session, worker, others)
        if raced.failure is not None and raced.timing is None and not raced.kept:
            return tally.failed(raced.failure)
        self._say("checking the results again")
        with tally.phase("verify"):
            failure = trials.after(worker, raced.kept)
            if failure is None:
                kept, failure = provenance.again(subject, kept)
                tally.add(contract=kept)
            failure = failure or raced.failure
        tally.add(correctness=trials.correctness(), log=worker.log)
        if failure is not None:
            return tally.failed(failure)
        if raced.timing is not None:
            peaks = {"baseline_bytes": opponents.peaks()}
            tally.add(timing=raced.timing.model_copy(update=peaks))
        return tally.passed()
