"""Owns `AgenticProposer`: a model that tries what it writes before it hands it in.

Prompt, reading of replies, calls, evaluation and record are those of `ModelProposer`, so that both
can be compared; what comes in addition are tools and skills.
"""

import re
import time
from pathlib import Path

from evokernel.attempt import Backend, Proposal, Stage
from evokernel.bench import Say, silent
from evokernel.config import AgentConfig, Budget, ModelConfig
from evokernel.errors import (
    ConfigError,
    ModelError,
    NoSuchModel,
    ParameterRefused,
    PromptTooLong,
    ToolsRefused,
    Unreachable,
)
from evokernel.opgraph import OpGraph
from evokernel.prompts import Prompt
from evokernel.proposers import Request
from evokernel.proposers.aids import Aids
from evokernel.proposers.llm import ModelProposer, prompts_for
from evokernel.proposers.llm.book import CallBook
from evokernel.proposers.llm.calls import Pause
from evokernel.proposers.llm.messages import Message
from evokernel.proposers.llm.proposal import proposal_of
from evokernel.proposers.llm.skills import Skills
from evokernel.proposers.llm.tools import Toolbox
from evokernel.proposers.llm.turn import Turn
from evokernel.task import Task

_MAY_REFUSE = (ModelError, ParameterRefused, NoSuchModel, Unreachable)
"""How servers refuse tools: as a parameter, as something no such model does, or by falling over."""
_ABOUT_TOOLS = re.compile(r"\btool|\bfunction", re.IGNORECASE)


class AgenticProposer(ModelProposer):
    """Lets a model use tools within a step; implements `Proposer` and `Aided`.

    Args:
        name: As for `ModelProposer`.
        settings: As for `ModelProposer`.
        agent: Limits of a step, and the user's skills.
        say: Told what the proposer is waiting for.
        budget: What the calls of the run may cost together.
        book: Where its calls and the answers of tools are stored.
        pause: Waits between two calls.
        prompts: As for `ModelProposer`.

    Raises:
        ConfigError: as for `ModelProposer`, or skills that cannot be read.
    """

    def __init__(
        self,
        name: str,
        settings: ModelConfig | None = None,
        agent: AgentConfig | None = None,
        *,
        say: Say = silent,
        budget: Budget | None = None,
        book: CallBook | None = None,
        pause: Pause = time.sleep,
        prompts: Path | None = None,
    ) -> None:
        super().__init__(
            name, settings, say=say, budget=budget, book=book, pause=pause, prompts=prompts
        )
        self._agent = agent or AgentConfig()
        Skills.load(self._agent, "cpp")  # what cannot be read is told before anything else
        self._plain: set[Stage] = set()

    def check(self, task: Task, graph: OpGraph | None, backend: Backend) -> None:
        """Refuse what cannot work before anything is measured or paid for.

        Raises:
            ConfigError: as for `ModelProposer`, or a model that is known to call no tools.
        """
        super().check(task, graph, backend)
        for stage, model in self._models.items():
            if model.calls.facts().takes_tools is not False:
                continue
            if not self._agent.or_plain:
                raise ConfigError(
                    f"`{model.name}` cannot call tools, as litellm's list has it, so `--agentic` "
                    "has nothing to offer it; choose another model, leave `--agentic` out, or add "
                    "`--or-plain` to let it write without tools"
                )
            self._say(f"`{model.name}` cannot call tools; it writes without them")
            self._plain.add(stage)

    def propose_aided(self, request: Request, aids: Aids) -> Proposal:
        """Let the model work, and hand over what it hands in.

        Raises:
            BudgetSpent: it would cost more than is left, and nothing is there to hand over.
            ModelError: the model could not be asked; the step stays open.
        """
        if request.stage in self._plain:
            return self.propose(request)
        try:
            return self._worked(request, aids)
        except ModelError as error:
            if type(error) not in _MAY_REFUSE or not _ABOUT_TOOLS.search(str(error)):
                raise
            if not self._agent.or_plain:
                raise ToolsRefused(
                    f"{error} `--agentic` needs a model, and a server, that take tools: choose "
                    "another one, or begin a run without `--agentic` or with `--or-plain`"
                ) from error
            self._say("the server takes no tools; the model writes without them")
            model = self._models[request.stage]
            self._plain |= {stage for stage, known in self._models.items() if known is model}
            return self.propose(request)

    def _worked(self, request: Request, aids: Aids) -> Proposal:
        """Ask; a prompt that does not fit is shortened and sent again."""
        refused: PromptTooLong | None = None
        for prompt in prompts_for(request, self._texts):
            try:
                return self._handed_in(request, aids, prompt)
            except PromptTooLong as error:
                refused = error
        raise refused or AssertionError("there is always a prompt")

    def _handed_in(self, request: Request, aids: Aids, prompt: Prompt) -> Proposal:
        model, agent = self._models[request.stage], self._agent
        skills = Skills.load(agent, request.backend)
        toolbox = Toolbox(
            aids,
            request.backend,
            skills,
            agent.calls,
            lambda key, work: model.calls.once(request.step, key, work),
        )
        before = [parent.proposal.candidate.source for parent in request.parents]
        followups = model.settings.followups
        turn = Turn(
            model.calls, agent, toolbox, request.step, request.stage, before, followups, self._say
        )
        system = f"{prompt.system.rstrip()}\n\n{skills.written(agent)}"
        outcome = turn.outcome((Message.system(system), Message.user(prompt.user)))
        shown = {experience.id: experience for experience in request.shown} | toolbox.read
        proposal = proposal_of(
            request.model_copy(update={"shown": tuple(shown.values())}),
            f"{system}\n\n---\n\n{prompt.user}",
            outcome.texts,
            outcome.reading,
            outcome.usage,
            model.name,
        )
        return proposal.model_copy(update={"tools": tuple(toolbox.used), "texts": prompt.digest})
