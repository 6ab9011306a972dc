"""Owns what a run has cost so far: tokens and dollars, with unknown prices kept apart."""

import json
from collections.abc import Iterable, Iterator

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
    tokens_cached: int = 0
    """Of `tokens_in`, those that the provider had kept from an earlier call."""
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
    longest_reply: int = 0
    """Tokens of the longest reply."""

    @classmethod
    def of(cls, usages: Iterable[Usage]) -> "Spending":
        """Add up."""
        total = cls()
        for usage in usages:
            total = total.plus(usage)
        return total

    def plus(self, usage: Usage) -> "Spending":
        """With one more; what took no tokens was no call."""
        tokens, usd = usage.tokens_in + usage.tokens_out, usage.usd or 0.0
        if not tokens:
            return self
        return Spending(
            calls=self.calls + usage.calls,
            tokens_in=self.tokens_in + usage.tokens_in,
            tokens_out=self.tokens_out + usage.tokens_out,
            tokens_cached=self.tokens_cached + usage.tokens_cached,
            usd=self.usd + usd,
            unpriced=self.unpriced + usage.calls * (usage.usd is None),
            estimated=self.estimated + usage.calls * usage.is_estimated,
            dearest_usd=max(self.dearest_usd, usd),
            longest=max(self.longest, tokens),
            longest_reply=max(self.longest_reply, usage.tokens_out),
        )

    @property
    def tokens(self) -> int:
        """Of prompts and replies together."""
        return self.tokens_in + self.tokens_out

    def in_words(self) -> str:
        """E.g. `4 replies, 21,300 tokens in, 9,120 out, $0.1312`."""
        replies = f"{self.calls} {'reply' if self.calls == 1 else 'replies'}"
        about = "about " if self.estimated else ""
        kept = f" ({self.tokens_cached:,} cached)" if self.tokens_cached else ""
        said = f"{replies}, {about}{self.tokens_in:,} tokens in{kept}, {self.tokens_out:,} out"
        return f"{said}, {self._price()}"

    def brief(self) -> str:
        """E.g. `30,420 tokens, $0.1312`."""
        return f"{self.tokens:,} tokens, {self._price()}"

    def _price(self) -> str:
        if self.calls and self.unpriced == self.calls:
            return "price unknown"
        known = dollars(self.usd)
        return f"{known} and {counted(self.unpriced, 'unknown price')}" if self.unpriced else known


def dollars(usd: float) -> str:
    """E.g. `$1.25`, `$0.0312`, `$0`."""
    if usd == 0:
        return "$0"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def spending(record: RunRecord) -> Spending:
    """What a run has cost, a step that is still open included.

    Every call counts, also one that led to no proposal; proposals that came about without calls of
    ours are counted by what they say themselves.
    """
    called = Spending.of(_called(record))
    if called.calls:
        return called
    usages = [attempt.proposal.usage for attempt in record.attempts()]
    number = record.next_number()
    if record.has(number, "proposal"):
        usages.append(record.proposal(number).usage)
    return Spending.of(usages)


def _called(record: RunRecord) -> Iterator[Usage]:
    lines = (json.loads(line) for line in record.calls())
    return (Usage.model_validate(call["reply"]["usage"]) for call in lines if "reply" in call)
