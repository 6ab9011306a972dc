"""Owns what went wrong with a call: from litellm's exceptions to errors of ours, free of keys."""

import re
import time
from typing import NamedTuple

from evokernel.config import ModelConfig
from evokernel.errors import (
    ContentRefused,
    KeyRefused,
    ModelError,
    NoSuchModel,
    ParameterRefused,
    PromptTooLong,
    RateLimited,
    ReplyTimeout,
    Unreachable,
)
from evokernel.frozen import Frozen
from evokernel.proposers.llm.access import Access
from evokernel.proposers.llm.scrubbing import scrubbed
from evokernel.proposers.llm.waiting import Now, asked_wait_s

LONGEST = 300
"""Letters of a server's own words that a message quotes (ours)."""


class Failure(Frozen):
    """One failed call."""

    kind: type[ModelError]
    message: str
    """One paragraph: what happened, what the server says, what to do."""
    brief: str
    """A few words for the display."""
    may_pass: bool = False
    """Whether the same call may succeed a little later."""
    wait_s: float | None = None
    """How long the server asks to wait; None where it does not say."""
    said: str = ""
    """The server's own words, in one line."""
    parameter: str = ""
    """The parameter that it names beside them."""


def failure(
    error: Exception, access: Access, settings: ModelConfig, now: Now = time.time
) -> Failure:
    """Say what an exception of litellm means."""
    meaning = next((m for m in _MEANINGS if m.fits(error)), _UNKNOWN)
    key = f"`{access.key_env}`" if access.key_env else "nowhere: the environment has none"
    said, wait_s = _said(error, access), asked_wait_s(error, now)
    told = _told(meaning, said, access, key, settings, wait_s)
    return told.model_copy(update={"parameter": _parameter(error)})


def too_slow(access: Access, settings: ModelConfig) -> Failure:
    """No reply came within the time limit, whatever the libraries below still wait for."""
    return _told(_SLOW, "", access, "", settings, None)


def unusable(what: str, access: Access, settings: ModelConfig) -> Failure:
    """The server answered, but `what` it sent is no reply."""
    return _told(_FAULTY, what, access, "", settings, None)


def _told(
    meaning: "_Meaning",
    said: str,
    access: Access,
    key: str,
    settings: ModelConfig,
    wait_s: float | None,
) -> Failure:
    place = f" at {access.base_url}" if access.base_url else ""
    quoted = f' ("{said}")' if said else ""
    advice = meaning.advice.format(key=key, timeout=f"{settings.timeout_s:g}")
    return Failure(
        kind=meaning.kind,
        brief=meaning.brief,
        message=f"`{access.model}`{place}: {meaning.brief}{quoted}. {advice}.",
        may_pass=meaning.may_pass,
        wait_s=wait_s,
        said=said,
    )


class _Meaning(NamedTuple):
    """One kind of fault: how it is known by, and what is said of it."""

    kind: type[ModelError]
    brief: str
    advice: str
    statuses: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    """Of litellm or its SDK, by name: nothing has to be imported to look at an exception."""
    words: str = ""
    """Found in the message; with classes, both must fit."""
    may_pass: bool = False

    def fits(self, error: Exception) -> bool:
        """Whether the exception is of this kind."""
        status = getattr(error, "status_code", None)
        is_named = bool({*self.classes} & {kind.__name__ for kind in type(error).__mro__})
        is_named = is_named or status in self.statuses
        return is_named and bool(re.search(self.words, str(error), re.IGNORECASE))


