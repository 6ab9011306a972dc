"""Owns the page of a memory: one HTML file that says what it knows."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evokernel.frozen import Frozen
from evokernel.report import changes_tables, knowledge_tables
from evokernel.report.html import write_page
from evokernel.report.knowledge import Knowledge, Scope, knowledge
from evokernel.report.knowledge_card import cards
from evokernel.report.places import Places, moment
from evokernel.report.technique_plot import technique_plot
from evokernel.wording import counted

if TYPE_CHECKING:
    from evokernel.memory.store import Memory


class MemoryReport(Frozen):
    """What was written."""

    page: Path
    experiences: int
    """In scope, shown or not."""
    shown: int
    """Of these, in the page."""
    techniques: int
    """That were tried."""
    since: str
    """From when on changes are told, ISO in UTC; empty where none are."""
    changes: str
    """How much has changed since, in one sentence; empty where none are told."""


class Tile(NamedTuple):
    """One large figure."""

    figure: str
    words: str
    mark: str = ""


def write_memory_report(
    memory: "Memory", scope: Scope, file: Path, names: Sequence[str] = ()
) -> MemoryReport:
    """Write the page of what a memory knows; the memory is only read.

    Args:
        memory: Open.
        scope: Which part of it.
        file: Where to.
        names: Techniques that are listed even where nothing is known of them.

    Raises:
        RecordError: The page cannot be written.
    """
    account = memory.account(scope.since, names, scope.family, scope.backend)
    known = knowledge(account, scope)
    _write(known, file)
    changes = known.changes
    return MemoryReport(
        page=file,
        experiences=known.fitting,
        shown=len(known.known),
        techniques=sum(use.attempts > 0 for use in known.techniques),
        since="" if scope.since is None else datetime.fromtimestamp(scope.since, UTC).isoformat(),
        changes=changes_tables.in_words(changes) if changes else "",
    )


def _write(known: Knowledge, file: Path) -> None:
    places = Places([one.experience.id for one in known.known], known.summaries)
    changes = known.changes
    write_page(
        file,
        "memory.html",
        title="What memory knows",
        subtitle=known.scope.in_words(),
        introduction=_introduction(known),
        tiles=_tiles(known),
        since=_day(known),
        change_words=changes_tables.in_words(changes) if changes else "",
        is_changed=changes is not None and not changes.is_empty,
        changes=tuple(changes_tables.groups(changes, places, known.summaries)) if changes else (),
        plot=technique_plot(known.techniques),
        techniques=knowledge_tables.techniques(known.techniques),
        untried=", ".join(
            use.technique for use in known.techniques if not knowledge_tables.is_known(use)
        ),
        lines=sum(map(knowledge_tables.is_known, known.divided)),
        divided=knowledge_tables.divided(known.divided),
        experiences=knowledge_tables.experiences(known.known, places),
        selection=_selection(known),
        cards=tuple(cards(known.known, places)),
        groups=knowledge_tables.groups(known.stats),
        stages=knowledge_tables.stages(known.stats),
        reading=READING,
    )


def _introduction(known: Knowledge) -> str:
    stats, scope = known.stats, known.scope.in_words()
    return (
        f"Memory {stats.place}, read on {moment(time.time())} UTC up to event "
        f"{stats.bank_version:,}. Values are computed by the rule of the policy {known.policy}. "
        "All times are UTC."
        + (f" Of its experiences only those of {scope} are told." if scope else "")
    )


def _tiles(known: Knowledge) -> Iterator[Tile]:
    stats = known.stats
    runs = counted(stats.runs, "run")
    active = sum(group.count for group in stats.groups if group.status == "active")
    yield Tile(f"{stats.experiences:,}", f"experiences from {runs}, {active:,} of them active")
    tried = [use for use in known.techniques if use.attempts]
    compared = sum(use.gain is not None for use in tried)
    yield Tile(f"{len(tried):,}", f"techniques tried, the gain of {compared} measured")
    rewards = sum(stage.rewards for stage in stats.stages)
    steps = sum(stage.retrievals for stage in stats.stages)
    yield Tile(f"{rewards:,}", f"rewards, of {counted(steps, 'step')} that asked this memory")
    seasoned = sum(stage.visited_thrice for stage in stats.stages)
    yield Tile(f"{seasoned:,}", "values from three rewards or more")
    if known.changes is not None:
        yield Tile(f"+{len(known.changes.added):,}", f"experiences since {_day(known)}", "best")


def _day(known: Knowledge) -> str:
    """The moment since which changes are told; empty where none are."""
    since = known.scope.since
    return "" if since is None else moment(since).removesuffix(" 00:00")


def _selection(known: Knowledge) -> str:
    """Which experiences are shown, and what was left out."""
    shown, scope = len(known.known), known.scope.in_words()
    of = f" of {scope}" if scope else ""
    if not known.left_out:
        return f"All {shown:,}{of}: what is pinned, then in turn the most valuable and the newest."
    return (
        f"{shown:,} of {known.fitting:,}{of}: what is pinned, then in turn the most valuable and "
        f"the newest. {known.left_out:,} are left out here, and counted in everything above; "
        "`evokernel memory report --limit N` shows more, `--kind`, `--family`, `--status` and "
        "`--backend` narrow it down."
    )


READING = (
    "Value: how much better a step goes when an experience is shown, one for each stage, learned "
    "from the rewards of the steps that it was shown to; 0 is an average experience. To draft: -1 "
    "to 1. To refine: in standard deviations of the rewards.",
    "The most valuable are those whose larger value is the largest.",
    "±: the standard deviation that the value has from chance, in the same units. Below three "
    "rewards a value says little.",
    "Rewards are listed as they were computed; those of refinements enter a value standardised, so "
    "that a small positive one may lower it.",
    "Everything that was shown together shares one reward: a value says in what company an "
    "experience does well, and is no measurement of the experience alone.",
    "Passed: the share of the judged candidates with a technique that were right, with Wilson's "
    "95 % interval. Gain: geometric mean over the edits that brought it in or took it out, with "
    "Student's 95 % interval; a single edit has none. An edit that changed several techniques "
    "counts for each: their gains cannot be told apart.",
    "Status: a claim waits in quarantine until it was measured again in fresh processes; then it "
    "is active, or suspect and hidden. Retired: right, but not shown any more. Tombstone: "
    "withdrawn for good. What was withdrawn or not confirmed is left out of the techniques.",
    "Then and now: values before a moment are what the rewards until then give by the rule of "
    "today, without what has been retracted since; techniques are counted over what was there "
    "then, with the status that it had.",
    "`evokernel memory show ID` tells all of one experience, `evokernel memory explain RUN/NUMBER` "
    "why a step was shown what it was shown.",
)
"""How to read the page."""
