"""Owns what is said in one step: a question, a reply made whole, and a short question back.

A reply that was cut off is never judged by its half. One that spent its limit on thinking is asked
for once more with a larger limit; one that broke off amid its text is asked to go on, and counts
only if the parts together are a candidate. A whole reply without a candidate gets one short answer
that says what it lacks, in the same conversation: that costs less than a step of its own.
"""

from collections.abc import Sequence

from evokernel.attempt import Fault, Stage, Usage
from evokernel.bench import Say
from evokernel.config import ModelConfig
from evokernel.errors import PromptTooLong
from evokernel.frozen import Frozen
from evokernel.proposers import BudgetSpent
from evokernel.proposers.llm.calls import Calls
from evokernel.proposers.llm.messages import Message, Reply
from evokernel.proposers.llm.reply import Reading, is_python, read

LARGER = 4
"""By how much the limit of a reply grows that was spent on thinking (ours)."""
LEAST_LARGER = 8_192
"""Tokens that the larger limit has at least (ours)."""
OVERLAP = 400
"""Letters at the seam of two parts that may stand in both (ours)."""

GO_ON = (
    "Your reply was cut off by its length limit. Go on exactly where it stops: no greeting, "
    "nothing repeated, no new code fence unless the last one was closed. Its last line was:"
    "\n\n{last}"
)
ASK_BACK = {
    "no_candidate": "{reason}. Answer with the complete file in one block that begins with "
    "```python.",
    "diff": "{reason}. Answer with the complete file, every line of it, in one block that begins "
    "with ```python.",
    "unchanged": "{reason}. Make the change that you planned, and answer with the complete file in "
    "one block that begins with ```python.",
}
"""What is said to a reply without a candidate, by the kind of its fault."""


class Outcome(Frozen):
    """What a step's conversation came to."""

    reading: Reading
    texts: tuple[str, ...]
    """What was said after the prompt, in turns: reply, question, reply, ..."""
    usage: Usage

    @property
    def text(self) -> str:
        """All of it, for the record."""
        return "\n\n---\n\n".join(self.texts)


