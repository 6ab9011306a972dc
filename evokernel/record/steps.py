"""Owns `Steps`: what each step of a run stored, and which are closed and so count as attempts."""

from evokernel.attempt import Attempt, Candidate, Proposal
from evokernel.evaluation import Evaluation
from evokernel.frozen import Frozen
from evokernel.profile import Profile
from evokernel.record.entries import Ending, Skipped
from evokernel.record.folder import Folder, R


class Steps:
    """The steps of one run folder.

    Args:
        folder: The run's.
        is_writer: Nobody else writes: what this object knows need not be read again.
    """

    def __init__(self, folder: Folder, is_writer: bool) -> None:
        self._folder = folder
        self._is_writer = is_writer
        self._closed: dict[int, Attempt | Skipped] | None = None
        self._attempts: tuple[Attempt, ...] | None = None
        self._at_hand: dict[tuple[str, int], Frozen] = {}

    def next_number(self) -> int:
        """Number of the step that is under way or comes next."""
        return max(self._closed_steps(), default=0) + 1

    def save(self, number: int, name: str, value: Frozen, *, precious: bool = False) -> None:
        """Store one record of a step; a `precious` one survives a power cut, too."""
        text = value.model_dump_json(indent=1)
        self._folder.write(_named(number, f"{name}.json"), text, precious=precious)
        self._at_hand[name, number] = value

    def has(self, number: int, name: str) -> bool:
        """Whether a step has come as far as storing this record."""
        return self._folder.has(_named(number, f"{name}.json"))

    def load(self, number: int, name: str, kind: type[R]) -> R:
        """Read a record of a step back.

        Raises:
            RecordError: when it is missing or damaged.
        """
        known = self._at_hand.get((name, number))
        if isinstance(known, kind):
            return known
        return self._folder.parse(_named(number, f"{name}.json"), kind)

    def save_proposal(self, number: int, proposal: Proposal) -> None:
        """Store what the proposer handed over, its texts as files of their own."""
        is_paid = proposal.usage.tokens_out > 0
        texts = {
            "candidate.py": proposal.candidate.source,
            "prompt.md": proposal.prompt,
            "reply.md": proposal.reply,
        }
        for name, text in texts.items():
            if text or name == "candidate.py":
                self._folder.write(_named(number, name), text, precious=is_paid)
        candidate = Candidate(source="", backend=proposal.candidate.backend)
        bare = proposal.model_copy(update={"candidate": candidate, "prompt": "", "reply": ""})
        # Last: from here on the proposal counts, and everything that belongs to it is there.
        self.save(number, "proposal", bare, precious=is_paid)
        self._at_hand["proposed", number] = proposal

    def proposal(self, number: int) -> Proposal:
        """The stored proposal of a step.

        Raises:
            RecordError: when it is missing or damaged.
        """
        if isinstance(known := self._at_hand.get(("proposed", number)), Proposal):
            return known
        bare = self.load(number, "proposal", Proposal)
        source = self._folder.read(_named(number, "candidate.py"))
        texts = {
            name: self._folder.read(file)
            for name in ("prompt", "reply")
            if self._folder.has(file := _named(number, f"{name}.md"))
        }
        candidate = Candidate(source=source, backend=bare.candidate.backend)
        return bare.model_copy(update={"candidate": candidate, **texts})

    def save_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Store the verdict on a step's candidate; its profile is a file of its own."""
        if evaluation.profile:
            self.save(number, "profile", evaluation.profile)
        self.save(number, "evaluation", evaluation.model_copy(update={"profile": None}))
        self._at_hand["verdict", number] = evaluation

    def save_profile(self, number: int, profile: Profile) -> None:
        """Store what bounds a step's kernel."""
        self.save(number, "profile", profile)
        self._at_hand.pop(("verdict", number), None)

    def evaluation(self, number: int) -> Evaluation:
        """The stored evaluation of a step, its profile included.

        Raises:
            RecordError: when it is missing or damaged.
        """
        if isinstance(known := self._at_hand.get(("verdict", number)), Evaluation):
            return known
        evaluation = self.load(number, "evaluation", Evaluation)
        if not self.has(number, "profile"):
            return evaluation
        return evaluation.model_copy(update={"profile": self.load(number, "profile", Profile)})

    def close_attempt(self, attempt: Attempt, repeats: int | None = None) -> None:
        """Close a step whose candidate was judged; `repeats` is the attempt that had it before."""
        names = set(Ending.model_fields) - {"repeats"}
        ending = Ending(**attempt.model_dump(include=names), repeats=repeats)
        self.save(attempt.number, "attempt", ending)
        self._close(attempt.number, attempt)

    def close_in_vain(self, number: int, option: str) -> None:
        """Close a step for which the proposer had nothing new; `option` is what it was asked."""
        skipped = Skipped(number=number, option=option)
        self.save(number, "skipped", skipped)
        self._close(number, skipped)

    def attempts(self) -> tuple[Attempt, ...]:
        """Every finished attempt, in order."""
        closed = self._closed_steps()
        if self._attempts is None or not self._is_writer:
            found = (a for _, a in sorted(closed.items()) if isinstance(a, Attempt))
            self._attempts = tuple(found)
        return self._attempts

    def attempt(self, number: int) -> Attempt | None:
        """One finished attempt, or None where there is none of that number."""
        found = self._closed_steps().get(number)
        return found if isinstance(found, Attempt) else None

    def skipped(self) -> tuple[str, ...]:
        """What the proposer was asked for in vain, in order."""
        closed = self._closed_steps()
        return tuple(s.option for _, s in sorted(closed.items()) if isinstance(s, Skipped))

    def _close(self, number: int, how: Attempt | Skipped) -> None:
        self._closed_steps()[number] = how
        self._attempts = None
        self._at_hand.clear()

    def _closed_steps(self) -> dict[int, Attempt | Skipped]:
        if self._closed is None or not self._is_writer:
            known = self._closed or {}
            numbers = self._folder.numbers("attempts")
            found = {n: known.get(n) or self._read_closed(n) for n in numbers}
            self._closed = {n: closed for n, closed in found.items() if closed}
        return self._closed

    def _read_closed(self, number: int) -> Attempt | Skipped | None:
        if self.has(number, "skipped"):
            return self.load(number, "skipped", Skipped)
        if not self.has(number, "attempt"):
            return None
        return Attempt(
            **self.load(number, "attempt", Ending).model_dump(exclude={"repeats"}),
            proposal=self.proposal(number),
            evaluation=self.evaluation(number),
        )


def _named(number: int, file: str) -> str:
    return f"attempts/{number:03}/{file}"
