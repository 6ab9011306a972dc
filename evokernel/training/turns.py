"""Owns `Turn`: one row of the exported trajectories, and how runs become rows.

The schema has a version. A column is never given another meaning: what changes gets another name,
and what is added raises the number behind the dot.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from evokernel.attempt import Attempt
from evokernel.evaluation import Promotion
from evokernel.frozen import Frozen
from evokernel.graphs.selection import Plan
from evokernel.record import RunRecord
from evokernel.training import rewards
from evokernel.training.returns import (
    GAMMA,
    Form,
    leave_one_out,
    returns,
    smoothed,
    speed_weights,
)

SCHEMA = "evokernel.turns/1.0"

Grouping = Literal["turn", "task"]


class Settings(Frozen):
    """How rewards become returns and advantages."""

    reward: str = "kevin"
    """Name of the reward."""
    form: Form = "sum"
    """How later turns count for earlier ones."""
    gamma: float | None = None
    """Discount; None is Kevin's for the form."""
    group: Grouping = "turn"
    """What is compared: the same turn of all trajectories of a task, or all of its turns."""

    @property
    def discount(self) -> float:
        """The discount that holds."""
        return GAMMA[self.form] if self.gamma is None else self.gamma


class Turn(Frozen):
    """One turn of one trajectory; a row."""

    schema_version: str = SCHEMA
    run: str
    task: str
    task_sha: str
    """Hash of the task's file: by this tasks are told apart."""
    reference: str
    """The task's file."""
    family: str
    """Family of its operators; `unknown` where they were not captured."""
    backend: str
    contract: str
    """`own_kernels_only` or `library_allowed`."""
    device: str
    """Fingerprint of the device."""
    measurement: str
    """`standard`, or `quick`: rough."""
    author: str
    """`templates`, a model's name, or `external`."""
    trajectory: str
    """`<run>/t<number>`."""
    turn: int
    """From 0, within the trajectory."""
    turns: int
    """Of the trajectory."""
    attempt: int
    """Number within the run."""
    stage: str
    """`draft` or `refine`."""
    parents: tuple[int, ...]
    """Attempts that it was made from."""
    shown: tuple[str, ...]
    """Ids of the experiences in its context."""
    prompt: str
    """What its author was shown; empty where it read no prompt."""
    reply: str
    """What its author answered, in full; empty likewise."""
    source: str
    """The candidate as it was judged; a comment where the reply held none."""
    techniques: tuple[str, ...]
    status: str
    outcome: str
    reason: str
    """Why it did not pass."""
    is_right: bool
    """Compiles, right, contract kept: the first half of the decoupled reward."""
    median_ms: float | None
    eager: float | None
    """Speedup over eager, first measurement."""
    eager_low: float | None
    """Lower bound of its 95 % interval."""
    eager_high: float | None
    compile: float | None
    """Speedup over torch.compile."""
    compile_low: float | None
    compile_high: float | None
    confirmed: bool | None
    """Whether fresh processes confirmed the kernel; None where nobody looked again."""
    confirmed_eager: float | None
    """Speedup over eager in fresh processes."""
    coverage: float | None
    """Share of a call inside its own kernels."""
    reward_evokernel: float | None
    reward_kevin: float | None
    reward_milestone: float | None
    reward_sigmoid: float | None
    reward_cuda_l1: float | None
    reward_dr_kernel: float | None
    reward_name: str
    """Which of them `reward` is."""
    reward: float | None
    value: float | None
    """Its return: what this turn and those after it earned, discounted."""
    form: str
    gamma: float
    group: str
    """Rows with the same group are compared with each other."""
    group_size: int
    """Rows of the group that have a return."""
    advantage: float | None
    """Leave-one-out advantage of `value`; None in a group of one."""
    smoothed: float | None
    """`reward` standardised within the group and clipped, as CUDA-L1 does."""
    speed_weight: float | None
    """Weight by speed among the right ones of the group: the second half of the decoupled one."""
    tokens_in: int
    tokens_out: int
    usd: float | None
    """None where the price is unknown."""


def turns(records: Iterable[RunRecord], settings: Settings) -> tuple[Turn, ...]:
    """The rows of runs, in order; what a person gave the run to start from is none.

    Raises:
        ConfigError: no such reward.
        RecordError: a damaged run.
    """
    rewards.reward_of(settings.reward)
    return _compared([row for record in records for row in _of_run(record, settings)])


def _of_run(record: RunRecord, settings: Settings) -> list[Turn]:
    trajectories: dict[int, list[Attempt]] = defaultdict(list)
    facts: dict[int, rewards.Facts] = {}
    best_ms = math.inf
    for attempt in record.attempts():
        known = best_ms if math.isfinite(best_ms) else None
        facts[attempt.number] = rewards.facts(attempt, known)
        best_ms = min(best_ms, attempt.median_ms or math.inf)
        if not _is_given(record, attempt):
            trajectories[attempt.trajectory].append(attempt)
    return [
        row
        for number, attempts in sorted(trajectories.items())
        for row in _of_trajectory(record, settings, number, attempts, facts)
    ]


