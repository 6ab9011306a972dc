"""Owns one model of a run: how it is reached, and what is looked at before it is paid for."""

import json
import socket
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from evokernel.config import ModelConfig
from evokernel.errors import ConfigError
from evokernel.proposers.llm.access import Access, access
from evokernel.proposers.llm.calls import Calls, Services
from evokernel.proposers.llm.endpoint import LiteLLM
from evokernel.proposers.llm.replay import PREFIX, Recording

CONNECT_S = 5.0
"""How long a server of one's own may take to accept a connection or to list its models (ours)."""
_CONTEXTS = ("max_model_len", "context_length", "max_context_length", "context_window")
"""What servers call the context in their list of models: vLLM, OpenRouter, LM Studio, Groq."""


class Model:
    """One model.

    Args:
        name: As the user gives it.
        settings: How it is asked.
        services: What it shares with the run's other models.

    Raises:
        ConfigError: no such provider, key, address or recording; litellm is not imported.
    """

    def __init__(self, name: str, settings: ModelConfig, services: Services) -> None:
        self.name = name
        self.settings = settings
        self.access: Access | None = None
        if name.startswith(PREFIX):
            self._endpoint: Recording | LiteLLM = Recording(name, services.book, services.say)
        else:
            self.access = access(name, settings)
            self._endpoint = LiteLLM(self.access, settings)
        self.calls = Calls(self._endpoint, settings, services)

    def is_same(self, name: str, settings: ModelConfig) -> bool:
        """Whether it is this one, asked in this way."""
        return (self.name, self.settings) == (name, settings)

    def check(self, *, needs_price: bool) -> None:
        """Look at what can be looked at for nothing.

        Raises:
            ConfigError: nobody at its address, litellm missing, or no price where one is needed.
        """
        if self.access and isinstance(self._endpoint, LiteLLM):
            _knock(self.access)
            self._endpoint.served(listed_context(self.access))
        if needs_price and self.calls.facts().price is None:
            raise ConfigError(
                f"the price of `{self.name}` is unknown, so a budget in dollars cannot be kept; "
                "give a budget in tokens with `--tokens` in place of `--usd`, or its price in a "
                "file for `--model-config` (`usd_per_million_in`, `usd_per_million_out`)"
            )


def listed(access: Access) -> dict[str, dict[str, Any]]:
    """The models that a server of one's own lists, by name; nothing where it has no such list."""
    if access.base_url is None:
        return {}
    headers = {"Authorization": f"Bearer {access.sent_key}"} if access.sent_key else {}
    try:
        # The scheme is http or https: `access` refuses any other.
        with urlopen(
            Request(f"{access.base_url}/models", headers=headers), timeout=CONNECT_S
        ) as got:
            found = json.load(got)
    except (URLError, OSError, ValueError):  # a list is an extra; many servers have none
        return {}
    rows = found.get("data") if isinstance(found, dict) else None
    named = [row for row in rows or () if isinstance(row, dict) and isinstance(row.get("id"), str)]
    return {row["id"]: row for row in named}


def listed_context(access: Access) -> int | None:
    """The context of the model, tokens, where its server's list tells it."""
    row = listed(access).get(access.model.partition("/")[2], {})
    values = (row.get(name) for name in _CONTEXTS)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def _knock(access: Access) -> None:
    """See whether anybody answers at a given address; hosted models are not asked."""
    if access.base_url is None:
        return
    parts = urlsplit(access.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"nobody answers at `{access.base_url}` ({error.strerror or error}); start the server "
            "of the model, or correct the address (`--base-url`)"
        ) from error
