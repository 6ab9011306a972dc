"""Owns the optional parameters of a call: which are sent, and which a server has refused."""

import re
from typing import Any

from evokernel.config import ModelConfig
from evokernel.errors import ModelError, ParameterRefused, PromptTooLong
from evokernel.proposers.llm.faults import Failure

OTHER_NAMES = {
    "max_tokens": ("max_completion_tokens", "max_output_tokens", "maxOutputTokens"),
    "reasoning_effort": ("reasoning", "thinking", "output_config", "effort"),
    "cache_control": ("cache control", "prompt caching"),
}
"""What servers call a parameter that goes by another name in litellm."""
SMALLEST_LIMIT = 512
"""Tokens of a reply's limit below which it is not lowered any further (ours)."""
_TOO_LARGE = re.compile(
    r"too (?:large|high|big|long)|at most|less than|exceed|greater than|maximum|<=", re.IGNORECASE
)


class Parameters:
    """What is sent with each call of one model beside its messages.

    A server that refuses one is asked again without it, and from then on it stays away.
    """

    def __init__(self, settings: ModelConfig) -> None:
        chosen = {
            "temperature": settings.temperature,
            "reasoning_effort": settings.reasoning_effort,
        }
        self._wanted: dict[str, Any] = {k: v for k, v in chosen.items() if v is not None}
        self._wanted |= settings.parameters
        self._limit = "max_tokens"
        self._ceiling: int | None = None
        self.refused: dict[str, str] = {}
        """What the server said, by the parameter that is left out because of it."""

    @property
    def takes_limit(self) -> bool:
        """Whether the server has not refused a limit for its replies."""
        return self._limit not in self.refused

    def sent(self, limit: int | None, *, caches: bool) -> dict[str, Any]:
        """By name.

        Args:
            limit: Most tokens of the reply; None sends no limit.
            caches: Mark what is to be kept for later calls.
        """
        limits = {self._limit: min(limit, self._ceiling or limit)} if limit else {}
        marks = {"cache_control": True} if caches else {}
        wanted = {**self._wanted, **limits, **marks}
        return {name: value for name, value in wanted.items() if name not in self.refused}

    def amend(self, failed: Failure, sent: dict[str, Any]) -> str:
        """Send from now on what the server does not refuse.

        Returns:
            What was done, in words to follow the model's name; nothing where it is no such failure.
        """
        limit = sent.get(self._limit)
        if failed.kind is PromptTooLong:
            return self._lowered(limit) if limit else ""
        if failed.kind not in (ParameterRefused, ModelError):
            return ""
        name = _refused(failed, sent)
        if not name:
            return ""
        if name == self._limit and (said := self._limited(failed.said, limit)):
            return said
        self.refused[name] = failed.said
        return f"refuses `{name}`; it is left out from here on"

    def _limited(self, said: str, limit: int | None) -> str:
        """Keep the limit of the reply, if need be under its newer name or with another value."""
        if self._limit == "max_tokens" and "max_completion_tokens" in said:
            self._limit = "max_completion_tokens"
            return "wants `max_completion_tokens` in place of `max_tokens`"
        return self._lowered(limit) if _TOO_LARGE.search(said) else ""

    def _lowered(self, limit: int | None) -> str:
        if limit is None or limit <= SMALLEST_LIMIT:
            return ""
        self._ceiling = max(SMALLEST_LIMIT, limit // 2)
        return f"refuses replies of {limit:,} tokens; the limit is {self._ceiling:,} from here on"


def _refused(failed: Failure, sent: dict[str, Any]) -> str:
    """The parameter that it is about; what the server names apart from its words comes first."""
    for text in (failed.parameter, failed.said):
        for name in sent:
            known = (name, *OTHER_NAMES.get(name, ()))
            if any(re.search(rf"(?<!\w){re.escape(other)}(?!\w)", text) for other in known):
                return name
    return ""
