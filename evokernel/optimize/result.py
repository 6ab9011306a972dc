"""Owns `RunResult`: what a run has come to."""

from pathlib import Path
from typing import TYPE_CHECKING

from evokernel.answers import Answer, answers
from evokernel.attempt import Attempt
from evokernel.evaluation import Interval, Promotion
from evokernel.frozen import Frozen
from evokernel.record import RunRecord
from evokernel.record.spending import Spending, spending

if TYPE_CHECKING:
    import torch


class Best(Attempt):
    """The best attempt of a run, which can be loaded."""

    folder: Path
    """The run's."""

    def load(self, *, is_strict: bool = False) -> "torch.nn.Module":
        """The task's module with this kernel in it: same weights, same `state_dict`, same call.

        Calls that were not verified (other shapes, dtypes or strides, a gradient wanted) run the
        original and are counted in `module.evokernel`.

        Args:
            is_strict: Let them raise `OutsideVerifiedDomain` instead.

        Raises:
            PatchError: the kernel cannot take the module's place here.
        """
        from evokernel.export.patching import loaded

        return loaded(self.folder, is_strict=is_strict)


class RunResult(Frozen):
    """What a run has come to."""

    run: str
    """Its id."""
    path: Path
    """Its folder."""
    reason: str
    """Why it ended, in words; empty while it goes on."""
    attempts: int
    """Attempts that were judged."""
    seconds: float
    """Wall seconds, all sessions together."""
    best: Best | None
    """The fastest feasible attempt that no second look has refuted; None if there is none."""
    kernel: Path | None
    """File of the best kernel."""
    answers: tuple[Answer, ...] = ()
    """The five answers about the best kernel; none without one."""
    spending: Spending = Spending()
    """What the replies of a model cost; nothing without one."""
    second_look: Promotion | None = None
    """The best kernel's measurement over eager in fresh processes."""

    def speedup(self, against: str) -> Interval | None:
        """How much faster the best kernel is than `eager` or `compile`; None if not measured."""
        timing = self.best.evaluation.timing if self.best else None
        speedup = timing.against(against) if timing else None
        return speedup.ratio if speedup else None


def result_of(record: RunRecord, reason: str, seconds: float) -> RunResult:
    """Read from a run folder what its run has come to."""
    best = record.best()
    sha = best.proposal.candidate.sha if best else ""
    looks = [p for p in record.promotions() if p.claim == "kernel" and p.candidate == sha]
    return RunResult(
        run=record.id,
        path=record.path,
        reason=reason,
        attempts=len(record.attempts()),
        seconds=round(seconds, 3),
        best=Best(**dict(best), folder=record.path) if best else None,
        kernel=record.path / "best" / "kernel.py" if best else None,
        answers=answers(best.evaluation) if best else (),
        spending=spending(record),
        second_look=looks[-1] if looks else None,
    )
