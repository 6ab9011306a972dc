"""Owns what a run has cost so far: tokens and dollars, with unknown prices kept apart."""

from collections.abc import Iterable

from evokernel.attempt import Usage
from evokernel.frozen import Frozen
from evokernel.record import RunRecord
from evokernel.wording import counted


class Spending(Frozen):
    """What the replies of a run cost together."""

    calls: int = 0
    """Replies that were paid for."""
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    """US dollars of the replies whose price is known."""
    unpriced: int = 0
    """Replies whose price is unknown; it is not nothing."""
    estimated: int = 0
    """Replies whose tokens the server did not count."""
    dearest_usd: float = 0.0
    """Of the dearest reply."""
    longest: int = 0
    """Tokens of the reply that took most, its prompt included."""

    @classmethod
    def of(cls, usages: Iterable[Usage]) -> "Spending":
        """Add up; what took no tokens was no call."""
        paid = [usage for usage in usages if usage.tokens_in or usage.tokens_out]
        return cls(
            calls=len(paid),
            tokens_in=sum(u.tokens_in for u in paid),
            tokens_out=sum(u.tokens_out for u in paid),
            usd=sum(u.usd or 0.0 for u in paid),
            unpriced=sum(u.usd is None for u in paid),
            estimated=sum(u.is_estimated for u in paid),
            dearest_usd=max((u.usd or 0.0 for u in paid), default=0.0),
            longest=max((u.tokens_in + u.tokens_out for u in paid), default=0),
        )

    @property
    def tokens(self) -> int:
        """Of prompts and replies together."""
        return self.tokens_in + self.tokens_out

    def in_words(self) -> str:
        """E.g. `4 replies, 21,300 tokens in, 9,120 out, $0.1312`."""
        replies = f"{self.calls} {'reply' if self.calls == 1 else 'replies'}"
        about = "about " if self.estimated else ""
        said = f"{replies}, {about}{self.tokens_in:,} tokens in, {self.tokens_out:,} out"
        return f"{said}, {self._price()}"

    def _price(self) -> str:
        if self.unpriced == self.calls:
            return "price unknown"
        known = dollars(self.usd)
        return f"{known} and {counted(self.unpriced, 'unknown price')}" if self.unpriced else known


def dollars(usd: float) -> str:
    """E.g. `$1.25`, `$0.0312`, `$0`."""
    if usd == 0:
        return "$0"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def spending(record: RunRecord) -> Spending:
    """What a run has cost, a step that is still open included."""
    usages = [attempt.proposal.usage for attempt in record.attempts()]
    number = record.next_number()
    if record.has(number, "proposal"):
        usages.append(record.proposal(number).usage)
    return Spending.of(usages)
