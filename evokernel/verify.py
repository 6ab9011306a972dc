"""Owns the question whether a recorded result holds on this machine now."""

from collections.abc import Callable
from typing import Literal

from evokernel.answers import BASELINES, Answer, answers
from evokernel.bench.recheck import Recheck, recheck
from evokernel.evaluation import Evaluation, Interval, Status
from evokernel.export.claims import Claim
from evokernel.export.door import Check, checked
from evokernel.export.subject import Subject
from evokernel.frozen import Frozen
from evokernel.wording import with_interval

SLACK = 0.05
"""How far a speedup may lie below the recorded one, beyond both intervals (ours). A fresh process
has been seen to differ by up to 3 % within minutes (`benchmarks/repeatability.py`); days may do
more."""
UNTELLING = frozenset(
    {Status.INFRASTRUCTURE, Status.COMPILE_TIMEOUT, Status.TIMEOUT, Status.OUT_OF_MEMORY}
)
"""What a slower or smaller machine gives a right kernel, too."""
ELSEWHERE = frozenset({Status.COMPILE_ERROR, Status.CRASHED, Status.RUNTIME_ERROR})
"""What another device gives a right kernel, too: it lacks an instruction, or its compiler does."""


class Comparison(Frozen):
    """What became of one recorded speedup."""

    against: str
    """Baseline."""
    now: Interval | None
    """Measured now; None where the baseline does not run here."""
    now_processes: int = 0
    recorded: Interval | None
    """None where nothing was recorded."""
    recorded_processes: int = 0
    holds: bool
    said: str
    """The same in words."""


class Verification(Frozen):
    """Whether a result holds, and why not."""

    name: str
    """What was verified, as the user named it."""
    task: str
    candidate: str
    """Content hash."""
    holds: bool
    """Right, by its own means where that is demanded, and as fast as recorded."""
    undecided: bool = False
    """The machine was too busy to tell."""
    is_wrong: bool = False
    """It does not do what it should, on any machine and however fast it is."""
    found: Recheck
    answers: tuple[Answer, ...] = ()
    """The five answers, as they are now."""
    comparisons: tuple[Comparison, ...] = ()
    """With what was recorded, baseline by baseline."""
    door: tuple[Check, ...] = ()
    """What an exported file said of itself, run without EvoKernel; empty for other kinds."""
    is_same_device: bool | None = None
    """Whether it was recorded on this device; None where nothing was recorded."""
    memory: str = ""
    """What memory says against it, and what was done about that; empty where it says nothing."""
    label: str = ""
    """What the record says of itself first, such as that the task failed its check."""


def verify(subject: Subject, say: Callable[[str], None] = lambda text: None) -> Verification:
    """Judge and measure a kernel again, and compare with what was recorded.

    A recorded speedup holds when it is not slower than recorded, beyond both intervals and `SLACK`,
    and when what was faster is measurably faster again. Where nothing is recorded, a kernel holds
    that is measurably faster than every baseline.

    Raises:
        TaskError: The task's reference does not run here.
        CompilerMissing: There is no compiler.
    """
    door: tuple[Check, ...] = ()
    if subject.exported:
        say("letting the exported file check itself, without EvoKernel")
        door = checked(subject.exported)
    found = recheck(subject.task, subject.bench, subject.candidate, say)
    told = comparisons(subject, found)
    is_right = found.status is Status.PASSED and all(check.is_well for check in door)
    is_same_device = subject.claims.device == found.device if subject.claims else None
    return Verification(
        name=subject.name,
        task=subject.task.name,
        candidate=subject.candidate.sha,
        holds=is_right and all(comparison.holds for comparison in told),
        undecided=found.status is Status.INFRASTRUCTURE,
        is_wrong=not is_right and tells(found.status, is_same_device),
        found=found,
        answers=answers(_evaluation(subject, found)),
        comparisons=told,
        door=door,
        is_same_device=is_same_device,
        label=subject.claims.label if subject.claims else "",
    )


def tells(status: Status, is_same_device: bool | None) -> bool:
    """Whether a status says something of the kernel itself, not of the machine that it ran on.

    Args:
        status: What became of the kernel here.
        is_same_device: Whether it was recorded on this device; None where nothing was recorded.
    """
    return status not in UNTELLING and (is_same_device is not False or status not in ELSEWHERE)


def _evaluation(subject: Subject, found: Recheck) -> Evaluation:
    """What was found now, as the verdict that it is."""
    was_run = found.correctness is not None or found.contract is not None
    return Evaluation(
        candidate=subject.candidate.sha,
        task=subject.task.sha,
        status=found.status,
        reason=found.reason,
        compiles=True if was_run else None,
        correctness=found.correctness,
        contract=found.contract,
        timing=found.timing if found.status is Status.PASSED else None,
        device=found.device,
    )


def comparisons(subject: Subject, found: Recheck) -> tuple[Comparison, ...]:
    """Compare what was measured now with what was recorded, baseline by baseline."""
    if found.timing is None:
        return ()
    recorded = subject.claims.speedups if subject.claims else {}
    margin = subject.claims.margin if subject.claims else subject.bench.margin
    measured = {speedup.against: speedup.ratio for speedup in found.timing.speedups}
    names = [name for name in BASELINES if name in {*measured, *recorded}]
    return tuple(
        _comparison(name, measured.get(name), found.timing.processes, recorded.get(name), margin)
        for name in names
        if not recorded or name in recorded
    )


def _comparison(
    name: str, now: Interval | None, processes: int, before: Claim | None, margin: float
) -> Comparison:
    holds, said = _compared(now, before.ratio if before else None, margin)
    return Comparison(
        against=name,
        now=now,
        now_processes=processes if now else 0,
        recorded=before.ratio if before else None,
        recorded_processes=before.processes if before else 0,
        holds=holds,
        said=said,
    )


def _compared(now: Interval | None, before: Interval | None, margin: float) -> tuple[bool, str]:
    if now is None:
        return False, "it was recorded against this baseline, which does not run here"
    is_faster = now.low > 1 + margin
    if before is None:
        return is_faster, "faster" if is_faster else "not measurably faster; nothing was recorded"
    was = f"recorded {with_interval(before)}"
    if before.low > 1 + margin and not is_faster:
        return False, f"no longer measurably faster; {was}"
    match _place(now, before):
        case "below":
            return False, f"slower than {was}"
        case "above":
            return True, f"faster than {was}"
    return True, f"as {was}"


def _place(now: Interval, before: Interval) -> Literal["below", "within", "above"]:
    if now.high < before.low * (1 - SLACK):
        return "below"
    return "above" if now.low > before.high * (1 + SLACK) else "within"
