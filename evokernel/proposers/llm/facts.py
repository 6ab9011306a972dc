"""Owns what is known of a model before it is asked: price, context, longest reply."""

from typing import Any

from evokernel.attempt import Usage
from evokernel.config import ModelConfig
from evokernel.frozen import Frozen
from evokernel.proposers.llm.access import Access


class Price(Frozen):
    """US dollars a token."""

    token_in: float
    token_out: float

    def of(self, tokens_in: int, tokens_out: int) -> float:
        """Of so many, without what a provider takes off for a prompt that it has kept."""
        return tokens_in * self.token_in + tokens_out * self.token_out

    def in_words(self) -> str:
        """E.g. `$1.25 in, $10.00 out for a million tokens`."""
        per_in, per_out = 1e6 * self.token_in, 1e6 * self.token_out
        return f"${per_in:,.2f} in, ${per_out:,.2f} out for a million tokens"


FREE = Price(token_in=0.0, token_out=0.0)


class ModelFacts(Frozen):
    """What the user, a server or litellm's list says of a model."""

    price: Price | None = None
    """None: unknown, which is not nothing."""
    is_own_price: bool = False
    """The user gave it, or the model costs nothing: litellm's list is not asked."""
    context_tokens: int | None = None
    """Of prompt and reply together."""
    reply_tokens: int | None = None
    """Of the longest reply."""
    takes_tools: bool | None = None
    """Whether it can call tools; None where nobody says so."""


def facts(
    litellm: Any, access: Access, settings: ModelConfig, served: int | None = None
) -> ModelFacts:
    """Gather it; what the user says counts most, then the server, then litellm's list.

    Args:
        litellm: The library.
        access: How the model is reached.
        settings: What the user says.
        served: The context of which the server speaks.
    """
    entry = _entry(litellm, access.model)
    own = _own_price(access, settings)
    context = settings.context_tokens or served or _count(entry, "max_input_tokens")
    most = _count(entry, "max_output_tokens")
    return ModelFacts(
        price=own or _listed(entry),
        is_own_price=own is not None,
        context_tokens=context,
        reply_tokens=settings.reply_tokens or (min(most, context) if most and context else most),
        takes_tools=entry.get("supports_function_calling"),
    )


def usd(litellm: Any, known: ModelFacts, model: str, response: Any, usage: Usage) -> float | None:
    """What a call cost; None where no price is known."""
    if known.price is None:
        return None
    if known.is_own_price:
        return known.price.of(usage.tokens_in, usage.tokens_out)
    try:
        if usage.is_estimated:
            return float(sum(litellm.cost_per_token(model, usage.tokens_in, usage.tokens_out)))
        return float(litellm.completion_cost(response, model=model))
    except Exception:  # whatever it is, the reply is paid for: it is kept, with what is known
        return known.price.of(usage.tokens_in, usage.tokens_out)


def _own_price(access: Access, settings: ModelConfig) -> Price | None:
    if settings.usd_per_million_in is not None and settings.usd_per_million_out is not None:
        return Price(
            token_in=settings.usd_per_million_in / 1e6, token_out=settings.usd_per_million_out / 1e6
        )
    return FREE if access.is_local else None


def _entry(litellm: Any, model: str) -> dict[str, Any]:
    """What the list itself has; `get_model_info` turns an absent price into nothing."""
    try:
        key = litellm.get_model_info(model).get("key")
    except Exception:  # the kind differs between providers: whatever it is, nothing is listed
        return {}
    entry: dict[str, Any] = litellm.model_cost.get(key) or {}
    return entry


def _listed(entry: dict[str, Any]) -> Price | None:
    """The list's price; of one in tiers the dearest, since it is a limit that is kept with it."""
    tiers = entry.get("tiered_pricing") or [entry]
    try:
        ins = [float(t["input_cost_per_token"]) for t in tiers if "input_cost_per_token" in t]
        outs = [float(t["output_cost_per_token"]) for t in tiers if "output_cost_per_token" in t]
    except (TypeError, ValueError):  # an entry that is no price
        return None
    return Price(token_in=max(ins), token_out=max(outs)) if ins and outs else None


def _count(entry: dict[str, Any], name: str) -> int | None:
    value = entry.get(name)
    return value if isinstance(value, int) and value > 0 else None
