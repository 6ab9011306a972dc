"""Owns `Exchange`: what a memory hands out as a bank, and what it takes over from one."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from evokernel import __version__
from evokernel.attempt import Candidate
from evokernel.frozen import Frozen
from evokernel.memory import exchange_rows
from evokernel.memory.admission import content_hash, situation_of
from evokernel.memory.events import Addition, Verdict
from evokernel.memory.exchange import RANKS, Bank, BankHeader, Held
from evokernel.memory.experience import Entry, ExperienceStatus
from evokernel.memory.retraction import CLAIMS
from evokernel.memory.upkeep import Upkeep
from evokernel.opgraph import OpGraph

BATCH = 500
"""Experiences whose texts are read at once."""


class TakenOver(Frozen):
    """What a bank brought."""

    new: tuple[str, ...]
    """Ids of the experiences that were not there."""
    known: int
    """Experiences that were there already."""
    changed: tuple[str, ...]
    """Ids of known ones whose status went up by it, e.g. because the other withdrew them."""
    rewards: int
    """Rewarded steps that were not there."""
    refused: tuple[str, ...] = ()
    """Ids of what claims something of another source than the one that it holds."""


class Exchange(Upkeep):
    """Hands out banks and takes them over."""

    def bank(
        self, name: str = "", statuses: Sequence[ExperienceStatus] = (), with_events: bool = True
    ) -> Bank:
        """Everything that is known, for other memories and for people.

        Args:
            name: What this memory is called in the file.
            statuses: Only experiences with one of these; all by default.
            with_events: Also what was asked, shown and earned: what values are made of.
        """
        with self._lock:
            self._sync()
            wanted = [i for i, s in self._shelf.statuses.items() if not statuses or s in statuses]
            header = BankHeader(
                made=datetime.now(UTC).isoformat(timespec="seconds"),
                by=__version__,
                sources=(name or self._journal.label,),
            )
            bank = Bank(header)
            slots = exchange_rows.places(self._journal)
            for first in range(0, len(wanted), BATCH):
                for entry in self._entries(wanted[first : first + BATCH]):
                    held = self._held(entry, slots)
                    bank.held[held.experience.id] = held
            tasks = {held.experience.fingerprint for held in bank.held.values()}
            graphs = exchange_rows.graphs(self._journal)
            bank.graphs = {name: body for name, body in graphs.items() if name in tasks}
            if with_events:
                for table, row in exchange_rows.events(self._journal):
                    bank.events[table, str(row["step"])] = row
            return bank

    def take_over(self, bank: Bank, is_trusted: bool = False) -> TakenOver:
        """Take what a bank holds and this memory does not; doing it again changes nothing.

        Without trust all of it enters in quarantine, and none of its rewards count: it is shown to
        nobody until it has been judged here. What claims something of another source than it holds
        is refused. With trust (a memory of one's own) statuses, measurements and rewards come
        along, and of two statuses the higher one holds (`exchange.RANKS`). Nothing of a bank is
        ever executed here.
        """
        with self._lock:
            self._sync()
            self._has_written = True
            before = dict(self._shelf.statuses)
            refused = (
                () if is_trusted else tuple(id for id, h in bank.held.items() if _is_forged(h))
            )
            graphs = {name: OpGraph.model_validate_json(b) for name, b in bank.graphs.items()}
            additions = [
                (self._incoming(held, graphs, bank, is_trusted), held.step, held.slot)
                for id, held in bank.held.items()
                if id not in before and id not in refused
            ]
            rows = [(t, row) for (t, _), row in bank.events.items() if t in exchange_rows.STEPS]
            rows = _with_known_only(rows, {*before, *bank.held}) if is_trusted else []
            with self._journal.together():
                new, rewards = exchange_rows.take_over(self._journal, bank.graphs, additions, rows)
                verdicts = self._raised(bank, before) if is_trusted else []
                self._journal.add_statuses(verdicts, f"merge/{bank.header.made}")
            self._sync()
            return TakenOver(
                new=tuple(id for id in bank.held if id in new),
                known=sum(id in before for id in bank.held),
                changed=tuple(verdict.experience for verdict in verdicts),
                rewards=rewards,
                refused=refused,
            )

    def _held(self, entry: Entry, slots: dict[str, str]) -> Held:
        experience = entry.experience
        return Held(
            experience=experience.model_copy(update={"features": ()}),
            step=self._shelf.cards[experience.id].step,
            slot=slots[experience.id],
            status=entry.status,
            reason=entry.reason,
        )

    def _incoming(
        self, held: Held, graphs: dict[str, OpGraph], bank: Bank, is_trusted: bool
    ) -> Addition:
        experience = held.experience
        situation = situation_of(experience, graphs.get(experience.fingerprint))
        status, reason = held.status, held.reason
        if not is_trusted:
            status = ExperienceStatus.QUARANTINE
            reason = f"imported from {', '.join(bank.header.sources)}, where it was {held.status}"
        vector: list[float] = self._embed(situation).tolist()
        return Addition(experience, content_hash(experience), vector, status, reason)

    def _raised(self, bank: Bank, before: dict[str, ExperienceStatus]) -> list[Verdict]:
        """Statuses that are higher in the bank than here."""
        return [
            Verdict(id, held.status, held.reason, held.experience.measurement)
            for id, held in bank.held.items()
            if id in before and RANKS[held.status.value] > RANKS[before[id].value]
        ]


def _is_forged(held: Held) -> bool:
    """Whether a claim is about another source than the one that comes with it.

    What is judged is the source; what is promoted by that is everything with its candidate's hash.
    """
    experience = held.experience
    source = experience.payload.get("source")
    if experience.kind not in CLAIMS or source is None or experience.backend == "neutral":
        return False
    return Candidate(source=source, backend=experience.backend).sha != experience.origin.candidate


def _with_known_only(
    rows: list[tuple[str, dict[str, object]]], known: set[str]
) -> list[tuple[str, dict[str, object]]]:
    """Rewards without the ids of experiences that nobody has."""
    return [
        (
            table,
            {**row, "shown": json.dumps([i for i in json.loads(str(row["shown"])) if i in known])}
            if table == "rewards"
            else row,
        )
        for table, row in rows
    ]
