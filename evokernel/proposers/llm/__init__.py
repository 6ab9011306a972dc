"""Owns `ModelProposer`: candidates written by a language model, whatever litellm can reach."""

import time
from collections.abc import Iterator
from pathlib import Path

from evokernel.attempt import Backend, Proposal, Stage
from evokernel.bench import Say, silent
from evokernel.config import Budget, ModelConfig
from evokernel.errors import ConfigError, PromptTooLong
from evokernel.opgraph import OpGraph
from evokernel.prompts import Prompt, Texts, backends, compose
from evokernel.proposers import Request
from evokernel.proposers.llm.book import CallBook
from evokernel.proposers.llm.calls import Calls, Pause, Services
from evokernel.proposers.llm.conversation import Conversation, Outcome
from evokernel.proposers.llm.messages import Message
from evokernel.proposers.llm.models import Model
from evokernel.proposers.llm.proposal import proposal_of
from evokernel.proposers.techniques import Technique, catalogue
from evokernel.task import Task

SHORTER = 3
"""How often a prompt that is too long is halved before that is an error (ours)."""


class ModelProposer:
    """Asks a model for candidates; implements `Proposer`.

    Args:
        name: As the user gives it: `PROVIDER/NAME`, any name with a base URL, or `replay:FILE`.
        settings: How it is asked; another model for one stage stands there, too.
        say: Told what the proposer is waiting for.
        budget: What the calls of the run may cost together.
        book: Where its calls are stored.
        pause: Waits between two calls.
        prompts: Folder with texts that replace ours, file by file.

    Raises:
        ConfigError: no such provider, no key, an address that is none, or texts that cannot be
            used; litellm is not imported.
    """

    def __init__(
        self,
        name: str,
        settings: ModelConfig | None = None,
        *,
        say: Say = silent,
        budget: Budget | None = None,
        book: CallBook | None = None,
        pause: Pause = time.sleep,
        prompts: Path | None = None,
    ) -> None:
        self.name = name
        self._texts = Texts.load(prompts)
        settings = settings or ModelConfig()
        self._say = say
        self._budget = budget or Budget()
        self.book = book or CallBook()
        self._services = Services(self.book, self._budget, settings.concurrency, say, pause)
        self._models: dict[Stage, Model] = {}
        for stage in Stage:
            wanted, how = settings.of(stage, name)
            known = next((m for m in self._models.values() if m.is_same(wanted, how)), None)
            self._models[stage] = known or Model(wanted, how, self._services)

    def check(self, task: Task, graph: OpGraph | None, backend: Backend) -> None:
        """Refuse what cannot work before anything is measured or paid for; any task is served.

        Raises:
            ConfigError: no prompt for the backend, nobody at an address, litellm missing, or a
                budget in dollars for a model without a price.
        """
        if backend not in backends():
            raise ConfigError(
                f"there is no prompt for the backend `{backend}`; expected one of "
                f"{', '.join(f'`{known}`' for known in backends())}"
            )
        for model in dict.fromkeys(self._models.values()):
            model.check(needs_price=self._budget.usd is not None)

    def calls(self, stage: Stage) -> Calls:
        """The model that is asked in a stage."""
        return self._models[stage].calls

    def propose(self, request: Request) -> Proposal:
        """Ask for one candidate.

        A reply that holds none is a proposal as well, with its `fault`: it was paid for, and the
        next step may repair it.

        Raises:
            BudgetSpent: it could cost more than is left.
            ModelError: the model could not be asked.
        """
        prompt, outcome = self._asked(request)
        author = self._models[request.stage].name
        proposal = proposal_of(
            request, prompt.text, outcome.texts, outcome.reading, outcome.usage, author
        )
        return proposal.model_copy(update={"texts": prompt.digest})

    def _asked(self, request: Request) -> tuple[Prompt, Outcome]:
        """Ask; a prompt that does not fit is shortened in the stated order and sent again."""
        model = self._models[request.stage]
        before = [parent.proposal.candidate.source for parent in request.parents]
        refused: PromptTooLong | None = None
        for prompt in prompts_for(request, self._texts):
            talk = Conversation(
                model.calls, model.settings, request.step, request.stage, before, self._say
            )
            try:
                return prompt, talk.outcome(
                    (Message.system(prompt.system), Message.user(prompt.user))
                )
            except PromptTooLong as error:
                refused = error
        raise refused or AssertionError("there is always a prompt")


def prompts_for(request: Request, texts: Texts) -> Iterator[Prompt]:
    """The prompt of a step, and shorter ones for a model that it does not fit."""
    composition = compose(request, _suitable(request), texts)
    prompt = composition.fit()
    yield prompt
    for _ in range(SHORTER):
        prompt = composition.fit(prompt.tokens // 2)
        yield prompt


def _suitable(request: Request) -> list[Technique]:
    """Techniques for this kind of task; where its kind is unknown, those for every kind."""
    family = request.graph.family if request.graph else "unknown"
    return [t for t in catalogue().values() if t.suits(family, request.backend)]
