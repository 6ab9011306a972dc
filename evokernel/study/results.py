"""Owns `Results`: an ablation's design, outcomes and comparisons, as a file."""

from collections.abc import Sequence
from pathlib import Path

from evokernel import __version__
from evokernel.frozen import Frozen
from evokernel.study.ablation import CONTROL, ORACLE, PLAIN, WITHOUT, Design, Outcome
from evokernel.study.effects import ArmEffect, Contrast, contrast, effects
from evokernel.study.recording import Recording
from evokernel.study.searches import SEARCHES

RIVALS = (CONTROL, PLAIN, "similarity", "evokernel", "placebo", *SEARCHES)
"""Whom each policy is compared with."""


class TaskFacts(Frozen):
    """What is known of one recorded task."""

    task: str
    family: str
    plans: int
    feasible: int
    headroom: float
    """Time of the plain plan over the best one's."""
    fixed: float
    """Speed of the fixed configuration as a share of the best, 0..1."""
    within_target: int
    """Plans within the target."""
    least_times: int
    """Fewest clean times of a feasible plan."""


class Results(Frozen):
    """Everything that an ablation says; all but `seconds` follows from design and recordings."""

    version: str = __version__
    design: Design
    device: str
    recorded: str
    """Days on which the tasks were recorded."""
    tasks: tuple[TaskFacts, ...]
    effects: tuple[ArmEffect, ...]
    contrasts: tuple[Contrast, ...]
    runs: int
    seconds: float
    """Wall seconds that the simulation took."""
    outcomes: tuple[Outcome, ...]

    def contrast(self, arm: str, opponent: str, setting: str) -> Contrast | None:
        """One comparison, or None where it was not made."""
        wanted = arm, opponent, setting
        return next((c for c in self.contrasts if (c.arm, c.opponent, c.setting) == wanted), None)


def results(
    plan: Design, recordings: Sequence[Recording], outcomes: Sequence[Outcome], seconds: float
) -> Results:
    """Compare every policy with its rivals, and put all of it together."""
    from evokernel.study.fixed import share

    counted = [r for r in recordings if r.subject.name in plan.tasks]
    policies = [arm for arm in plan.arms if arm not in {*WITHOUT, ORACLE}]
    found = (
        contrast(outcomes, arm, rival, setting, plan.budget)
        for setting in ("adaptation", "transfer")
        for arm in (*policies, ORACLE)
        for rival in RIVALS
        if arm != rival
    )
    return Results(
        design=plan,
        device=counted[0].machine if counted else "",
        recorded=", ".join(sorted({r.made for r in counted})),
        tasks=tuple(_facts(r, share(plan.fixed, r), plan.target) for r in counted),
        effects=effects(outcomes, plan.budget),
        contrasts=tuple(c for c in found if c is not None),
        runs=len({(o.arm, o.seed, o.task, o.setting) for o in outcomes}),
        seconds=round(seconds, 1),
        outcomes=tuple(outcomes),
    )


def write(found: Results, path: Path) -> None:
    """Write the results as JSON."""
    path.write_text(found.model_dump_json() + "\n", encoding="utf-8")


def read(path: Path) -> Results:
    """Read results back."""
    return Results.model_validate_json(path.read_bytes())


def _facts(recording: Recording, fixed: float, target: float) -> TaskFacts:
    feasible = [p for p in recording.points if p.typical_ms is not None]
    shares = [recording.best_ms / (p.typical_ms or 1.0) for p in feasible]
    return TaskFacts(
        task=recording.subject.name,
        family=recording.subject.graph.get("family", "unknown"),
        plans=len(recording.points),
        feasible=len(feasible),
        headroom=round(recording.headroom, 2),
        fixed=round(fixed, 3),
        within_target=sum(share >= target for share in shares),
        least_times=min(len(p.times_ms) for p in feasible),
    )
