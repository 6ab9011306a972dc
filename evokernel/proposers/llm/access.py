"""Owns the check of a model's name, address and key, made before anything heavy is imported."""

from importlib.util import find_spec
from urllib.parse import urlsplit

from evokernel.config import ModelConfig, key_names, secret
from evokernel.errors import ConfigError
from evokernel.frozen import Frozen
from evokernel.proposers.llm.providers import (
    ADDRESSES,
    BY_PREFIX,
    KEYS,
    LOCAL,
    OPENAI_ADDRESSES,
    OPTIONAL_KEYS,
    PROVIDERS,
)
from evokernel.task.constants import nearest

_EXAMPLE = (
    "a model is named `PROVIDER/NAME`, e.g. `openai/gpt-5`, `anthropic/claude-sonnet-4-5` or "
    "`ollama/qwen3-coder`; a server that speaks OpenAI's protocol takes any name, with `--base-url`"
)


_MARKED = ("anthropic", "bedrock", "databricks", "openrouter", "vertex_ai")
"""Providers that pass marks for the prompt's cache on to Anthropic's models."""


class Access(Frozen):
    """How a model is reached; the key itself stays in the environment."""

    model: str
    """As litellm takes it: `PROVIDER/NAME`."""
    provider: str
    base_url: str | None = None
    """None is the provider's own address."""
    key_env: str | None = None
    """Environment variable that holds the key; None needs none, or leaves finding it to litellm."""

    def key(self) -> str:
        """The key, fresh from the environment; empty where there is none."""
        return secret(self.key_env) if self.key_env else ""

    def secrets(self) -> tuple[str, ...]:
        """What must not be shown: the key, or every key where litellm looks for its own."""
        return tuple(map(secret, (self.key_env,) if self.key_env else key_names()))

    @property
    def sent_key(self) -> str | None:
        """The key as clients want it; None leaves finding it to litellm.

        They insist on one, also where a server of one's own asks for none.
        """
        needs_none = self.is_local or (self.provider == "openai" and self.base_url)
        return self.key() or ("none" if needs_none else None)

    @property
    def keeps_marked(self) -> bool:
        """Whether its provider keeps prompts for later calls only where they are marked.

        Others keep what begins alike by themselves, or not at all.
        """
        return "claude" in self.model.lower() and self.provider in _MARKED

    @property
    def is_local(self) -> bool:
        """Whether it is a server of one's own, whose tokens cost nothing."""
        return self.provider in LOCAL


def access(name: str, settings: ModelConfig) -> Access:
    """Find out how a model is reached, from its name, the settings and the environment.

    `NAME@URL` is a model at an address of its own.

    Raises:
        ConfigError: no such provider, no key, an address that is none, or no litellm.
    """
    name, at, url = name.partition("@http")
    settings = settings.model_copy(update={"base_url": f"http{url}"}) if at else settings
    base_url = settings.base_url and _address(settings.base_url, "--base-url")
    provider, _, rest = name.partition("/")
    if provider not in PROVIDERS:
        if base_url is None:
            raise ConfigError(_unknown(name))
        # Any server of this protocol; the name is its own, slashes and all.
        provider, rest = "openai", name
    if not rest.strip():
        raise ConfigError(f"`--model {name}` names a provider, but no model of it; {_EXAMPLE}")
    base_url = base_url or _usual_address(provider, name)
    key_env = _key(provider, name, settings, has_address=base_url is not None)
    if find_spec("litellm") is None:
        raise ConfigError(
            "a model is asked through litellm, which is not installed; install it with "
            "`pip install 'evokernel-agent[model]'`"
        )
    return Access(model=f"{provider}/{rest}", provider=provider, base_url=base_url, key_env=key_env)


def _unknown(name: str) -> str:
    provider, slash, _ = name.partition("/")
    if slash:
        return (
            f"`--model {name}`: there is no provider `{provider}`; {_EXAMPLE}."
            f"{nearest(provider, sorted(PROVIDERS))}"
        )
    owner = next((p for start, p in BY_PREFIX.items() if name.startswith(start)), None)
    hint = f" Did you mean `{owner}/{name}`?" if owner else ""
    return f"`--model {name}` does not say whose model that is; {_EXAMPLE}.{hint}"


def _address(url: str, where: str) -> str:
    """Accept `http(s)://host[:port][/path]` and nothing that could carry a key."""
    expected = "expected `http://HOST:PORT/PATH` or `https://...`, e.g. `http://localhost:8000/v1`"
    parts = urlsplit(url)
    try:
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname)
        is_whole = is_whole and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number
        is_whole = False
    if "@" in parts.netloc or parts.query or parts.fragment:
        # Not quoted: what stands there may well be a secret.
        raise ConfigError(
            f"`{where}` holds a user's name, a password or parameters; {expected}. A key belongs "
            "into an environment variable that `--api-key-env` names"
        )
    if not is_whole or any(letter.isspace() for letter in url):
        raise ConfigError(f"`{where}` cannot be `{url}`; {expected}")
    return url.rstrip("/")


def _usual_address(provider: str, name: str) -> str | None:
    variables = OPENAI_ADDRESSES if provider == "openai" else ADDRESSES.get(provider, ())
    for variable in variables:
        if url := secret(variable):
            return _address(url, variable)
    if provider in ADDRESSES:
        raise ConfigError(
            f"`--model {name}` needs the address of its server: give `--base-url URL`, or set "
            f"`{ADDRESSES[provider][0]}`"
        )
    return None


def _key(provider: str, name: str, settings: ModelConfig, *, has_address: bool) -> str | None:
    """Name of the variable that holds the key; None where none is needed or known of."""
    if wanted := settings.api_key_env:
        if not secret(wanted):
            raise ConfigError(
                f"`--api-key-env {wanted}`: the environment has no such variable, or it is empty; "
                f"expected the name of the one that holds the key for `{name}`: "
                f"`export {wanted}=...`"
            )
        return wanted
    known = KEYS.get(provider, ())
    may_hold = (*known, *OPTIONAL_KEYS.get(provider, ()))
    found = next((variable for variable in may_hold if secret(variable)), None)
    if known and found is None and not (has_address and provider == "openai"):
        others = f" (or {', '.join(f'`{k}`' for k in known[1:])})" if known[1:] else ""
        raise ConfigError(
            f"`--model {name}` needs a key, and the environment has none: set "
            f"`{known[0]}`{others}, or name the variable that holds it with `--api-key-env`. "
            "A server of your own needs no key: give its address with `--base-url`"
        )
    return found
