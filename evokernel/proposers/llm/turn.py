"""Owns one step of a model that works with tools: reply, tools, reply, until it hands in.

It ends with a reply without a tool call. When its replies, calls, tokens or the run's budget come
to an end before that, the best of what it has evaluated is taken: nothing paid for is lost.
"""

import re
from collections.abc import Sequence

from evokernel.attempt import Fault, Stage, Usage
from evokernel.bench import Say
from evokernel.config import AgentConfig
from evokernel.errors import PromptTooLong
from evokernel.proposers import BudgetSpent
from evokernel.proposers.llm.calls import Calls
from evokernel.proposers.llm.conversation import ASK_BACK, Outcome
from evokernel.proposers.llm.messages import Message, Reply, ToolCall
from evokernel.proposers.llm.reply import Reading, read, same
from evokernel.proposers.llm.tools import Toolbox

HAND_IN = (
    "This was your last call of a tool. Hand in now: answer without a tool, in the form that was "
    "asked for, with the complete file or the line `Candidate: ID`."
)
ASK_AGAIN = "{reason}. Hand in the complete file in one block, or the line `Candidate: ID`."
_CANDIDATE = re.compile(
    r"^[\s>*_`#-]*candidate[*_`]*\s*:[\s*_`]*(?P<id>[0-9a-f]{16})\b", re.I | re.M
)


class Turn:
    """One step.

    Args:
        calls: The model.
        agent: Limits.
        toolbox: What it may have done.
        step: The step's id.
        stage: Its stage.
        before: Sources that the candidate is to change.
        followups: Questions back to a reply that holds no candidate.
        say: Told what goes on.
    """

    def __init__(
        self,
        calls: Calls,
        agent: AgentConfig,
        toolbox: Toolbox,
        step: str,
        stage: Stage,
        before: Sequence[str],
        followups: int,
        say: Say,
    ) -> None:
        self._calls = calls
        self._agent = agent
        self._toolbox = toolbox
        self._step = step
        self._stage = stage
        self._before = tuple(before)
        self._followups = followups
        self._say = say
        self._usage: Usage | None = None
        self._texts: list[str] = []

    def outcome(self, messages: tuple[Message, ...]) -> Outcome:
        """Get a candidate, or the reason why there is none.

        Raises:
            BudgetSpent: nothing more can be asked, and nothing was evaluated that could be taken.
            PromptTooLong: the first question does not fit.
            ModelError: the model could not be asked.
        """
        must_end = False
        for number in range(1, self._agent.replies + 1):
            try:
                reply = self._ask(messages)
            except (BudgetSpent, PromptTooLong) as end:
                if not self._toolbox.trials:
                    raise
                return self._best(str(end))
            if not reply.tool_calls:
                reading = self._read(reply)
                question = self._question(reading.fault)
                if not question or number == self._agent.replies:
                    return self._ended(reading)
                messages = (*messages, _spoken(reply), Message.user(question))
                continue
            answers = [self._answer(c, number, i) for i, c in enumerate(reply.tool_calls, start=1)]
            if must_end:
                break
            messages = (*messages, reply.message, *answers)
            must_end = number + 1 >= self._agent.replies or self._is_spent()
            messages += (Message.user(HAND_IN),) if must_end else ()
        return self._best("its replies came to an end")

    def _ask(self, messages: tuple[Message, ...]) -> Reply:
        tools = self._toolbox.tools()
        reply = self._calls.ask(messages, tools=tools, step=self._step, stage=self._stage)
        self._usage = self._usage.plus(reply.usage) if self._usage else reply.usage
        if reply.text.strip():
            self._texts.append(reply.text)
        return reply

    def _is_spent(self) -> bool:
        used = self._usage.tokens_in + self._usage.tokens_out if self._usage else 0
        return not self._toolbox.left or used >= self._agent.tokens

    def _answer(self, call: ToolCall, reply: int, place: int) -> Message:
        self._say(f"{self._calls.model} uses `{call.name[:64]}`")
        answer = self._toolbox.answer(call, f"{reply}.{place} {call.name[:64]}")
        self._texts.append(f"[{call.name[:64]}: {answer.outcome}]")
        return Message.answer(call, answer.text)

    def _read(self, reply: Reply) -> Reading:
        """The candidate that is handed in: a block, or the id of one that was evaluated."""
        if reply.refusal or reply.finish == "content_filter":
            reason = "a content filter, or the model's own refusal, ended the reply"
            return Reading(fault=Fault(kind="filtered", reason=reason))
        reading = read(reply.text, is_cut_off=reply.is_cut_off, before=self._before)
        named = [m["id"] for m in _CANDIDATE.finditer(reply.text)]
        if reading.fault and named and (candidate := self._toolbox.candidate(named[-1].lower())):
            return self._changed(candidate.source)
        return reading

    def _changed(self, source: str) -> Reading:
        if self._is_old(source):
            reason = "the candidate that was handed in is the one that it was to change"
            return Reading(fault=Fault(kind="unchanged", reason=reason))
        return Reading(source=source)

    def _is_old(self, source: str) -> bool:
        return any(same(source, before) for before in self._before)

    def _question(self, fault: Fault | None) -> str:
        if fault is None or not self._followups or fault.kind not in {*ASK_BACK, "cut_off"}:
            return ""
        self._followups -= 1
        return ASK_AGAIN.format(reason=f"{fault.reason[:1].upper()}{fault.reason[1:]}")

    def _ended(self, reading: Reading) -> Outcome:
        """What was handed in; where that is nothing, the best of what was evaluated."""
        if reading.fault and any(t.median_ms is not None for t in self._toolbox.trials.values()):
            return self._best(reading.fault.reason, reading)
        return self._outcome(reading)

    def _best(self, why: str, otherwise: Reading | None = None) -> Outcome:
        """The fastest that was right; else the last that was wrong, which the next step repairs."""
        trials = [t for t in self._toolbox.trials.values() if not self._is_old(t.candidate.source)]
        right = [t for t in trials if t.median_ms is not None]
        if not trials:
            count = len(self._toolbox.used)
            reason = f"nothing was handed in after {count} calls of tools: {why}"
            fault = Fault(kind="no_candidate", reason=reason)
            return self._outcome(otherwise or Reading(fault=fault))
        taken = min(right, key=lambda t: t.median_ms or 0.0) if right else trials[-1]
        which = "fastest" if right else "last"
        remark = f"{why}; so the {which} of {len(trials)} evaluated candidates was taken"
        return self._outcome(Reading(source=taken.candidate.source, remark=remark))

    def _outcome(self, reading: Reading) -> Outcome:
        return Outcome(reading=reading, texts=tuple(self._texts), usage=self._usage or Usage())


def _spoken(reply: Reply) -> Message:
    """What the model said; servers refuse an empty message."""
    message = reply.message
    return message if message.text.strip() else message.model_copy(update={"text": "(nothing)"})
