"""Owns one call through litellm: sent once, with a limit on the clock, answered or failed.

The call has a thread of its own, so that Ctrl-C and the time limit count at once, whatever the
libraries below are waiting for; what comes back after that is thrown away.
"""

import queue
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from evokernel.attempt import Stage, Usage
from evokernel.config import ModelConfig, library_settings
from evokernel.errors import ConfigError
from evokernel.proposers.llm.access import Access
from evokernel.proposers.llm.facts import ModelFacts, facts, usd
from evokernel.proposers.llm.faults import Failure, failure, too_slow, unusable
from evokernel.proposers.llm.messages import Message, Reply, Tool, ToolCall
from evokernel.proposers.llm.scrubbing import without_keys

LETTERS_A_TOKEN = 4
"""Where the server does not count its tokens: the usual ratio for English and code."""
GRACE_S = 2.0
"""How much longer than the client below we wait for a reply, seconds (ours)."""


class Asked(NamedTuple):
    """One call, ready to be sent."""

    messages: Sequence[Message]
    tools: Sequence[Tool]
    parameters: dict[str, Any]
    """Optional ones, by name; `cache_control` asks for marks on what is to be kept."""
    step: str
    stage: Stage
    left_s: float = 0.0
    """Seconds until its deadline."""


class Endpoint(Protocol):
    """Where replies come from."""

    model: str
    """Its name, as calls are recorded with it."""
    keeps_marked: bool
    """Whether its provider keeps a prompt only where it is marked."""

    def facts(self) -> ModelFacts:
        """What is known of the model."""

    def send(self, asked: Asked) -> Reply | Failure:
        """Ask once."""


class LiteLLM:
    """A model that litellm can reach; implements `Endpoint`.

    Args:
        access: How it is reached.
        settings: Limits.
    """

    def __init__(self, access: Access, settings: ModelConfig) -> None:
        self.model = access.model
        self.keeps_marked = access.keeps_marked
        self._access = access
        self._settings = settings
        self._served: int | None = None
        self._facts: ModelFacts | None = None

    def served(self, context_tokens: int | None) -> None:
        """Take note of the context of which its server speaks."""
        self._served, self._facts = context_tokens, None

    def facts(self) -> ModelFacts:
        """Price and limits. Imports litellm (seconds).

        Raises:
            ConfigError: it is not installed.
        """
        if self._facts is None:
            self._facts = facts(library(), self._access, self._settings, self._served)
        return self._facts

    def send(self, asked: Asked) -> Reply | Failure:
        """Ask once; whatever goes wrong is a `Failure`."""
        litellm, known = library(), self.facts()
        limit_s = min(self._settings.timeout_s, asked.left_s)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(
            target=lambda: answers.put(self._response(litellm, asked, limit_s)),
            name="evokernel-call",
            daemon=True,
        ).start()
        try:
            response = answers.get(timeout=limit_s + GRACE_S)
        except queue.Empty:
            return too_slow(self._access, self._settings)
        if isinstance(response, Exception):
            return failure(response, self._access, self._settings)
        if not getattr(response, "choices", None):
            return unusable("an answer without a reply in it", self._access, self._settings)
        return self._reply(litellm, known, response, asked.messages)

    def _response(self, litellm: Any, asked: Asked, limit_s: float) -> Any:
        parameters = dict(asked.parameters)
        marks = bool(parameters.pop("cache_control", False))
        more = {"tools": [tool.sent() for tool in asked.tools]} if asked.tools else {}
        try:
            return litellm.completion(
                model=self._access.model,
                messages=sent(asked.messages, marks=marks),
                api_key=self._access.sent_key,
                base_url=self._access.base_url,
                timeout=limit_s,
                max_retries=0,  # the SDK's own retries would multiply ours
                num_retries=0,
                **more,
                **parameters,
            )
        except Exception as error:  # litellm's, its SDK's, and whatever they did not expect
            return error

    def _reply(
        self, litellm: Any, known: ModelFacts, response: Any, messages: Sequence[Message]
    ) -> Reply:
        choice = response.choices[0]
        message = choice.message
        text = without_keys(_text(message.content), self._access.secrets())
        thought = getattr(message, "reasoning_content", None) or ""
        usage = _usage(response, sum(m.letters for m in messages), len(text) + len(thought))
        price = usd(litellm, known, self.model, response, usage)
        calls = tuple(_tool_call(call) for call in getattr(message, "tool_calls", None) or ())
        return Reply(
            text=text,
            finish=str(choice.finish_reason or ""),
            thought=len(thought),
            refusal=str(getattr(message, "refusal", None) or ""),
            tool_calls=calls,
            opaque=_opaque(message, self._access.provider, bool(calls)),
            usage=usage.model_copy(update={"usd": price}),
        )


