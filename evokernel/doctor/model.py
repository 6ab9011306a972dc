"""Owns the check of a model: one tiny call, and what is known of its price and its limits."""

from collections.abc import Iterator

from evokernel.attempt import Usage
from evokernel.config import ModelConfig
from evokernel.doctor.finding import Facts, Finding, in_one_line
from evokernel.errors import ConfigError, ModelError
from evokernel.proposers.llm.book import CallBook
from evokernel.proposers.llm.calls import Calls, Services
from evokernel.proposers.llm.facts import ModelFacts
from evokernel.proposers.llm.messages import Message
from evokernel.proposers.llm.models import Model, listed
from evokernel.record.spending import dollars

QUESTION = "Answer with the single word: ready"
REPLY_TOKENS = 256
"""Limit of the reply: enough for a word, and for some models to think about it first (ours)."""
NEEDED_TOKENS = 16_384
"""Context that a step's prompt and a kernel take together, more or less (ours)."""


def examine_model(name: str, settings: ModelConfig) -> Iterator[Finding]:
    """Ask the model one word; findings `model`, `price`, `context` and `parameters`.

    It costs what some thirty tokens cost. Nothing is repeated but a call whose parameter was
    refused, without it.

    Args:
        name: As for `--model`.
        settings: As a run would ask it.
    """
    book, said = CallBook(), list[str]()
    quick = settings.model_copy(update={"retries": 0})
    try:
        model = Model(name, quick, Services(book, say=said.append))
        model.check(needs_price=False)
        known = model.calls.facts()
        reply = model.calls.ask([Message.user(QUESTION)], reply_tokens=REPLY_TOKENS)
    except (ConfigError, ModelError) as error:
        yield _unreachable(name, error)
        return
    yield _answered(name, reply.text, reply.usage, book.calls()[-1].seconds)
    yield _price(known)
    yield _context(known)
    yield _parameters(model.calls, settings, said, _others(model))


def _unreachable(name: str, error: ConfigError | ModelError) -> Finding:
    found, advice = _parts(in_one_line(str(error)), isinstance(error, ModelError))
    return Finding(
        name="model",
        state="missing",
        found=f"{name}: {found}" if name not in found else found,
        advice=advice or "see docs/models.md on names, keys and addresses",
        is_required=True,
        facts={
            "model": name,
            "answers": False,
            "error": type(error).__name__,
            "latency_s": None,
            "tokens_in": None,
            "tokens_out": None,
            "usd": None,
            "counts_tokens": None,
            "reply": None,
        },
    )


def _parts(said: str, is_of_a_call: bool) -> tuple[str, str]:
    """What happened, and what to do: errors of a call say that in sentences of their own."""
    said = said.replace("; the run goes on with `evokernel resume`", "").rstrip(".")
    if not is_of_a_call:
        found, _, advice = said.partition("; ")
        return found, advice
    end = '"). ' if '"). ' in said else ". "  # the server's own words may hold sentences, too
    found, _, advice = said.partition(end)
    return found + end.rstrip(". "), advice


def _answered(name: str, text: str, usage: Usage, seconds: float) -> Finding:
    words = in_one_line(text)[:40]
    said = f'"{words}"' if words else f"nothing within {REPLY_TOKENS} tokens: it thinks first"
    cost = "price unknown" if usage.usd is None else dollars(usage.usd)
    counted = "; its server does not count tokens" if usage.is_estimated else ""
    return Finding(
        name="model",
        state="ok",
        found=f"{name} answered {said} in {seconds:.2f} s: {usage.tokens_in} tokens in, "
        f"{usage.tokens_out} out, {cost}{counted}",
        is_required=True,
        facts={
            "model": name,
            "answers": True,
            "error": None,
            "latency_s": seconds,
            "tokens_in": usage.tokens_in,
            "tokens_out": usage.tokens_out,
            "usd": usage.usd,
            "counts_tokens": not usage.is_estimated,
            "reply": words,
        },
    )


def _price(known: ModelFacts) -> Finding:
    price = known.price
    facts: Facts = {
        "is_known": price is not None,
        "usd_per_million_in": 1e6 * price.token_in if price else None,
        "usd_per_million_out": 1e6 * price.token_out if price else None,
    }
    if price is None:
        advice = "keep a budget with `--tokens`, or give its price in a file for `--model-config`"
        return Finding(name="price", state="warning", found="unknown", advice=advice, facts=facts)
    free = not (price.token_in or price.token_out)
    said = "costs nothing" if free else price.in_words()
    return Finding(name="price", state="ok", found=said, facts=facts)


def _context(known: ModelFacts) -> Finding:
    context, reply = known.context_tokens, known.reply_tokens
    facts: Facts = {
        "context_tokens": context,
        "reply_tokens": reply,
        "takes_tools": known.takes_tools,
    }
    if context is None:
        return Finding(
            name="context",
            state="warning",
            found="unknown: a prompt that is too long shows only when it is refused",
            advice="give it in a file for `--model-config` (`context_tokens = 32768`)",
            facts=facts,
        )
    most = f", replies up to {reply:,}" if reply else ""
    said = f"{context:,} tokens{most}"
    if context < NEEDED_TOKENS:
        return Finding(
            name="context",
            state="warning",
            found=f"{said}: prompts are cut to fit",
            advice=f"start its server with {NEEDED_TOKENS:,} or more",
            facts=facts,
        )
    return Finding(name="context", state="ok", found=said, facts=facts)


def _parameters(
    calls: Calls, settings: ModelConfig, said: list[str], others: tuple[str, ...]
) -> Finding:
    chosen = {"temperature": settings.temperature, "reasoning_effort": settings.reasoning_effort}
    sent = (*(name for name, value in chosen.items() if value is not None), *settings.parameters)
    refused = calls.refused
    facts: Facts = {"sent": (*sent, "max_tokens"), "refused": refused, "also_served": others}
    if refused:
        told = in_one_line(next((line for line in said if "refuses `" in line), ""))
        names = ", ".join(f"`{name}`" for name in refused)
        return Finding(
            name="parameters",
            state="warning",
            found=f"refused and left out: {names}",
            advice=f"runs go on without; take them out of the settings ({told})",
            facts=facts,
        )
    names = ", ".join(f"`{name}`" for name in sent)
    found = f"taken: {names}" if sent else "none are sent but the limit of a reply"
    return Finding(name="parameters", state="ok", found=found, facts=facts)


def _others(model: Model) -> tuple[str, ...]:
    """Other models that a server of one's own lists."""
    return tuple(sorted(listed(model.access))) if model.access else ()
