"""Owns the numerical trials of one loaded candidate, before and after its timing."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from evokernel.bench import correctness
from evokernel.bench.beside import Beside, Earlier, Failure, Work
from evokernel.bench.judgement import check_inputs, judge
from evokernel.bench.messages import Outcome
from evokernel.bench.oracle import Case, Oracle
from evokernel.bench.pool import Worker
from evokernel.bench.reference import Expectation
from evokernel.evaluation import Correctness, Mismatch, Status

__all__ = ["Failure", "Trials"]

REPEATS = 2
"""More calls on the same bits, which must give the same bits as the first two."""

CHEAP_S, MORE_REPEATS = 0.002, 12
"""Calls that take less than so many seconds are repeated so much more often."""
MOST_CALLS, CALLS_S = 500, 0.15
"""Between two of the last calls, at most so many others, and about so many seconds of them."""


@dataclass
class Trials:
    """Runs the cases one after the other, the cheapest and most telling first; stops at a fault.

    What a call returned is compared while the worker is at the next one.

    Args:
        oracle: Makes inputs and judges.
        cases: What to run; the first is `normal` on the first workload.
        repeats: How often the first case is repeated bit by bit.
    """

    oracle: Oracle
    cases: tuple[Case, ...]
    repeats: int = REPEATS
    instrumented: Outcome | None = None
    """The call in which operators and launches were logged."""
    worst_ratio: float = 0.0
    comparisons: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: list[Case] = field(default_factory=list)
    _held: tuple[Case, Outcome] | None = field(default=None, init=False)
    """A call whose results the worker was told to keep."""

    def before(self, worker: Worker) -> Failure | None:
        """All cases, on poisoned memory; the first one several times."""
        first, *others = self.cases
        try:
            return self._first(worker, first) or self._others(worker, others)
        except Earlier as error:
            return error.failure

    def with_other_weights(self, worker: Worker, oracle: Oracle) -> Failure | None:
        """Judge a worker that has other weights by the oracle that has them, too."""
        other = Trials(oracle, oracle.weights_cases, repeats=0)
        failure = other.before(worker)
        self.worst_ratio = max(self.worst_ratio, other.worst_ratio)
        self.comparisons += other.comparisons
        self.mismatches += other.mismatches
        self.seen += other.seen
        if failure is None:
            return None
        reason = (
            f"with other values for constant weights, loaded after the constructor: "
            f"{failure.reason}; what a constructor makes of weights has to follow them"
        )
        return Failure(failure.status, reason)

    def after(self, worker: Worker, kept: Sequence[tuple[Case, Outcome]]) -> Failure | None:
        """Outputs of timed repetitions, then fresh values, after a number of calls once more.

        Then one case of each workload again, which nobody can foresee.
        """
        try:
            with Beside() as beside:
                for case, outcome in kept:
                    comparison = self._comparison(case, outcome, False, "in a timed repetition")
                    beside.begin(comparison)
                self._call_again(worker, beside)
                return beside.found()
        except Earlier as error:
            return error.failure

    def correctness(self) -> Correctness:
        """What has been found so far."""
        return Correctness(
            is_right=not self.mismatches,
            families=tuple(dict.fromkeys(case.family for case in self.seen)),
            workloads=tuple(dict.fromkeys(case.workload.name for case in self.seen)),
            comparisons=self.comparisons,
            worst_ratio=self.worst_ratio,
            tolerance=self.oracle.describe_tolerance(),
            mismatches=tuple(self.mismatches),
            notes=(*self.oracle.notes, *self.notes),
        )

    def _call_again(self, worker: Worker, beside: Beside) -> None:
        """Fresh values, after as many calls as nobody can foresee once more; then other cases."""
        when = "after it had been timed"
        for number, case in enumerate(self._again_cases()):
            self._put(worker, case)
            if number == 0:
                first = worker.run(case.name)
                beside.begin(self._comparison(case, first, when=when))
                most = min(MOST_CALLS, int(CALLS_S / max(first.seconds, 1e-6)))
                if most > 1:
                    worker.batch(case.name, calls=1 + secrets.randbelow(most))
            beside.begin(self._comparison(case, self._called(worker, case), when=when))
            worker.drop(case.name)

    def _again_cases(self) -> tuple[Case, ...]:
        """Fresh normal values, and one case of each workload, which nobody can foresee."""
        fresh = Case(self.cases[0].workload, "normal", draw=1)
        by_workload: dict[str, list[Case]] = {}
        for case in self.cases[1:]:
            by_workload.setdefault(case.workload.name, []).append(case)
        return (fresh, *map(secrets.choice, by_workload.values()))

    def _put(self, worker: Worker, case: Case) -> None:
        sizes = self.oracle.expected(case).output_bytes
        worker.put(case.name, self.oracle.package(case), output_bytes=sizes)

    def _first(self, worker: Worker, case: Case) -> Failure | None:
        """A plain call; one whose inputs are overwritten before results are read; repeats."""
        self._put(worker, case)
        first = worker.run(case.name)
        overwrite = not self.oracle.expected(case).aliased
        with Beside() as beside:
            beside.begin(self._comparison(case, first))
            late = worker.run(case.name, instrument=True, overwrite_inputs=overwrite)
            if failure := beside.found():
                return failure
        self.instrumented = late
        if failure := self._again(case, first, late):
            return failure
        if failure := self._repeat(worker, case, first, overwrite):
            return failure
        if late.threads_left:
            self.notes.append(f"a call left {late.threads_left} threads or processes running")
        worker.drop(case.name)
        return None

    def _others(self, worker: Worker, cases: Sequence[Case]) -> Failure | None:
        """One call on each."""
        with Beside() as beside:
            for number, case in enumerate(cases):
                self._put(worker, case)
                beside.begin(self._comparison(case, self._called(worker, case)))
                if number == 0 and (failure := beside.found() or self._still(worker)):
                    return failure
                worker.drop(case.name)
                if failure := beside.failure:
                    return failure
            return beside.found()

    def _repeat(self, worker: Worker, case: Case, first: Outcome, is_held: bool) -> Failure | None:
        """The same bits again, more often where that is cheap, there with one thread as well."""
        is_cheap = first.seconds < CHEAP_S and self.repeats > 0
        times = self.repeats + (MORE_REPEATS if is_cheap else 0)
        for number in range(times):
            is_last = is_held and number == times - 1
            again = worker.run(case.name, hold=is_last)
            if failure := self._again(case, first, again):
                return failure
            self._held = (case, again) if is_last else None
        if not is_cheap or worker.spec.threads == 1 or self.oracle.expected(case).modified:
            return None
        worker.probe(case.name, calls=1, threads=1)
        failure = self._judge(case, worker.kept(), are_inputs_told=False)
        return failure and Failure(failure.status, f"with one thread, {failure.reason}")

    def _still(self, worker: Worker) -> Failure | None:
        """Whether what an earlier call returned is still the same after one on other inputs."""
        if self._held is None:
            return None
        (case, before), self._held = self._held, None
        changed = correctness.same_bits(before.outputs, worker.held().outputs)
        if changed is None:
            return None
        text = f"a later call overwrote what an earlier one had returned: {changed}"
        return self._noted(case, Status.WRONG_VALUES, text)

    def _called(self, worker: Worker, case: Case) -> Outcome:
        overwrite = not self.oracle.expected(case).aliased
        return worker.run(case.name, overwrite_inputs=overwrite)

    def _comparison(
        self, case: Case, outcome: Outcome, are_inputs_told: bool = True, when: str = ""
    ) -> Work:
        """The comparison of an outcome, to be made in any thread: the oracle is this one's."""
        want = self.oracle.expected(case)
        return partial(self._compared, case, want, outcome, are_inputs_told, when)

    def _compared(
        self, case: Case, want: Expectation, outcome: Outcome, are_inputs_told: bool, when: str
    ) -> Failure | None:
        name, family = case.workload.name, case.family
        found = judge(name, family, want, outcome, are_inputs_told)
        self.worst_ratio = max(self.worst_ratio, found.worst_ratio)
        self.comparisons += found.comparisons
        self.seen.append(case)
        if found.fault is None:
            return None
        if found.mismatch is not None:
            self.mismatches.append(found.mismatch)
        where = f"on `{family}` inputs of workload `{name}`: {found.fault.detail}"
        return Failure(found.fault.status, f"{when}, {where}" if when else where)

    def _judge(self, case: Case, outcome: Outcome, are_inputs_told: bool = True) -> Failure | None:
        return self._comparison(case, outcome, are_inputs_told)()

    def _again(self, case: Case, first: Outcome, again: Outcome) -> Failure | None:
        """Compare a later call on the same bits with the first; the same bits are as right."""
        difference = correctness.same_bits(first.outputs, again.outputs)
        if difference is None and first.facts == again.facts:
            fault = check_inputs(self.oracle.expected(case), again)
            return self._noted(case, fault.status, fault.detail) if fault else None
        if (failure := self._judge(case, again)) is not None:
            reason = f"in a later call on the same inputs, {failure.reason}"
            return Failure(failure.status, reason)
        if difference is None or not self.oracle.reference.is_deterministic:
            return None
        text = f"two calls on the same inputs disagree: {difference}"
        return self._noted(case, Status.NONDETERMINISTIC, text)

    def _noted(self, case: Case, status: Status, detail: str) -> Failure:
        """A failure that is no comparison's."""
        name = case.workload.name
        self.mismatches.append(
            Mismatch(workload=name, family=case.family, output="", detail=detail)
        )
        return Failure(status, detail)
