"""Owns `Upkeep`: what people and time do to a memory between the steps of a run."""

import uuid
from collections.abc import Collection, Sequence

from evokernel.errors import StoreError
from evokernel.memory import snapshot
from evokernel.memory.accounts import Accounts
from evokernel.memory.admission import situation_of
from evokernel.memory.bank import Bank, Retirement
from evokernel.memory.catch_up import Rebuilt, catch_up, pending
from evokernel.memory.embedding import label
from evokernel.memory.events import Verdict
from evokernel.memory.experience import Entry, Experience, ExperienceStatus
from evokernel.memory.retraction import CLAIMS
from evokernel.memory.revision import Revision
from evokernel.memory.withdrawal import Withdrawal

QUARANTINE, ACTIVE = ExperienceStatus.QUARANTINE, ExperienceStatus.ACTIVE

WORTH_FLUSHING = 16
"""Changes that gather before `close` opens Chroma, which takes 1.5 s; until then the changed ones
are compared exactly, so that nothing is missed (ours)."""


class Upkeep(Accounts):
    """Changes single experiences by hand, and keeps values and index in order."""

    _has_written = False

    def set_status(
        self, id: str, status: ExperienceStatus, reason: str, step: str | None = None
    ) -> None:
        """Change one status by hand, e.g. to a tombstone; without a step it counts as a new event.

        Raises:
            StoreError: no such experience.
        """
        with self._lock:
            self._card(id)
            self._has_written = True
            verdict = Verdict(id, status, reason)
            self._journal.add_statuses([verdict], step or _by_hand())

    def revise(self, id: str, change: Revision, reason: str = "by hand") -> Entry:
        """Change what a person may change; what was there before stays in the journal.

        Returns:
            The experience as it is now.

        Raises:
            StoreError: no such experience; names the nearest.
        """
        with self._lock:
            self._card(id)
            self._has_written = True
            with self._journal.together():
                body = change.model_dump_json(exclude_none=True)
                self._journal.add_revision(id, body, reason, _by_hand())
                if change.techniques is not None:
                    (entry,) = self._entries([id])
                    revised = {"techniques": change.techniques}
                    vector = self._embed_again(entry.experience.model_copy(update=revised))
                    self._journal.replace_vector(id, vector)
            self._sync()
            return self._entries([id])[0]

    def pin(self, id: str, reason: str = "pinned by hand") -> Entry:
        """Want an experience in every pool that it fits into; no upkeep withdraws it then.

        It fits where no hard filter hides it and its similarity passes the gate. The policy
        still decides whether it is shown. A second look that does not confirm it leaves an active
        one active. Only `forget` and `set_status` withdraw it.

        Raises:
            StoreError: no such experience; names the nearest.
        """
        return self.revise(id, Revision(is_pinned=True), reason)

    def unpin(self, id: str, reason: str = "unpinned by hand") -> Entry:
        """Treat an experience as all others again.

        Raises:
            StoreError: no such experience; names the nearest.
        """
        return self.revise(id, Revision(is_pinned=False), reason)

    def forget(self, withdrawal: Withdrawal, reason: str) -> tuple[str, ...]:
        """Withdraw for good what `withdrawal` found; it is kept for the record.

        What was made from it becomes suspect, and is hidden until `reinstate`. Rewards that it
        earned, or that were measured against its time, leave the values, which are computed anew.
        All of it is written in one transaction, or nothing.

        Returns:
            Ids of what was withdrawn.
        """
        with self._lock:
            self._has_written = True
            gone, suspect = ExperienceStatus.TOMBSTONE, ExperienceStatus.SUSPECT
            verdicts = [Verdict(id, gone, reason) for id in withdrawal.ids]
            why = f"made from what was withdrawn: {reason}"
            verdicts += [Verdict(id, suspect, why) for id in withdrawal.suspects]
            self._journal.add_statuses(verdicts, _by_hand())
            self._sync()
            return withdrawal.ids

    def approve(self, ids: Sequence[str], reason: str) -> tuple[str, ...]:
        """Let remarks in quarantine be shown to every task: a person has read them.

        Returns:
            Ids of those that were in quarantine.

        Raises:
            StoreError: no such experience, one that was withdrawn or found wrong, or one whose
                claim has to be measured instead.
        """
        with self._lock:
            named = [self._card(id) for id in dict.fromkeys(ids)]
            for card in named:
                self._require_readable(card.id, card.kind)
            found = [card.id for card in named if self._shelf.statuses[card.id] is QUARANTINE]
            self._has_written = True
            self._journal.add_statuses([Verdict(id, ACTIVE, reason) for id in found], _by_hand())
            self._sync()
            return tuple(found)

    def _require_readable(self, id: str, kind: str) -> None:
        """Refuse to approve by reading what reading cannot tell."""
        status, reason = self._shelf.statuses[id], self._shelf.reasons[id]
        if status is QUARANTINE and kind in CLAIMS:
            raise StoreError(
                f"`{id}` claims something of a kernel that has to be measured; expected a remark: "
                "`evokernel memory admit TASK` judges kernels, edits and fixes"
            )
        if status not in {QUARANTINE, ACTIVE}:
            raise StoreError(
                f"`{id}` is {status} ({reason}); expected one in quarantine: `evokernel memory "
                "list --status quarantine` shows them, `memory reinstate` takes suspicion away"
            )

    def reinstate(self, ids: Sequence[str], reason: str) -> tuple[str, ...]:
        """Give what is suspect or retired the status that it had before: it was found right.

        Returns:
            Ids of those that were.

        Raises:
            StoreError: no such experience, or one that was withdrawn for good.
        """
        with self._lock:
            named = [self._card(id).id for id in dict.fromkeys(ids)]
            suspect, gone = ExperienceStatus.SUSPECT, ExperienceStatus.TOMBSTONE
            if lost := [id for id in named if self._shelf.statuses[id] is gone]:
                raise StoreError(
                    f"`{lost[0]}` was withdrawn for good ({self._shelf.reasons[lost[0]]}); "
                    "expected a suspect one: `evokernel memory list --status suspect` shows them"
                )
            hidden = {suspect, ExperienceStatus.RETIRED}
            found = [id for id in named if self._shelf.statuses[id] in hidden]
            self._has_written = True
            verdicts = [Verdict(id, self._before(id), reason) for id in found]
            self._journal.add_statuses(verdicts, _by_hand())
            self._sync()
            return tuple(found)

    def surplus(self, tasks: Collection[str] | None = None) -> tuple[Retirement, ...]:
        """What should leave the bank, so that it stays within its limits; nothing is changed.

        Args:
            tasks: Fingerprints of the tasks whose slots are looked at; None is all.
        """
        with self._lock:
            self._sync()
            config = self._config
            bank = Bank(self._shelf, self._fold.values, config.task_slots, config.bank)
            return bank.surplus(tasks)

    def trim(self, tasks: Collection[str] | None = None) -> tuple[Retirement, ...]:
        """Let what is over the limits leave the bank; the journal keeps it.

        Returns:
            What left.
        """
        with self._lock:
            config = self._config
            leaving = self.surplus(tasks) if config.task_slots or config.bank else ()
            retired = ExperienceStatus.RETIRED
            verdicts = [Verdict(one.experience, retired, one.reason) for one in leaving]
            if verdicts:
                self._has_written = True
                self._journal.add_statuses(verdicts, f"trim/{uuid.uuid4().hex}")
                self._sync()
            return leaving

    def _before(self, id: str) -> ExperienceStatus:
        """What a hidden experience was last, before it was hidden."""
        known = [ExperienceStatus(row.status) for row in self._journal.history(id)]
        others = [status for status in known if status in {QUARANTINE, ACTIVE}]
        return others[-1] if others else ExperienceStatus.QUARANTINE

    def refit(self) -> snapshot.Refit:
        """Compute every value from the first event, and say which ones come out differently."""
        with self._lock:
            self._sync()
            return self._fold.refit()

    def rebuild(self) -> Rebuilt:
        """Embed every situation anew and make the vector index anew.

        Raises:
            StoreError: another process owns the index.
        """
        with self._lock:
            self._sync()
            if self._index is not None:
                self._index.remove()
            entries = self._entries(tuple(self._shelf.cards))
            vectors = [(e.experience.id, self._embed_again(e.experience)) for e in entries]
            self._journal.replace_vectors(vectors, label(self._embedder))
            self._shelf.forget_vectors()
            self.flush()
            missing = self._index.missing if self._index else ""
            indexed = len(list(self._shelf.active())) if self._index and not missing else 0
            return Rebuilt(embedded=len(vectors), indexed=indexed, missing=missing)

    def flush(self) -> None:
        """Bring the vector index up to the journal, if no other process owns it. Takes seconds."""
        with self._lock:
            if self._index is None:
                return
            self._sync()
            was_open = self._index.is_open
            if self._index.open():
                try:
                    catch_up(self._shelf, self._index)
                finally:
                    if not was_open:
                        self._index.close()

    def _flush_if_worth_it(self) -> None:
        self._sync()
        if self._index and len(pending(self._shelf, self._index.watermark)) >= WORTH_FLUSHING:
            self.flush()

    def _embed_again(self, experience: Experience) -> Sequence[float]:
        graph = self._journal.graph(experience.fingerprint)
        vector: list[float] = self._embed(situation_of(experience, graph)).tolist()
        return vector


def _by_hand() -> str:
    """A step of its own: whatever people do counts every time."""
    return f"manual/{uuid.uuid4().hex}"
