"""Owns `Upkeep`: what people and time do to a memory between the steps of a run."""

import uuid
from collections.abc import Sequence

from evokernel.memory import snapshot
from evokernel.memory.admission import situation_of
from evokernel.memory.catch_up import Rebuilt, catch_up, pending
from evokernel.memory.embedding import label
from evokernel.memory.events import Verdict
from evokernel.memory.experience import Entry, Experience, ExperienceStatus
from evokernel.memory.revision import Revision
from evokernel.memory.view import View
from evokernel.memory.withdrawal import Withdrawal

WORTH_FLUSHING = 16
"""Changes that gather before `close` opens Chroma, which takes 1.5 s; until then the changed ones
are compared exactly, so that nothing is missed (ours)."""


class Upkeep(View):
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

        Returns:
            Ids of what was withdrawn.
        """
        with self._lock:
            self._has_written = True
            gone = ExperienceStatus.TOMBSTONE
            verdicts = [Verdict(id, gone, reason) for id in withdrawal.ids]
            self._journal.add_statuses(verdicts, _by_hand())
            return withdrawal.ids

    def refit(self) -> snapshot.Refit:
        """Compute every value from the first event, and say which ones come out differently."""
        with self._lock:
            self._values, report = snapshot.refit(self._journal, self._values)
            return report

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
