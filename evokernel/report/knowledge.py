"""Owns `Knowledge`: the part of a memory that one page tells about."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from evokernel.frozen import Frozen
from evokernel.memory.changes import Changes, Revised
from evokernel.memory.evidence import Evidence
from evokernel.memory.experience import Entry, Experience, ExperienceStatus, Kind
from evokernel.memory.stats import Stats
from evokernel.memory.technique_table import TechniqueUse
from evokernel.memory.values import Value

if TYPE_CHECKING:
    from evokernel.memory.accounts import Account

SHOWN = 300
"""Experiences that a page shows unless asked for more: some 5 MB, which a phone still opens."""


class Scope(Frozen):
    """Which part of a memory is asked about."""

    kind: Kind | None = None
    """Only experiences of this kind."""
    family: str | None = None
    """Only experiences and techniques of tasks of this family."""
    status: ExperienceStatus | None = None
    """Only experiences with this status."""
    backend: str | None = None
    """Only experiences and techniques of this backend."""
    limit: int = SHOWN
    """Experiences at most."""
    since: float | None = None
    """From when on changes are told, Unix seconds; None tells none."""

    def in_words(self) -> str:
        """The filters, e.g. `kind edit, family softmax`; empty without any."""
        named = self.model_dump(mode="json", exclude={"limit", "since"}, exclude_none=True)
        return ", ".join(f"{name} {value}" for name, value in named.items())

    def holds(self, entry: Entry) -> bool:
        """Whether an experience fits the filters."""
        experience = entry.experience
        return (
            self.kind in {None, experience.kind}
            and self.family in {None, experience.family}
            and self.status in {None, entry.status}
            and self.backend in {None, experience.backend}
        )


class Known(Frozen):
    """One experience with all that belongs to it."""

    evidence: Evidence
    revisions: tuple[Revised, ...]
    """What people changed of it, oldest first."""
    parents: tuple[str, ...]
    """Ids of the kernels and lessons that its candidate was made from, where they are known."""
    children: tuple[str, ...]
    """Ids of what was made from its candidate, oldest first."""
    followers: tuple[str, ...]
    """Ids of what was made while it was shown, oldest first."""

    @property
    def entry(self) -> Entry:
        """The experience as it stands now."""
        return self.evidence.entry

    @property
    def experience(self) -> Experience:
        """The experience itself."""
        return self.evidence.entry.experience

    @property
    def added_at(self) -> float:
        """When it entered this memory, Unix seconds."""
        return self.evidence.history[0].at


class Knowledge(Frozen):
    """What a page tells of a memory."""

    policy: str
    """By whose rule the values are computed."""
    stats: Stats
    """Of the whole memory."""
    scope: Scope
    techniques: tuple[TechniqueUse, ...]
    """Over everything in scope, most tried first; those that were never tried last."""
    divided: tuple[TechniqueUse, ...]
    """The same by family, bottleneck and backend."""
    known: tuple[Known, ...]
    """What is shown: pinned ones, then in turn the most valuable and the newest."""
    fitting: int
    """Experiences in scope, shown or not."""
    summaries: dict[str, str]
    """What is said of every experience that others name, by id."""
    changes: Changes | None
    """What has become different in scope since its moment."""

    @property
    def left_out(self) -> int:
        """Experiences that fit the scope and are not shown."""
        return self.fitting - len(self.known)


def knowledge(account: "Account", scope: Scope) -> Knowledge:
    """Choose from a memory's account what one page tells."""
    fitting = [e for e in account.evidences if scope.holds(e.entry)]
    ids = {e.entry.experience.id for e in fitting}
    changes = _within(account.changes, ids) if account.changes else None
    known = tuple(_known(account, most_telling(fitting)[: scope.limit]))
    named = {id for one in known for id in (*one.parents, *one.children, *one.followers)}
    named |= {id for one in known for id in one.experience.origin.context}
    named |= set(_changed(changes)) if changes else set()
    said = ((e.entry.experience.id, e.entry.experience.summary) for e in account.evidences)
    return Knowledge(
        policy=account.policy,
        stats=account.stats,
        scope=scope,
        techniques=account.techniques,
        divided=account.divided,
        known=known,
        fitting=len(fitting),
        summaries={id: summary for id, summary in said if id in named},
        changes=changes,
    )


def best_value(evidence: Evidence) -> Value | None:
    """The larger of the values of an experience; None before its first reward."""
    judged = [value for value in evidence.values.values() if value.visits]
    return max(judged, key=lambda value: value.q, default=None)


def most_telling(evidences: Sequence[Evidence]) -> list[Evidence]:
    """Pinned ones first, then in turn the most valuable and the newest, each once.

    Args:
        evidences: Newest first.
    """
    pinned = [e for e in evidences if e.entry.is_pinned]
    worth = {e.entry.experience.id: best_value(e) for e in evidences}
    valued = [e for e in evidences if worth[e.entry.experience.id]]
    valued.sort(key=lambda e: -_q(worth[e.entry.experience.id]))
    turns = zip_longest(valued, evidences)
    in_turn = (evidence for turn in turns for evidence in turn if evidence is not None)
    return list({e.entry.experience.id: e for e in (*pinned, *in_turn)}.values())


def _q(value: Value | None) -> float:
    return value.q if value else 0.0


def _known(account: "Account", chosen: Iterable[Evidence]) -> Iterator[Known]:
    experiences = [e.entry.experience for e in reversed(account.evidences)]
    judged = _judged(experiences)
    children, followers = _offspring(experiences)
    revised: defaultdict[str, list[Revised]] = defaultdict(list)
    for change in account.revised:
        revised[change.experience].append(change)
    for evidence in chosen:
        id, origin = evidence.entry.experience.id, evidence.entry.experience.origin
        parents = ((origin.run, parent) for parent in origin.parents)
        yield Known(
            evidence=evidence,
            revisions=tuple(revised[id]),
            parents=tuple(judged[key] for key in parents if key in judged),
            children=tuple(children[origin.candidate]),
            followers=tuple(followers[id]),
        )


def _judged(experiences: Iterable[Experience]) -> Mapping[tuple[str, str], str]:
    """Ids of kernels and lessons by run and candidate: what says how a candidate was judged."""
    return {
        (e.origin.run, e.origin.candidate): e.id
        for e in experiences
        if e.kind in {"kernel", "lesson"}
    }


def _offspring(
    experiences: Iterable[Experience],
) -> tuple[defaultdict[str, list[str]], defaultdict[str, list[str]]]:
    """Ids of what was made from each candidate, and while each experience was shown."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    followers: defaultdict[str, list[str]] = defaultdict(list)
    for experience in experiences:
        for parent in experience.origin.parents:
            children[parent].append(experience.id)
        for shown in experience.origin.context:
            followers[shown].append(experience.id)
    return children, followers


def _within(changes: Changes, ids: set[str]) -> Changes:
    """The changes of some experiences."""
    return changes.model_copy(
        update={
            "added": tuple(id for id in changes.added if id in ids),
            "moved": tuple(move for move in changes.moved if move.experience in ids),
            "revised": tuple(change for change in changes.revised if change.experience in ids),
            "values": tuple(change for change in changes.values if change.experience in ids),
        }
    )


def _changed(changes: Changes) -> Iterator[str]:
    yield from changes.added
    yield from (move.experience for move in changes.moved)
    yield from (change.experience for change in changes.revised)
    yield from (change.experience for change in changes.values)