def _is_given(record: RunRecord, attempt: Attempt) -> bool:
    """Whether it is a kernel that the user gave the run to start from."""
    if not record.config.search.start or not record.has(attempt.number, "plan"):
        return False
    return record.load(attempt.number, "plan", Plan).start is not None


def _of_trajectory(
    record: RunRecord,
    settings: Settings,
    number: int,
    attempts: Sequence[Attempt],
    facts: dict[int, rewards.Facts],
) -> list[Turn]:
    earned = [rewards.reward_of(settings.reward)(facts[a.number]) for a in attempts]
    # A turn that a rule cannot judge earns nothing, and keeps its place.
    values = returns([reward or 0.0 for reward in earned], settings.discount, settings.form)
    scene = _Scene(record)
    rows = []
    for turn, attempt in enumerate(attempts):
        about = {
            "trajectory": f"{record.id}/t{number}",
            "turn": turn,
            "turns": len(attempts),
            "reward_name": settings.reward,
            "reward": earned[turn],
            "value": None if earned[turn] is None else values[turn],
            "form": settings.form,
            "gamma": settings.discount,
            "group": scene.group(turn if settings.group == "turn" else None),
            **{
                f"reward_{name.replace('-', '_')}": rewards.reward_of(name)(facts[attempt.number])
                for name in rewards.NAMES
            },
        }
        rows.append(Turn.model_validate({**scene.told(attempt), **about}))
    return rows


class _Scene:
    """What the rows of one run have in common, and what an attempt adds."""

    def __init__(self, record: RunRecord) -> None:
        task, graph = record.task(), record.graph()
        self._numbers = {a.proposal.candidate.sha: a.number for a in reversed(record.attempts())}
        self._looks: dict[str, Promotion] = {
            p.candidate: p for p in record.promotions() if p.claim == "kernel"
        }
        self._common = {
            "run": record.id,
            "task": task.name,
            "task_sha": task.sha,
            "reference": task.source,
            "family": graph.family if graph else "unknown",
            "backend": record.config.backend,
            "contract": task.options.contract or record.config.bench.contract,
            "author": record.config.proposer,
        }
        self._device = record.header.environment.get("device", "")

    def group(self, turn: int | None) -> str:
        """Numbers of different devices or contracts are not compared."""
        names = [self._common[n] for n in ("task_sha", "backend", "contract")] + [self._device]
        return "/".join(str(part) for part in (*names, *([] if turn is None else [f"turn{turn}"])))

    def told(self, attempt: Attempt) -> dict[str, object]:
        """The facts of one attempt."""
        proposal, evaluation = attempt.proposal, attempt.evaluation
        look = self._looks.get(proposal.candidate.sha)
        return {
            **self._common,
            "device": evaluation.device or self._device,
            "measurement": evaluation.measurement,
            "attempt": attempt.number,
            "stage": proposal.stage.value,
            "parents": tuple(self._numbers[s] for s in proposal.parents if s in self._numbers),
            "shown": attempt.shown,
            "prompt": proposal.prompt,
            "reply": proposal.reply,
            "source": proposal.candidate.source,
            "techniques": proposal.techniques,
            "status": evaluation.status.value,
            "outcome": evaluation.outcome,
            "reason": evaluation.reason,
            "is_right": evaluation.status.is_feasible,
            "median_ms": attempt.median_ms,
            **_bounds(attempt, "eager"),
            **_bounds(attempt, "compile"),
            "confirmed": look.holds if look else None,
            "confirmed_eager": _finite(look.ratio.value) if look and look.ratio else None,
            "coverage": evaluation.contract.coverage if evaluation.contract else None,
            "tokens_in": proposal.usage.tokens_in,
            "tokens_out": proposal.usage.tokens_out,
            "usd": proposal.usage.usd,
            "group_size": 0,
            "advantage": None,
            "smoothed": None,
            "speed_weight": None,
        }


def _bounds(attempt: Attempt, against: str) -> dict[str, float | None]:
    timing = attempt.evaluation.timing
    found = timing.against(against) if timing else None
    ratio = found.ratio if found else None
    return {
        against: _finite(ratio.value) if ratio else None,
        f"{against}_low": _finite(ratio.low) if ratio else None,
        f"{against}_high": _finite(ratio.high) if ratio else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _compared(rows: Sequence[Turn]) -> tuple[Turn, ...]:
    """Fill in what needs the whole group."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.value is not None:
            groups[row.group].append(index)
    added: dict[int, dict[str, float | int | None]] = {}
    for members in groups.values():
        chosen = [rows[index] for index in members]
        advantages = leave_one_out([row.value or 0.0 for row in chosen])
        clipped = smoothed([row.reward or 0.0 for row in chosen])
        weights = speed_weights([row.eager if row.is_right else None for row in chosen])
        for place, index in enumerate(members):
            added[index] = {
                "group_size": len(members),
                "advantage": advantages[place] if advantages else None,
                "smoothed": clipped[place],
                "speed_weight": weights[place],
            }
    return tuple(row.model_copy(update=added.get(i, {})) for i, row in enumerate(rows))
