"""Owns what passes between a model and us: messages, tools, and the reply to a call."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import JsonValue

from evokernel.attempt import Usage
from evokernel.frozen import Frozen


class ToolCall(Frozen):
    """A model's wish to have a tool used."""

    id: str
    name: str
    arguments: str
    """As the model wrote them: JSON, if it did as it should."""
    opaque: dict[str, JsonValue] = {}
    """What the provider wants back as it was, e.g. a signature."""

    def values(self) -> dict[str, Any] | None:
        """The arguments by name; None where they are no JSON object."""
        try:
            found = json.loads(self.arguments or "{}")
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


class Tool(Frozen):
    """What a model may have done for it."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    """JSON schema of an object."""

    def sent(self) -> dict[str, Any]:
        """As OpenAI's protocol has it."""
        return {"type": "function", "function": self.model_dump()}


class Message(Frozen):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant wants done."""
    answers: str = ""
    """Id of the call that a tool's message answers."""
    opaque: dict[str, JsonValue] = {}
    """Of an assistant: what its provider wants back as it was, e.g. signed thoughts."""

    @classmethod
    def system(cls, text: str) -> "Message":
        """What holds for the whole conversation."""
        return cls(role="system", text=text)

    @classmethod
    def user(cls, text: str) -> "Message":
        """What the model is asked."""
        return cls(role="user", text=text)

    @classmethod
    def answer(cls, call: ToolCall, text: str) -> "Message":
        """What a tool has to say."""
        return cls(role="tool", text=text, answers=call.id)

    def sent(self) -> dict[str, Any]:
        """As OpenAI's protocol has it."""
        message: dict[str, Any] = {"role": self.role, "content": self.text, **self.opaque}
        if self.tool_calls:
            message["content"] = self.text or None
            message["tool_calls"] = [_sent(call) for call in self.tool_calls]
        if self.answers:
            message["tool_call_id"] = self.answers
        return message

    @property
    def letters(self) -> int:
        """Its length, for an estimate of its tokens."""
        return len(self.text) + sum(
            len(call.name) + len(call.arguments) for call in self.tool_calls
        )


class Reply(Frozen):
    """What came back, and what it cost."""

    text: str
    finish: str
    """As the server says: `stop`, `length` (cut off), `tool_calls`, `content_filter`, ..."""
    thought: int = 0
    """Letters of reasoning that the server sent beside the text."""
    refusal: str = ""
    """What a model says that will not answer, where its server tells that apart."""
    tool_calls: tuple[ToolCall, ...] = ()
    opaque: dict[str, JsonValue] = {}
    """What the provider wants back with the next call, e.g. signed thoughts."""
    usage: Usage
    recorded: int | None = None
    """Number of the call in the recording that it was taken from."""

    @property
    def message(self) -> Message:
        """The reply as a part of the conversation that goes on."""
        return Message(
            role="assistant", text=self.text, tool_calls=self.tool_calls, opaque=self.opaque
        )

    @property
    def is_cut_off(self) -> bool:
        """Whether a limit of length ended it."""
        return self.finish == "length"


def digest(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
    """First 16 hex digits of the SHA-256 of what is asked: the same for the same content."""
    asked = [[m.model_dump(mode="json") for m in messages], [t.model_dump() for t in tools]]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def _sent(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **call.opaque}
