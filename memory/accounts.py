"""Owns `Accounts`: what people are told of many experiences at once, and of what has changed."""

from collections.abc import Sequence

from evokernel.attempt import Stage
from evokernel.frozen import Frozen
from evokernel.memory.changes import Changes, Revised, changes_since, revised_since
from evokernel.memory.evidence import Evidence, evidence_of
from evokernel.memory.experience import Entry
from evokernel.memory.explanation import uncertainty
from evokernel.memory.revision import Revision
from evokernel.memory.stats import Stats
from evokernel.memory.technique_table import TechniqueUse, technique_table
from evokernel.memory.values import Value, Values
from evokernel.memory.view import View

DIVISIONS = ("family", "bottleneck", "backend")
"""What can divide the table of techniques."""


class Account(Frozen):
    """A whole memory at one moment."""

    policy: str
    """By whose rule the values are computed."""
    stats: Stats
    """Counts, rewards and values of the whole memory."""
    evidences: tuple[Evidence, ...]
    """Of every experience, newest first."""
    revised: tuple[Revised, ...]
    """What people changed, oldest first."""
    techniques: tuple[TechniqueUse, ...]
    """Over everything, most tried first."""
    divided: tuple[TechniqueUse, ...]
    """The same by family, bottleneck and backend."""
    changes: Changes | None
    """What has become different since the moment that was asked about."""


class Accounts(View):
    """Adds up what the journal says, for people."""

    def evidence(self, id: str) -> Evidence:
        """Everything that is known of one experience: values, showings with rewards, history.

        Raises:
            StoreError: no such experience; names the nearest id.
        """
        with self._lock:
            return self.evidences([self.get(id)])[0]

    def evidences(self, entries: Sequence[Entry]) -> tuple[Evidence, ...]:
        """The same of many, in one reading of the journal and in their order."""
        with self._lock:
            self._sync()
            ids = [entry.experience.id for entry in entries]
            values = {id: {stage: self._spread(id, stage) for stage in Stage} for id in ids}
            uncounted = self._fold.values.uncounted
            return evidence_of(self._journal, entries, values, uncounted)

    def revisions(self, id: str) -> tuple[tuple[float, str, Revision], ...]:
        """What people changed of an experience: Unix seconds, reason and change, oldest first."""
        with self._lock:
            self._card(id)
            return tuple(
                (row.at, row.reason, Revision.model_validate_json(row.body))
                for row in self._journal.revisions(id)
            )

    def techniques(
        self,
        names: Sequence[str] = (),
        by: frozenset[str] = frozenset(),
        family: str | None = None,
        bottleneck: str | None = None,
    ) -> tuple[TechniqueUse, ...]:
        """What each technique has been worth.

        Args:
            names: Techniques that are listed even where nothing is known of them.
            by: What divides the table, of `family`, `bottleneck` and `backend`.
            family: Only tasks of this family.
            bottleneck: Only edits of start points that this bound, and kernels that it binds.
        """
        with self._lock:
            entries = self.list(family=family)
            return technique_table(entries, self._fold.values, names, by, bottleneck)

    def account(
        self,
        since: float | None = None,
        names: Sequence[str] = (),
        family: str | None = None,
        backend: str | None = None,
    ) -> Account:
        """Everything that people are told, read at once.

        Args:
            since: From when on changes are told, Unix seconds; None tells none.
            names: Techniques that are listed even where nothing is known of them.
            family: Count techniques of tasks of this family only.
            backend: Count techniques of this backend only.
        """
        with self._lock:
            entries, values = self.list(), self._fold.values
            counted = [
                entry
                for entry in entries
                if family in {None, entry.experience.family}
                and backend in {None, entry.experience.backend}
            ]
            told = None
            if since is not None:
                told = changes_since(since, self._journal, counted, self._fresh(), values)
            return Account(
                policy=self._config.policy,
                stats=self.stats(),
                evidences=self.evidences(entries),
                revised=tuple(revised_since(0.0, self._journal)),
                techniques=technique_table(counted, values, names),
                divided=technique_table(counted, values, by=frozenset(DIVISIONS)),
                changes=told,
            )

    def _spread(self, id: str, stage: Stage) -> Value:
        """A value with its spread: that of its rule, or what chance gives a moving average."""
        values = self._fold.values
        value = values.of(id, stage)
        if value.spread is None and isinstance(values, Values):
            return value.model_copy(update={"spread": uncertainty(values.alpha, value.visits)})
        return value
