"""Owns the table of a campaign: what everybody in the field reads.

`fast_p` is the share of tasks whose kernel is right and more than p times as fast, as KernelBench
defines it (arXiv 2502.10517, section 3): the first speedup counts, not its interval. Means are over
the tasks with a right kernel only; a table of losers would otherwise flatter whoever fails often.
"""

import math
import statistics
from pathlib import Path

from evokernel.answers import BASELINES
from evokernel.campaign import LINES, Entry
from evokernel.campaign.folder import CampaignFolder
from evokernel.evaluation import Interval
from evokernel.frozen import Frozen
from evokernel.record import RunRecord
from evokernel.record.outcome import FASTER, Outcome


class Row(Frozen):
    """One task that counts."""

    task: str
    status: str
    """`right`, `no kernel`, `failed`, or `going on`."""
    precision: str
    run: Path | None = None
    median_ms: float | None = None
    speedups: dict[str, Interval] = {}
    """By baseline: the second look's figure where there is one."""
    is_faster: dict[str, bool] = {}
    """By baseline: measurably, by the margin of the run."""
    attempts: int = 0
    flags: tuple[str, ...] = ()
    """What to know before believing it."""
    device: str = ""


class Excluded(Frozen):
    """One task that does not count, and why."""

    task: str
    reason: str


class Against(Frozen):
    """All tasks against one baseline."""

    measured: int
    """Right kernels with a time of this baseline beside them."""
    fast: dict[str, float]
    """Share of all tasks that count, by the speedup that is exceeded: `1`, `1.2`, `1.5`, `2`."""
    faster: int
    """Tasks whose interval lies above 1 + margin."""
    geometric_mean: float | None
    """Over right kernels."""
    median: float | None
    """Over right kernels."""


class Table(Frozen):
    """A campaign in numbers."""

    title: str
    path: Path
    tasks: int
    """That count: all but the excluded."""
    right: int
    """With a kernel that passed."""
    against: dict[str, Against]
    rows: tuple[Row, ...]
    excluded: tuple[Excluded, ...] = ()
    devices: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def share_right(self) -> float | None:
        """Of the tasks that count."""
        return self.right / self.tasks if self.tasks else None


def table(folder: CampaignFolder) -> Table:
    """Read what a campaign has come to, finished or not.

    Raises:
        RecordError: a run is damaged.
    """
    rows: list[Row] = []
    excluded: list[Excluded] = []
    for entry in folder.campaign.entries:
        found = _row(folder, entry)
        if isinstance(found, Row):
            rows.append(found)
        else:
            excluded.append(found)
    return Table(
        title=folder.campaign.title,
        path=folder.path,
        tasks=len(rows),
        right=sum(row.status == "right" for row in rows),
        against={name: _against(rows, name) for name in BASELINES},
        rows=tuple(rows),
        excluded=tuple(excluded),
        devices=tuple(sorted({row.device for row in rows if row.device})),
        seconds=folder.seconds,
    )


def _row(folder: CampaignFolder, entry: Entry) -> Row | Excluded:
    progress = folder.progress(entry)
    if progress.fault is not None and progress.fault.is_tasks:
        return Excluded(task=entry.name, reason=progress.fault.text)
    if progress.state == "open":
        return Excluded(task=entry.name, reason="not begun")
    if progress.run is None:
        text = progress.fault.text if progress.fault else ""
        precision = entry.config.precision or ""
        return Row(task=entry.name, status="failed", precision=precision, flags=(text,))
    return _of_run(entry, progress.run, progress.state)


def _of_run(entry: Entry, run: Path, state: str) -> Row:
    record = RunRecord.open(run)
    found = Outcome(record)
    best, task = found.best, record.task()
    speedups = {name: ratio for name in BASELINES if (ratio := found.ratio(name))}
    status = "right" if best else {"ended": "no kernel", "failed": "failed"}.get(state, "going on")
    environment = record.header.environment
    return Row(
        task=entry.name,
        status=status,
        precision=task.options.precision,
        run=run,
        median_ms=best.median_ms if best else None,
        speedups=speedups if best else {},
        is_faster={name: found.verdict(ratio) == FASTER for name, ratio in speedups.items()},
        attempts=len(found.attempts),
        flags=_flags(found, state),
        device=environment.get("gpu") or environment.get("processor", ""),
    )


def _flags(found: Outcome, state: str) -> tuple[str, ...]:
    options, bench = found.record.task().options, found.record.config.bench
    flags = [found.record.header.label] if found.record.header.label else []
    if options.precision in ("tf32", "fp16", "bf16"):
        flags.append(f"reduced precision ({options.precision}), for both sides")
    if options.tolerance.rtol is not None or options.tolerance.atol is not None:
        flags.append("a tolerance of its own")
    if (options.contract or bench.contract) == "library_allowed":
        flags.append("library calls allowed")
    if bench.measurement == "quick":
        flags.append("measured roughly (--quick)")
    if found.best is not None and found.second_look("eager") is None:
        flags.append("no second look in fresh processes")
    if state != "ended":
        flags.append("its run has not ended")
    return tuple(flags)


def _against(rows: list[Row], name: str) -> Against:
    values = [row.speedups[name].value for row in rows if name in row.speedups]
    count = len(rows)
    return Against(
        measured=len(values),
        fast={
            f"{line:g}": sum(value > line for value in values) / count if count else 0.0
            for line in LINES
        },
        faster=sum(row.is_faster.get(name, False) for row in rows),
        geometric_mean=math.exp(statistics.fmean(map(math.log, values))) if values else None,
        median=statistics.median(values) if values else None,
    )