class Conversation:
    """One step's talk with a model.

    Args:
        calls: The model.
        settings: How often a reply is completed, and asked back.
        step: The step's id.
        stage: Its stage.
        before: Sources that the candidate is to change.
        say: Told what is asked again.
    """

    def __init__(
        self,
        calls: Calls,
        settings: ModelConfig,
        step: str,
        stage: Stage,
        before: Sequence[str],
        say: Say,
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._step = step
        self._stage = stage
        self._before = tuple(before)
        self._say = say
        self._usages: list[Usage] = []

    def outcome(self, messages: Sequence[Message]) -> Outcome:
        """Get a candidate, or the reason why there is none.

        Raises:
            BudgetSpent: not even the first question can be asked.
            ModelError: the model could not be asked.
        """
        reply = self._whole(messages)
        reading, texts = self._read(reply), [reply.text]
        for _ in range(self._settings.followups):
            question = _question(reading.fault)
            if not question:
                break
            self._say(f"{self._calls.model}: {reading.fault.reason if reading.fault else ''}")
            messages = (*messages, _spoken(reply), Message.user(question))
            try:
                reply = self._whole(messages)
            except (BudgetSpent, PromptTooLong):
                break
            reading = self._read(reply)
            texts += [question, reply.text]
        usage = self._usages[0]
        for further in self._usages[1:]:
            usage = usage.plus(further)
        return Outcome(reading=reading, texts=tuple(texts), usage=usage)

    def _ask(self, messages: Sequence[Message], reply_tokens: int | None = None) -> Reply:
        reply = self._calls.ask(
            messages, step=self._step, stage=self._stage, reply_tokens=reply_tokens
        )
        self._usages.append(reply.usage)
        return reply

    def _whole(self, messages: Sequence[Message]) -> Reply:
        """A reply that was not cut off, as far as that can be had."""
        reply = self._ask(messages)
        try:
            if _is_nothing(reply) and self._may_be_longer(reply):
                self._say(f"{self._calls.model} replied nothing; asking once more")
                reply = self._ask(messages, self._larger(reply))
            return self._completed(reply, messages)
        except (BudgetSpent, PromptTooLong):  # what was paid for is kept as it is
            return reply

    def _completed(self, reply: Reply, messages: Sequence[Message]) -> Reply:
        """With what comes after the place where it was cut off."""
        parts = 1
        while self._is_half(reply) and parts <= self._settings.continuations:
            self._say(f"{self._calls.model} reached its length limit; asking it to go on")
            going = Message.user(GO_ON.format(last=_last_line(reply.text)))
            try:
                more = self._ask((*messages, _spoken(reply), going))
            except (BudgetSpent, PromptTooLong):
                break
            text = joined(reply.text, more.text)
            reply = more.model_copy(update={"text": text})
            parts += 1
        source = self._read(reply).source
        if parts > 1 and not (source and is_python(source)):
            return reply.model_copy(update={"finish": "length"})  # still only a part
        return reply

    def _is_half(self, reply: Reply) -> bool:
        return bool(reply.is_cut_off and reply.text.strip() and self._read(reply).fault)

    def _may_be_longer(self, reply: Reply) -> bool:
        """Whether another limit can help; the user's own is kept."""
        return self._settings.reply_tokens is None or not reply.is_cut_off

    def _larger(self, reply: Reply) -> int | None:
        """A limit beyond the one that thinking used up, as far as the model's own goes."""
        if not reply.is_cut_off:
            return None
        larger = max(LEAST_LARGER, LARGER * reply.usage.tokens_out)
        most = self._calls.facts().reply_tokens
        return min(larger, most) if most and most > reply.usage.tokens_out else larger

    def _read(self, reply: Reply) -> Reading:
        if reply.refusal or reply.finish == "content_filter":
            said = f": {' '.join(reply.refusal.split())[:200]}" if reply.refusal else ""
            reason = f"a content filter, or the model's own refusal, ended the reply{said}"
            return Reading(fault=Fault(kind="filtered", reason=reason))
        reading = read(reply.text, is_cut_off=reply.is_cut_off, before=self._before)
        if reading.fault and reading.fault.kind == "empty":
            spent = f" after {reply.usage.tokens_out} tokens" if reply.usage.tokens_out else ""
            thought = ", all of them spent on reasoning" if reply.thought else ""
            reason = f"the reply is empty{spent}{thought}"
            if reply.is_cut_off and self._settings.reply_tokens:
                reason += f"; its limit is {self._settings.reply_tokens} (`--reply-tokens`)"
            return Reading(fault=Fault(kind="empty", reason=reason))
        return reading


def joined(first: str, second: str) -> str:
    """Two parts of one reply; what stands on both sides of the seam stands once.

    A fence that the second part opens anew amid the code is dropped.
    """
    if not _is_closed(first):
        lines = second.lstrip("\n").split("\n")
        if lines[0].lstrip().startswith(("```", "~~~")) and len(lines) > 1:
            second = "\n".join(lines[1:])
    longest = min(len(first), len(second), OVERLAP)
    for length in range(longest, 7, -1):
        if first.endswith(second[:length]):
            return first + second[length:]
    return first + second


def _is_closed(text: str) -> bool:
    """Whether no code block is open at the end."""
    fences = [line for line in text.split("\n") if line.lstrip().startswith(("```", "~~~"))]
    return len(fences) % 2 == 0


def _is_nothing(reply: Reply) -> bool:
    """Whether nothing came but thoughts, up to a limit; or nothing at all."""
    return not reply.text.strip() and not reply.refusal and reply.finish != "content_filter"


def _last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2][-200:]


def _spoken(reply: Reply) -> Message:
    """What the model said, as a part of the conversation; servers refuse an empty one."""
    message = reply.message
    return message if message.text.strip() else message.model_copy(update={"text": "(nothing)"})


def _question(fault: Fault | None) -> str:
    if fault is None:
        return ""
    reason = f"{fault.reason[:1].upper()}{fault.reason[1:]}"
    return ASK_BACK.get(fault.kind, "").format(reason=reason)
