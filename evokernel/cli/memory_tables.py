"""Owns how experiences, evidence and statistics of the memory are laid out for people."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table

from evokernel.cli.wording import counted
from evokernel.memory import words
from evokernel.memory.experience import Entry

if TYPE_CHECKING:
    from evokernel.memory.evidence import Evidence
    from evokernel.memory.revision import Revision
    from evokernel.memory.search import Hit
    from evokernel.memory.snapshot import Refit
    from evokernel.memory.stats import IndexStats, Stats


def plain(entry: Entry, features: bool = False) -> dict[str, Any]:
    """One experience as plain values for JSON."""
    hidden = set() if features else {"features"}
    return {
        "id": entry.experience.id,
        "status": entry.status.value,
        "reason": entry.reason,
        "version": entry.version,
        "is_pinned": entry.is_pinned,
        **entry.experience.model_dump(mode="json", exclude=hidden),
    }


def experiences(entries: Sequence[Entry], hits: "Sequence[Hit]" = ()) -> Table:
    """One line for each; with their scores where they were searched for."""
    table = Table(box=None)
    for name in ("id", *(["score"] if hits else []), "status", "backend"):
        table.add_column(name, no_wrap=True)
    table.add_column("speed", no_wrap=True)
    table.add_column("family", overflow="fold")
    table.add_column("what", overflow="fold")
    for number, entry in enumerate(entries):
        experience = entry.experience
        score = [f"{hits[number].score:.2f}"] if hits else []
        row = (
            entry.status.value,
            experience.backend,
            words.speed(experience),
            experience.family,
        )
        table.add_row(experience.id, *score, *row, experience.summary)
    return table


def facts(evidence: "Evidence", descendants: int) -> Table:
    """Every field of one experience, and its values."""
    entry, experience = evidence.entry, evidence.entry.experience
    origin = experience.origin
    rows = {
        "id": experience.id,
        "summary": experience.summary,
        "status": f"{entry.status} ({entry.reason})" + (", pinned" if entry.is_pinned else ""),
        "note": experience.note or "none",
        "stage, backend": f"{experience.stage}, {experience.backend}",
        "task": f"{origin.task}, family {experience.family}, fingerprint {experience.fingerprint}",
        "techniques": ", ".join(experience.techniques) or "none",
        "bottleneck": experience.bottleneck,
        "outcome": experience.outcome,
        "measured": words.measured(experience),
        "made in": f"{origin.step} by {origin.proposer}",
        "candidate": f"{origin.candidate} from {', '.join(origin.parents) or 'nothing'}",
        "shown then": ", ".join(origin.context) or "nothing",
        "led to": counted(descendants, "other experience"),
    }
    rows |= {f"it {_ASKED[a.name]}": a.in_words() for a in experience.answers}
    for stage, value in evidence.values.items():
        spread = "" if value.spread is None else f" ± {value.spread:.2f}"
        known = f"{value.q:+.3f}{spread} after {counted(value.visits, 'visit')}"
        rows[f"value for {stage}"] = known if value.visits else "none: not shown yet"
    return _grid(rows)


_ASKED = {
    "compiles": "compiles",
    "right": "is right",
    "contract": "kept its contract",
    "faster": "is faster",
    "coverage": "works by itself",
}
"""The five answers as claims."""


def ledger(evidence: "Evidence") -> Table:
    """The steps in which it was shown, with what they earned."""
    table = Table("shown in", "stage", "task", "policy", "chance", "reward", box=None)
    for showing in evidence.showings:
        reward = "none" if showing.reward is None else f"{showing.reward:+.3f}"
        reward += "" if showing.counts else " (left out: retracted)"
        table.add_row(
            showing.step,
            showing.stage.value,
            showing.task,
            showing.policy,
            f"{showing.propensity:.2f}",
            reward,
        )
    return table


def revisions(changes: "Sequence[tuple[float, str, Revision]]") -> Table:
    """What people changed of it, oldest first."""
    table = Table("changed on", "reason", "to", box=None)
    for at, reason, change in changes:
        day = datetime.fromtimestamp(at, UTC).isoformat(" ", "minutes")
        fields = change.model_dump(exclude_none=True).items()
        told = "; ".join(f"{name}: {_words(value)}" for name, value in fields)
        table.add_row(day, reason, told)
    return table


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def statistics(stats: "Stats") -> list[Table]:
    """The memory as a whole, its groups of experiences, its stages."""
    facts = {
        "memory": stats.place,
        "embedder": stats.embedder,
        "experiences": f"{stats.experiences} from {counted(stats.runs, 'run')}",
        "events": stats.bank_version,
        "retrievals": ", ".join(f"{n} by {name}" for name, n in stats.policies.items()) or "none",
    }
    if stats.index is not None:
        facts["vector index"] = _index(stats.index)
    return [_grid(facts), _groups(stats), _stages(stats)]


def _index(index: "IndexStats") -> str:
    owner = f", in use by process {index.owner}" if index.owner else ""
    return f"up to event {index.watermark}, {counted(index.behind, 'item')} behind{owner}"


def _groups(stats: "Stats") -> Table:
    table = Table("backend", "kind", "status", "count", box=None)
    for group in stats.groups:
        table.add_row(group.backend, group.kind, group.status, str(group.count))
    return table


def _stages(stats: "Stats") -> Table:
    table = Table("", *(stage.stage.value for stage in stats.stages), box=None)
    for name, cells in {
        "retrievals": [str(stage.retrievals) for stage in stats.stages],
        "experiences shown": [str(stage.shown) for stage in stats.stages],
        "rewards": [str(stage.rewards) for stage in stats.stages],
        "mean reward": [_number(stage.mean_reward) for stage in stats.stages],
        "values": [str(stage.values) for stage in stats.stages],
        "from 3 rewards or more": [str(stage.visited_thrice) for stage in stats.stages],
        "lowest value": [_number(stage.lowest) for stage in stats.stages],
        "median value": [_number(stage.median) for stage in stats.stages],
        "highest value": [_number(stage.highest) for stage in stats.stages],
    }.items():
        table.add_row(name, *cells)
    return table


def changes(report: "Refit") -> Table:
    """Values that came out differently."""
    table = Table("experience", "stage", "before", "after", box=None)
    for change in report.changes:
        before, after = _number(change.before.q), _number(change.after.q)
        table.add_row(change.experience, change.stage.value, before, after)
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}"


def _grid(rows: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table
