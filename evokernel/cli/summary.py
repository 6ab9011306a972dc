"""Owns what is said at the end of a run: what was reached, how, and how to use it."""

from collections import Counter
from pathlib import Path

from rich.text import Text

from evokernel.answers import BASELINES
from evokernel.attempt import Attempt
from evokernel.cli.board import change_of
from evokernel.cli.wording import (
    call_time,
    counted,
    duration,
    folded,
    times,
    with_interval,
)
from evokernel.config import NO_MODEL
from evokernel.record import RunRecord
from evokernel.record.outcome import FASTER, SAME, SLOWER, Outcome
from evokernel.record.spending import spending


class Summary:
    """What a run folder says about its run.

    Args:
        record: The run, finished or not.
        reason: Why it ended; empty for one that was interrupted.
        init_args: The constructor's arguments as Python text, e.g. `1024, eps=1e-05`.
    """

    def __init__(self, record: RunRecord, reason: str, init_args: str = "") -> None:
        self._record = record
        self._reason = reason
        self._init_args = init_args
        self._found = Outcome(record)
        self._attempts = self._found.attempts
        self._best = self._found.best

    def text(self, width: int | None) -> Text:
        """All of it, in lines of at most `width` columns; None leaves every paragraph whole."""
        text = Text("\n")
        headline, style = self._headline()
        text.append(folded(headline, width) + "\n", style)
        for name, line in self._facts():
            text.append(folded(line, width, _INDENT, f"  {name}") + "\n")
        history = self._history()
        if history:
            text.append("\nhow it got there\n", "bold")
        for name, line in history:
            text.append(folded(line, width, _INDENT, f"  {name}") + "\n")
        if self._best is not None:
            text.append("\nhow to use it\n", "bold")
            for line in snippet(self._kernel, self._init_args):
                text.append(f"  {line}\n")
        return text

    @property
    def _kernel(self) -> Path:
        return self._record.path / "best" / "kernel.py"

    # The outcome

    def _headline(self) -> tuple[str, str]:
        name = self._record.task().name
        if self._best is None and not self._reason:
            return f"{name}: no kernel passed yet", "bold yellow"
        if self._best is None:
            return f"{name}: no kernel passed", "bold red"
        ratios = [(n, ratio) for n in BASELINES if (ratio := self._found.ratio(n))]
        outcomes = [(n, self._found.verdict(ratio)) for n, ratio in ratios]
        said = "; ".join(
            f"{how} {' and '.join(BASELINES[n] for n, other in outcomes if other == how)}"
            for how in (FASTER, SAME, SLOWER)
            if how in dict(outcomes).values()
        )
        won = {how for _, how in outcomes} == {FASTER}
        return f"{name}: {said or 'right, but not timed'}", "bold green" if won else "bold yellow"

    def _facts(self) -> list[tuple[str, str]]:
        spent = f"{counted(len(self._attempts), 'attempt')} in {duration(self._found.seconds)}"
        ending = [
            *self._model(),
            ("run", f"{spent}; {self._reason or 'it was interrupted'}"),
            ("folder", f"{self._record.path}"),
            *([("note", label)] if (label := self._record.header.label) else []),
        ]
        if self._best is None:
            return [*self._failures(), *ending]
        return [*self._comparisons(), *self._kernel_facts(), ("kernel", f"{self._kernel}"), *ending]

    def _model(self) -> list[tuple[str, str]]:
        """Which model wrote the candidates, and what its replies cost."""
        name = self._found.record.config.proposer
        if name in NO_MODEL:
            return []
        return [("model", f"{name}: {spending(self._found.record).in_words()}")]

    def _failures(self) -> list[tuple[str, str]]:
        """What became of attempts none of which passed."""
        counts = Counter(a.evaluation.status.value for a in self._attempts)
        if not counts:
            return []
        found = [("failed", ", ".join(f"{n} {status}" for status, n in counts.most_common()))]
        last = self._attempts[-1]
        why = f"{last.evaluation.status}: {last.evaluation.reason}"
        place = self._record.path / "attempts" / f"{last.number:03}"
        return [*found, ("the last", f"{why} (all of it in {place})")]

    def _comparisons(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for name in BASELINES:
            first, second = self._found.speedup(name), self._found.second_look(name)
            ratio = self._found.ratio(name)
            if ratio is None or first is None:
                continue
            opponent = f"which takes {call_time(first.opponent_ms, first.opponent_wall_ms)}"
            line = f"{with_interval(ratio)} as fast as {BASELINES[name]}, {opponent}"
            if second is not None and second.ratio is not None:
                again = "confirmed" if self._found.verdict(ratio) == FASTER else "measured again"
                line += (
                    f"; {again} in {second.processes} fresh processes (first measurement: "
                    f"{times(first.ratio.value)})"
                )
            found.append(("" if found else "speedup", line))
        if found:
            found.append(("", "in brackets: 95 % interval of alternating measurements"))
        return found

    def _kernel_facts(self) -> list[tuple[str, str]]:
        assert self._best is not None
        timing, profile = self._best.evaluation.timing, self._best.evaluation.profile
        if timing is None:
            return []
        time = call_time(timing.median_ms, timing.wall_ms)
        found = [("time", f"{time} a call, {_samples(timing.samples)}")]
        share = profile.roofline_share if profile else None
        share = timing.roofline_share if share is None else share
        if share is not None:
            bound = f", bound by {profile.bound_by}" if profile and _is_known(profile) else ""
            found.append(("roofline", f"{share:.0%} of what this machine can do{bound}"))
        if tuning := self._best.proposal.tuning:
            found.append(("tuned", tuning.in_words()))
        return [*found, ("promotion", self._promotion())]

    def _promotion(self) -> str:
        assert self._best is not None
        sha = self._best.proposal.candidate.sha
        judged = {(p.claim, p.candidate): p for p in self._found.looks}
        kernels = [p for (claim, _), p in judged.items() if claim == "kernel"]
        held = sum(p.holds for p in kernels)
        said = f"{held} of {counted(len(kernels), 'kernel')} held in fresh processes"
        if ("kernel", sha) in judged:
            return f"{said}, this one among them"
        others = f"; {said}" if kernels else ""
        return f"this kernel was not measured again in fresh processes{others}"

    # The history

    def _history(self) -> list[tuple[str, str]]:
        return [(f"{a.number:>3}", self._step(a, parent)) for a, parent in self._found.descent()]

    def _step(self, attempt: Attempt, parent: Attempt | None) -> str:
        proposal = attempt.proposal
        change = change_of(proposal.changed, proposal.techniques, proposal.rationale)
        if attempt.median_ms is None:
            return f"{proposal.stage}: {change}: {attempt.evaluation.status}"
        wall_ms = attempt.evaluation.timing.wall_ms if attempt.evaluation.timing else None
        said = f"{proposal.stage}: {change}: {call_time(attempt.median_ms, wall_ms)}"
        if parent is None:
            return said
        if parent.median_ms is None:
            return f"{said}, repairs {parent.number}"
        gain = self._gain(attempt, parent)
        return f"{said}, {gain} as fast as {parent.number}" if gain else said

    def _gain(self, attempt: Attempt, parent: Attempt) -> str:
        """The parent's time over its child's: measured together if possible, else over eager."""
        if measured := self._found.measured_gain(attempt, parent):
            return with_interval(measured)
        estimated = self._found.estimated_gain(attempt, parent)
        return times(estimated) if estimated else ""


_INDENT = 13
"""Columns of the names at the left."""


def snippet(kernel: Path, init_args: str) -> tuple[str, str]:
    """Two lines of Python that make the best kernel's module."""
    return (
        "from runpy import run_path",
        f'model = run_path("{kernel}")["ModelNew"]({init_args})',
    )


def init_args(record: RunRecord) -> str:
    """The constructor's arguments as Python text, `...` for what a literal cannot say."""
    args, kwargs = record.task().program().init_inputs()
    return ", ".join([*map(_literal, args), *(f"{k}={_literal(v)}" for k, v in kwargs.items())])


def _literal(value: object) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return "..."


def _samples(number: int) -> str:
    return f"median of {counted(number, 'clean repetition')}"


def _is_known(profile: object) -> bool:
    return getattr(profile, "bound_by", "unknown") != "unknown"
