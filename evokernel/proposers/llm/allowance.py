"""Owns what a call may still take: it is held back before the call, so that no budget is exceeded.

A call may take its prompt, estimated, and the longest reply. Where that is more than what is left,
the reply is limited to what is left; where even a short reply does not fit, there is no call.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evokernel.config import Budget
from evokernel.proposers import BudgetSpent
from evokernel.proposers.llm.facts import ModelFacts
from evokernel.record.spending import Spending, dollars

SHORT_REPLY = 1024
"""Tokens without which no reply is asked for; the longest one so far may raise it (ours)."""
LONG_REPLY = 32_768
"""Tokens of a reply where nobody says how long the longest is (ours)."""


class Allowance:
    """The budget of a run, shared by all its calls.

    Args:
        budget: What the run may spend.
        spent: What it has spent.
    """

    def __init__(self, budget: Budget, spent: Callable[[], Spending]) -> None:
        self._budget = budget
        self._spent = spent
        self._lock = threading.Lock()
        self._held_tokens = 0
        self._held_usd = 0.0

    @contextmanager
    def held(self, prompt: int, known: ModelFacts, wanted: int | None) -> Iterator[int | None]:
        """Hold back what a call may take, and give the limit of its reply.

        Args:
            prompt: Tokens of the prompt, estimated.
            known: Price and limits of the model.
            wanted: The limit of the reply that the caller wants; None is the model's own.

        Yields:
            The limit to send; None where none has to be.

        Raises:
            BudgetSpent: not even a short reply fits.
        """
        with self._lock:
            most = wanted or known.reply_tokens
            limit = self._limit(prompt, known, most)
            tokens = prompt + (limit or most or LONG_REPLY)
            usd = known.price.of(prompt, tokens - prompt) if known.price else 0.0
            self._held_tokens += tokens
            self._held_usd += usd
        try:
            yield limit or wanted
        finally:
            with self._lock:
                self._held_tokens -= tokens
                self._held_usd -= usd

    def _limit(self, prompt: int, known: ModelFacts, most: int | None) -> int | None:
        """The limit of the reply that keeps the budget; None where the model's own does."""
        done = self._spent()
        shortest = min(max(SHORT_REPLY, done.longest_reply), most or LONG_REPLY)
        room = min(self._token_room(done) - prompt, self._dollar_room(done, known, prompt))
        if room < shortest:
            raise BudgetSpent(self._why(done, prompt, shortest, known))
        if room == float("inf") or (most is not None and room >= most):
            return None
        return int(min(room, most or LONG_REPLY))

    def _token_room(self, done: Spending) -> float:
        if self._budget.tokens is None:
            return float("inf")
        return self._budget.tokens - done.tokens - self._held_tokens

    def _dollar_room(self, done: Spending, known: ModelFacts, prompt: int) -> float:
        """Tokens of a reply that the dollars suffice for."""
        if self._budget.usd is None or (known.price and not known.price.token_out):
            return float("inf")
        if known.price is None:
            return -1.0  # what is unknown may be anything
        left = self._budget.usd - done.usd - self._held_usd - known.price.of(prompt, 0)
        return left / known.price.token_out

    def _why(self, done: Spending, prompt: int, shortest: int, known: ModelFacts) -> str:
        budget = self._budget
        if budget.usd is not None and known.price is None:
            return f"the price of a call is unknown, so that {dollars(budget.usd)} cannot be kept"
        needs = prompt + shortest
        if budget.tokens is not None and self._token_room(done) < needs:
            return (
                f"{done.tokens:,} of {budget.tokens:,} tokens are spent; the next call needs "
                f"{needs:,}: about {prompt:,} for its prompt and {shortest:,} for a reply"
            )
        cost = known.price.of(prompt, shortest) if known.price else 0.0
        return (
            f"{dollars(done.usd)} of {dollars(budget.usd or 0.0)} are spent; the next call needs "
            f"{dollars(cost)}: about {prompt:,} tokens for its prompt and {shortest:,} for a reply"
        )