def sent(messages: Sequence[Message], *, marks: bool) -> list[dict[str, Any]]:
    """Messages as OpenAI's protocol has them.

    Args:
        messages: The conversation.
        marks: Mark how far it stays the same: at every step up to the system message, within a
            step up to the last word so far.
    """
    plain = [message.sent() for message in messages]
    if marks:
        last = max((i for i, m in enumerate(plain) if m["role"] == "user"), default=0)
        for index in {0, last}:
            text, kept = plain[index]["content"], {"type": "ephemeral"}
            plain[index]["content"] = [{"type": "text", "text": text, "cache_control": kept}]
    return plain


def library() -> Any:
    """Import litellm, which takes seconds, and keep it quiet.

    Raises:
        ConfigError: it is not installed.
    """
    library_settings()
    try:
        import litellm
    except ImportError as error:
        raise ConfigError(
            f"a model is asked through litellm, which cannot be imported ({error}); install it "
            "anew with `pip install 'evokernel-agent[model]'`"
        ) from error
    litellm.suppress_debug_info = True  # else it prints advice among our lines
    return litellm


def _text(content: Any) -> str:
    """A reply's text, also where it comes in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content or "")


def _usage(response: Any, letters_in: int, letters_out: int) -> Usage:
    counted = getattr(response, "usage", None)
    tokens_in = _number(counted, "prompt_tokens")
    tokens_out = _number(counted, "completion_tokens")
    if tokens_in + tokens_out == 0:
        return Usage(
            tokens_in=-(-letters_in // LETTERS_A_TOKEN),
            tokens_out=-(-letters_out // LETTERS_A_TOKEN),
            is_estimated=True,
        )
    return Usage(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        tokens_cached=_number(getattr(counted, "prompt_tokens_details", None), "cached_tokens"),
        tokens_thought=_number(
            getattr(counted, "completion_tokens_details", None), "reasoning_tokens"
        ),
    )


def _number(counted: Any, name: str) -> int:
    value = getattr(counted, name, None)
    return max(0, int(value)) if isinstance(value, int | float) else 0


def _tool_call(call: Any) -> ToolCall:
    arguments = call.function.arguments
    fields = getattr(call, "provider_specific_fields", None)
    return ToolCall(
        id=str(call.id or ""),
        name=str(call.function.name or ""),
        arguments=arguments if isinstance(arguments, str) else str(arguments or ""),
        opaque={"provider_specific_fields": fields} if isinstance(fields, dict) else {},
    )


_WANT_THOUGHTS_BACK = ("deepseek", "moonshot")
"""Providers that refuse a tool's answer unless what the model thought before comes with it."""


def _opaque(message: Any, provider: str, has_calls: bool) -> dict[str, Any]:
    """What the provider wants back with the next call."""
    found: dict[str, Any] = {}
    if blocks := getattr(message, "thinking_blocks", None):
        found["thinking_blocks"] = [dict(block) for block in blocks]
    if has_calls and provider in _WANT_THOUGHTS_BACK:
        found["reasoning_content"] = getattr(message, "reasoning_content", None) or ""
    return found
