"""Owns the call of a model as the run sees it: stored, within the budget, retried in one place.

In this order: a reply that the book of calls holds for this step is given again, for nothing; a
prompt that cannot fit is refused; what the call may take is held back from the budget; it is sent,
and sent again after a rate limit, a fault of the server or a refused parameter, until its deadline;
the reply is stored before anything is made of it.
"""

import threading
import time
from collections.abc import Callable, Sequence

from evokernel.attempt import Stage
from evokernel.bench import Say, silent
from evokernel.config import Budget, ModelConfig
from evokernel.errors import PromptTooLong
from evokernel.proposers import BudgetSpent
from evokernel.proposers.llm.allowance import Allowance
from evokernel.proposers.llm.book import Call, CallBook
from evokernel.proposers.llm.endpoint import Asked, Endpoint
from evokernel.proposers.llm.facts import ModelFacts
from evokernel.proposers.llm.faults import Failure
from evokernel.proposers.llm.messages import Message, Reply, Tool, digest
from evokernel.proposers.llm.parameters import Parameters

Pause = Callable[[float], None]
"""Waits so many seconds."""

FIRST_WAIT_S = 2.0
"""Before the first repeated call, where the server names no time; doubled with each (ours)."""
FEWEST_LETTERS = 3.0
"""Letters a token that a prompt is estimated by before a reply has told better: code has more
tokens than prose, and an estimate that keeps a budget must not be too small (ours)."""
SHORT_REPLY = 512
"""Tokens that a context must leave for the reply beside the prompt (ours)."""
MANY_LETTERS = 8_000
"""Letters of a prompt that small contexts do not hold (ours)."""
UNREAD = 8.0
"""Letters a token beyond which a server is thought to have cut the prompt unasked: no text has so
few tokens (ours)."""


class Services:
    """What the models of a run share: their book, their budget, their places in the queue.

    Args:
        book: Where calls are stored.
        budget: What they may cost together.
        concurrency: Calls under way at the same time.
        say: Told what a call is waiting for.
        pause: Waits between two calls.
    """

    def __init__(
        self,
        book: CallBook | None = None,
        budget: Budget | None = None,
        concurrency: int = 4,
        say: Say = silent,
        pause: Pause = time.sleep,
    ) -> None:
        self.book = book or CallBook()
        self.is_limited = budget is not None and (budget.tokens or budget.usd) is not None
        self.allowance = Allowance(budget or Budget(), self.book.spending)
        self.places = threading.BoundedSemaphore(concurrency)
        self.say = say
        self.pause = pause


