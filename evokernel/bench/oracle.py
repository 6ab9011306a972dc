"""Owns the truth about a task: secret inputs, expected values, and the judgement on outputs.

It lives in the trusted parent. What it expects never enters a candidate's worker; what it compares
are bytes that a worker has sent. It computes only when asked, never while anything is timed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from evokernel.bench import families, tolerance, weights
from evokernel.bench.families import Nature
from evokernel.bench.judgement import Judgement, judge
from evokernel.bench.messages import Bounds, Outcome, Variant
from evokernel.bench.reference import Expectation, Reference
from evokernel.bench.stock import Stock
from evokernel.bench.tensors import Package, pack, vary
from evokernel.errors import TaskError
from evokernel.evaluation import Status
from evokernel.opgraph import OpGraph
from evokernel.program import Program
from evokernel.task import Workload

TIMED_SETS = 2
"""Input sets that timed repetitions draw from; one where inputs are large."""
LARGE_BYTES = 256 << 20
"""Inputs from this size on are large: each worker holds several copies of every timed set."""
CHECKABLE = 2
"""Variants of each timed set whose expected values are known."""
BUDGET_BYTES = 2 << 30
"""Memory for inputs that are kept ready, and as much again for expected values."""
USUAL = "are the normal ones and were left out"


@dataclass(frozen=True)
class Case:
    """One set of inputs to compare on."""

    workload: Workload
    family: str
    """One of the families, `timed`, or `weights`: normal inputs with other weights."""
    keep_domain: bool = False
    """Uniform inputs keep their domain (see `families`)."""
    draw: int = 0
    """Which of several sets of the same family."""
    variant: Variant | None = None
    """Change of the inputs, for outputs of timed repetitions."""

    @property
    def name(self) -> str:
        """Unique name of the inputs before the variant."""
        return f"{self.workload.name}/{self.family}/{self.draw}/{int(self.keep_domain)}"


class Oracle:
    """Makes inputs from a secret seed, knows the expected values, and judges.

    Args:
        program: The task's reference, executed.
        seed: The session's secret.
        graph: The reference's operator graph, if it could be captured.
        budget_bytes: Memory for inputs, and as much again for expected values; what does not fit is
            made again when it is needed.
        redraw: Give weights that are constant other values (see `weights`).
        device: Where inputs and expected values lie and the reference runs, in memory of this
            process: `cpu`, or a GPU as torch names it.
    """

    def __init__(
        self,
        program: Program,
        seed: int,
        graph: OpGraph | None = None,
        budget_bytes: int = BUDGET_BYTES,
        redraw: bool = False,
        device: str = "cpu",
    ) -> None:
        self.program = program
        self.device = device
        self._seed = seed
        self._budget_bytes = budget_bytes
        self.reference = Reference(
            program, self.derive("weights"), graph, redraw=redraw, device=device
        )
        self.init_args, self.init_kwargs = program.init_inputs(self.reference.weights_seed)
        self._packages: Stock[Package] = Stock(
            budget_bytes, lambda package: package.bytes, lambda package: package.close()
        )
        self._expected: Stock[Expectation] = Stock(budget_bytes, lambda held: held.bytes)
        self._kinds: dict[str, tuple[Nature, ...]] = {}
        self._last: tuple[str, list[Any]] = ("", [])
        self._cases: dict[tuple[str, str], Case | None] = {}
        self._bounds: Bounds | None = None
        self._notes: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the checks."""
        return (*self.reference.notes, *self._notes)

    def derive(self, label: str) -> int:
        """A 62-bit seed for one purpose, from the secret."""
        digest = hashlib.sha256(f"{self._seed}/{label}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 2

    def with_other_weights(self) -> Oracle | None:
        """One for the same secret whose constant weights have other values.

        Returns:
            None where no weight is constant, or where the reference cannot take others.
        """
        if not weights.constant(self.reference.state):
            return None
        budget, graph = self._budget_bytes, self.reference.graph
        other = Oracle(self.program, self._seed, graph, budget, redraw=True, device=self.device)
        try:
            if all(other.expected(case).is_evidence for case in other.weights_cases):
                return other
            why = "gives no finite value with them"
        except TaskError as error:
            why = f"refuses them: {str(error).splitlines()[0]:.120}"
        other.close()
        self._notes.append(f"other values for constant weights were not tried: the reference {why}")
        return None

    @property
    def weights_cases(self) -> tuple[Case, ...]:
        """What is compared with other weights: normal inputs of the first workload."""
        return (Case(self.timed_workload, "weights"),)

    @property
    def input_families(self) -> tuple[str, ...]:
        """The input families for this task: those for all, then those for its operators."""
        return (*families.FAMILIES, *self.own_families)

    @property
    def own_families(self) -> tuple[str, ...]:
        """Those for the classes of its operators, the most telling first."""
        return families.of_graph(self.reference.graph)

    def cases(
        self, chosen: tuple[str, ...] | None = None, workload: Workload | None = None
    ) -> tuple[Case, ...]:
        """The cases that show something, in order.

        Args:
            chosen: Input families; all of them if not told.
            workload: The only one that is asked; every one if not told.

        Raises:
            TaskError: The reference fails on its own inputs, or shows nothing even there.
        """
        found = (
            self._usable(one, family)
            for one in ((workload,) if workload else self.program.workloads())
            for family in (self.input_families if chosen is None else chosen)
        )
        return tuple(case for case in found if case is not None)

    def inputs(self, case: Case) -> list[Any]:
        """The arguments of `forward` for a case, made afresh."""
        if case.variant is not None:
            return _varied(self.package(case), case.variant)
        if case.family in {"timed", "weights"} or case.draw > 0:
            return self._drawn(case.workload, case.name)
        seed, kinds = self.derive(case.workload.name), self._natures(case.workload)
        base = self._base(case.workload)
        made = families.apply(case.family, base, kinds, seed, case.keep_domain)
        return list(made)

    def package(self, case: Case) -> Package:
        """The case's inputs, before any variant, in shared memory; the oracle owns it.

        On a GPU they lie in device memory that nobody else has, and are copied for each worker.
        """
        plain = Case(case.workload, case.family, case.keep_domain, case.draw)
        return self._packages.get(plain.name, lambda: self._packed(self.inputs(plain)))

    def expected(self, case: Case) -> Expectation:
        """What is right for a case.

        Raises:
            TaskError: The reference refuses its inputs.
        """
        return self._expect(case, case.family in families.HARD)

    def _expect(self, case: Case, is_hard: bool) -> Expectation:
        is_exact = families.is_exact(case.family, self.reference.graph)
        return self._expected.get(
            f"{case.name}/{case.variant}/{is_hard}",
            lambda: self.reference.expect(self.inputs(case), case.workload, is_hard, is_exact),
        )

    def judge(
        self, case: Case, outcome: Outcome, are_inputs_told: bool = True, briefly: bool = False
    ) -> Judgement:
        """Compare one outcome: structure first, then inputs, then every element of every output.

        Args:
            case: What it was run on.
            outcome: What the candidate's worker sent.
            are_inputs_told: The outcome tells which inputs changed.
            briefly: Only whether it is right.
        """
        want, name = self.expected(case), case.workload.name
        found = judge(name, case.family, want, outcome, are_inputs_told, briefly)
        if found.fault and found.fault.status is Status.WRONG_VALUES and case.family == "timed":
            # Of so many comparisons one finds the reference lucky: then that is looked at, too.
            want = self._expect(case, is_hard=True)
            return judge(name, case.family, want, outcome, are_inputs_told, briefly)
        return found

    @property
    def timed_workload(self) -> Workload:
        """The workload that is timed: the first."""
        return self.program.workloads()[0]

    def timed_cases(self) -> tuple[Case, ...]:
        """The input sets that timed repetitions draw from, without variants."""
        sets = 1 if self.is_large else TIMED_SETS
        return tuple(Case(self.timed_workload, "timed", draw=draw) for draw in range(sets))

    @property
    def is_large(self) -> bool:
        """Whether the timed inputs are too large for many copies."""
        normal = self._usable(self.timed_workload, "normal")
        return normal is not None and self.package(normal).bytes >= LARGE_BYTES

    def variant(self, label: str, slot: int = 0) -> Variant:
        """A change of sign, scale, offset and place, fixed by the secret and the label.

        Sign, scale and offset alone would let a linear task's result follow from an earlier one.
        """
        bits = self.derive(f"variant/{label}")
        return Variant(
            **dict(self._bounded()),
            slot=slot,
            sign=1 if bits & 1 else -1,
            scale=0.5 + 1.5 * ((bits >> 1) % 1009) / 1009,
            offset=0.25 * (((bits >> 16) % 1009) / 1009 - 0.5),
            roll=bits >> 26,
        )

    def checkable(self, draw: int) -> tuple[Case, ...]:
        """Variants of one timed set whose expected values are kept."""
        return tuple(
            Case(self.timed_workload, "timed", draw=draw, variant=self.variant(f"{draw}/{index}"))
            for index in range(CHECKABLE)
        )

    def prepare(self, cases: tuple[Case, ...]) -> None:
        """Compute ahead what judging and timing a candidate need."""
        for case in cases:
            self.package(case)
            self.expected(case)
        self._last = ("", [])
        for case in self.timed_cases():
            self.package(case)
        self._settle()
        self._last = ("", [])
        for timed in self.timed_cases():
            for case in self.checkable(timed.draw):
                self.expected(case)

    def describe_tolerance(self) -> str:
        """The rule in words."""
        return tolerance.describe(self.program.task.options.tolerance, self.reference.depth)

    def close(self) -> None:
        """Give the shared memory back."""
        self._packages.clear()
        self._expected.clear()
        self._last = ("", [])
        if self.device != "cpu":
            from evokernel.bench.gpu import memory

            memory.give_back()

    def _bounded(self, moves: bool = True) -> Bounds:
        """What has to remain of timed inputs while they vary."""
        if self._bounds is None:
            workload, kinds = self.timed_workload, self._natures(self.timed_workload)
            negated = self._usable(workload, "negated")
            keep_domain = negated is None or negated.keep_domain
            self._bounds = families.bounds(self._base(workload), kinds, keep_domain, moves)
        return self._bounds

    def _settle(self) -> None:
        """Find out how far timed inputs may vary: integers too, without them, or not at all."""
        every = tuple(range(len(self._natures(self.timed_workload))))
        for moves in (True, False):
            self._bounds = None
            fixed = self._bounded(moves).fixed
            if self._can_vary():
                why = "none of them may have other values"
                break
        else:
            why, fixed = "the reference refuses inputs with other values", every
            self._bounds = Bounds(fixed=every)
        if fixed == every:
            self._notes.append(
                f"timed inputs alternate between two sets only: {why}, so that results that are "
                "remembered from one call to the next would not show"
            )

    def _can_vary(self) -> bool:
        """Whether the reference has answers to what timed inputs become."""
        try:
            timed = self.timed_cases()
            found = [self.expected(c) for case in timed for c in self.checkable(case.draw)]
        except TaskError:
            return False
        return all(want.is_evidence for want in found)

    def _base(self, workload: Workload) -> list[Any]:
        """Normal inputs, kept from one family to the next."""
        if self._last[0] != workload.name:
            self._last = (workload.name, self._drawn(workload, workload.name))
        return self._last[1]

    def _drawn(self, workload: Workload, label: str) -> list[Any]:
        """Arguments of `forward` from the secret, where the reference runs."""
        seed = self.derive(label)
        if self.device == "cpu":
            return self.program.make_inputs(workload, seed)
        from evokernel.bench.gpu import placing

        return placing.inputs_on(self.program, workload, seed, self.device)

    def _packed(self, inputs: list[Any]) -> Package:
        if self.device == "cpu":
            return pack(inputs)
        import torch

        from evokernel.bench.gpu.parcel import Parcel

        return Parcel.packed(inputs, torch.device(self.device))

    def _natures(self, workload: Workload) -> tuple[Nature, ...]:
        if workload.name not in self._kinds:
            self._kinds[workload.name] = families.natures(self._base(workload))
        return self._kinds[workload.name]

    def _usable(self, workload: Workload, family: str) -> Case | None:
        """The case in the freest domain that the reference accepts, or None if it shows nothing."""
        key = (workload.name, family)
        if key not in self._cases:
            self._cases[key] = self._find(workload, family)
        return self._cases[key]

    def _find(self, workload: Workload, family: str) -> Case | None:
        ignores = self.program.task.options.special_values == "ignore"
        if family in families.SPECIAL and ignores:
            return None
        kinds = self._natures(workload)
        tries = (False, True) if Nature.UNIFORM in kinds else (False,)
        for keep_domain in tries if family != "normal" else (False,):
            case = Case(workload, family, keep_domain)
            why = self._uselessness(case, kinds)
            if why is None:
                return case
            if why is not USUAL or family in families.FAMILIES:
                self._notes.append(f"`{family}` inputs of workload `{workload.name}` {why}")
        return None

    def _uselessness(self, case: Case, kinds: tuple[Nature, ...]) -> str | None:
        """Why a case shows nothing, or None."""
        if not families.changes(case.family, kinds, case.keep_domain):
            return USUAL
        try:
            want = self.expected(case)
        except TaskError as error:
            if case.family == "normal":
                raise
            return f"are refused by the reference: {str(error).splitlines()[0]:.120}"
        if case.family == "normal" and not want.is_evidence:
            raise TaskError(
                f"`{self.program.task.name}`: the reference gives no finite value on workload "
                f"`{case.workload.name}`, so that nothing can be compared; expected finite outputs"
            )
        if not want.is_evidence:
            return "give no finite value in any output of the reference and were left out"
        is_free = Nature.UNIFORM in kinds and not case.keep_domain and case.family != "special"
        if is_free and any(limits.has_pattern for limits in want.limits):
            return "leave the reference's domain and were drawn within it"
        return None


def _varied(package: Package, variant: Variant) -> list[Any]:
    """What a worker makes of the inputs for one timed repetition, bit for bit."""
    import torch

    flats = package.flats()
    made = [torch.empty_like(flat) for flat in flats]
    for index, (flat, out) in enumerate(zip(flats, made, strict=True)):
        vary(index, flat, out, variant)
    return list(package.value(made))