_GO_ON = "the run goes on with `evokernel resume`"
_REFUSALS = (400, 413, 422)
_FAULTY = _Meaning(
    Unreachable,
    "the server cannot be reached, or answers with faults of its own",
    f"Check its address, that it runs, and the network; {_GO_ON}",
    statuses=(409, 425, 500, 502, 503, 504, 520, 522, 524, 529),
    classes=("APIConnectionError", "InternalServerError", "ServiceUnavailableError"),
    may_pass=True,
)
_SLOW = _Meaning(
    ReplyTimeout,
    "no reply within the time limit",
    "The limit here is {timeout} seconds (`--timeout`); the server's own may be shorter",
    statuses=(408,),
    classes=("Timeout", "APITimeoutError"),
)
_UNKNOWN = _Meaning(ModelError, "the call failed", f"Once the reason is gone, {_GO_ON}")
_MEANINGS = (
    # A special kind stands before the general one that it is derived from.
    _Meaning(
        ParameterRefused,
        "a parameter is refused",
        "Take it out of the settings of the model",
        classes=("UnsupportedParamsError",),
    ),
    _SLOW,
    _Meaning(RateLimited, "payment is required", f"Fill up the account; {_GO_ON}", (402,)),
    _Meaning(
        RateLimited,
        "the account's credit or quota is spent",
        f"Fill it up; {_GO_ON}",
        statuses=(429, 400, 403),
        words=r"insufficient.quota|exceeded your current quota|credit balance",
    ),
    _Meaning(
        PromptTooLong,
        "the prompt is too long for this model",
        "Choose a model, or start its server, with a larger context",
        classes=("ContextWindowExceededError",),
    ),
    _Meaning(
        PromptTooLong,
        "the prompt is too long for this model",
        "Choose a model, or start its server, with a larger context",
        statuses=_REFUSALS,
        words=r"context.{0,20}(?:length|window|size|limit)|maximum.{0,30}tokens|prompt is too long"
        r"|too many (?:input )?tokens|exceeds?.{0,40}context|reduce the length",
    ),
    _Meaning(
        ParameterRefused,
        "a parameter is refused",
        "Take it out of the settings of the model",
        statuses=_REFUSALS,
        words=r"unsupported.{0,12}(?:parameter|value|param)|unrecogni[sz]ed.{0,20}(?:argument|param"
        r"|request)|extra inputs are not permitted|(?:does not|doesn't|not) support"
        r"|unknown (?:parameter|name|field)|invalid.{0,9}param|not permitted|extra_forbidden"
        r"|unexpected keyword|may only be set|must be (?:less|at most|greater|one of|between)"
        r"|(?:is|are) too large|less than or equal|is deprecated",
    ),
    _Meaning(
        ContentRefused,
        "a content filter refused the prompt",
        f"Rephrase the comments of the task; {_GO_ON}",
        statuses=_REFUSALS,
        classes=("ContentPolicyViolationError",),
        words=r"content.?(?:policy|filter|management)|safety|policy.?violation",
    ),
    _Meaning(
        KeyRefused,
        "no key was found",
        "Set the variable that the provider wants, or name one with `--api-key-env`",
        statuses=(400, 401, 500),
        classes=("APIConnectionError",),
        words=r"api_key client option must be set|missing.{0,20}(?:api.?key|credentials)"
        r"|no api.?key|could not resolve authentication|unable to locate credentials",
    ),
    _Meaning(
        KeyRefused,
        "the server refused the key",
        "It came from {key}. Check that it is whole, not expired, and may use this model",
        statuses=(401, 403),
        classes=("AuthenticationError", "PermissionDeniedError"),
    ),
    _Meaning(
        NoSuchModel,
        "the server does not know this model",
        "Check its spelling and, where a base URL is given, that it ends as the server wants it "
        "(often in `/v1`)",
        statuses=(404,),
        classes=("NotFoundError",),
    ),
    _Meaning(
        RateLimited,
        "the server wants fewer requests",
        f"Wait a little; {_GO_ON}",
        statuses=(429,),
        classes=("RateLimitError",),
        may_pass=True,
    ),
    _Meaning(
        ModelError,
        "the server refused the request",
        f"Once the reason is gone, {_GO_ON}",
        statuses=_REFUSALS,
        classes=("BadRequestError", "UnprocessableEntityError"),
    ),
    _FAULTY,
)


def _said(error: Exception, access: Access) -> str:
    """The server's own words, in one line and without litellm's frame."""
    text = " ".join(scrubbed(str(error), access.secrets()).split())
    while stripped := _FRAME.match(text):
        text = text[stripped.end() :]
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _parameter(error: Exception) -> str:
    """`error.param` of OpenAI's protocol."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    named = inner.get("param") if isinstance(inner, dict) else None
    return str(named or getattr(error, "param", None) or "")


_FRAME = re.compile(r"(?:litellm\.)?\w+(?:Error|Exception|Timeout)\s*[:-]\s*(?:\w+Exception - )?")