class Calls:
    """Asks one model.

    Args:
        endpoint: Where its replies come from.
        settings: Limits and parameters.
        services: What it shares with the run's other models.
    """

    def __init__(self, endpoint: Endpoint, settings: ModelConfig, services: Services) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._services = services
        self._parameters = Parameters(settings)
        self._tokens_a_letter = 0.0  # of the densest prompt so far; nothing before the first reply

    @property
    def model(self) -> str:
        """Its name."""
        return self._endpoint.model

    @property
    def refused(self) -> tuple[str, ...]:
        """Parameters that the server has refused and that are left out since."""
        return tuple(self._parameters.refused)

    def facts(self) -> ModelFacts:
        """What is known of the model. Imports litellm (seconds)."""
        return self._endpoint.facts()

    def ask(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        step: str = "",
        stage: Stage = Stage.DRAFT,
        reply_tokens: int | None = None,
    ) -> Reply:
        """Get one reply.

        Args:
            messages: The conversation so far.
            tools: What the model may have done.
            step: Id of the step that it is for; the same question of the same step is paid once.
            stage: The step's stage.
            reply_tokens: Another limit of the reply than that of the settings.

        Raises:
            BudgetSpent: it could take more than is left; nothing was sent.
            ModelError: the kind that says what is wrong, with no key in its message.
        """
        messages, book = tuple(messages), self._services.book
        request = digest(messages, tools)
        if known := book.recall(step, request, self.model):
            return known.reply
        prompt = self.estimate(messages, tools)
        self._require_room(prompt)
        wanted = reply_tokens or self._settings.reply_tokens
        with (
            self._services.places,
            self._services.allowance.held(prompt, self.facts(), wanted) as limit,
        ):
            asked = Asked(messages, tuple(tools), {}, step, stage)
            reply = self._recorded(asked, request, limit)
        self._learn(messages, reply)
        return reply

    def _recorded(self, asked: Asked, request: str, limit: int | None) -> Reply:
        """Have it answered, and store the reply before anything is made of it."""
        began = time.monotonic()
        reply, tries = self._answered(asked, limit, began + self._settings.deadline_s)
        call = Call(
            kind="call",
            number=0,
            step=asked.step,
            stage=asked.stage,
            model=self.model,
            request=request,
            messages=tuple(asked.messages),
            tools=tuple(tool.name for tool in asked.tools),
            reply=reply,
            seconds=round(time.monotonic() - began, 3),
            tries=tries,
        )
        self._services.book.add(call, call.messages)
        return reply

    def once(self, step: str, key: str, work: Callable[[], str]) -> str:
        """What a tool answered when this step came here before, else its answer now, stored."""
        return self._services.book.once(step, key, work)

    def estimate(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
        """Tokens of a prompt, rather too many than too few."""
        letters = sum(m.letters for m in messages) + sum(len(t.model_dump_json()) for t in tools)
        return int(letters * (self._tokens_a_letter or 1 / FEWEST_LETTERS)) + 1

    def _require_room(self, prompt: int) -> None:
        context = self.facts().context_tokens
        if context is not None and prompt + SHORT_REPLY > context:
            raise PromptTooLong(
                f"`{self.model}`: the prompt takes about {prompt:,} tokens, but prompt and reply "
                f"together may take {context:,}; choose a model, or start its server, with a "
                "larger context. Nothing was sent"
            )

    def _answered(self, asked: Asked, limit: int | None, deadline: float) -> tuple[Reply, int]:
        """Ask until there is a reply; the only place where a call is repeated."""
        repeats = tries = 0
        while True:
            tries += 1
            self._services.say(f"waiting for {self.model} to answer")
            sent = self._parameters.sent(limit, caches=self._endpoint.keeps_marked)
            left_s = max(0.1, deadline - time.monotonic())
            answer = self._endpoint.send(asked._replace(parameters=sent, left_s=left_s))
            if isinstance(answer, Reply):
                return answer, tries
            if remark := self._parameters.amend(answer, sent):
                self._services.say(f"{self.model} {remark}")
                self._require_limit(limit)
                continue
            wait_s = self._wait_s(answer, repeats, deadline)
            if wait_s is None:
                times = f" It was asked {tries} times." if tries > 1 else ""
                raise answer.kind(f"{answer.message}{times}")
            self._services.say(f"{answer.brief}; asking {self.model} again in {wait_s:.0f} s")
            self._services.pause(wait_s)
            repeats += 1

    def _require_limit(self, limit: int | None) -> None:
        """A budget cannot be kept without the limit that it puts on a reply."""
        is_ours = limit is not None and limit != self._settings.reply_tokens
        if is_ours and not self._parameters.takes_limit and self._services.is_limited:
            raise BudgetSpent(
                f"{self.model} takes no limit for its replies, so that what is left of the budget "
                f"would not be kept: {limit:,} tokens of a reply"
            )

    def _wait_s(self, failed: Failure, repeats: int, deadline: float) -> float | None:
        """How long to wait before the next call; None where there should be none."""
        if not failed.may_pass or repeats >= self._settings.retries:
            return None
        wait_s = FIRST_WAIT_S * 2**repeats if failed.wait_s is None else failed.wait_s
        is_in_time = time.monotonic() + wait_s < deadline
        return wait_s if is_in_time and wait_s <= self._settings.longest_wait_s else None

    def _learn(self, messages: Sequence[Message], reply: Reply) -> None:
        """Correct the estimate by what the server counted."""
        letters = sum(m.letters for m in messages)
        if reply.usage.is_estimated or not letters:
            return
        counted = reply.usage.tokens_in / letters
        is_first = not self._tokens_a_letter  # later ones may count only what is new
        if is_first and counted < 1 / UNREAD and letters > MANY_LETTERS:
            self._services.say(
                f"{self.model} counted {reply.usage.tokens_in:,} tokens in a prompt of "
                f"{letters:,} letters: its server may have cut the prompt; raise its context"
            )
        self._tokens_a_letter = max(self._tokens_a_letter, counted)
