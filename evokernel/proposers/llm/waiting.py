"""Owns how long a server wants to be left alone: from headers and from what it says."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

Now = Callable[[], float]
"""Seconds since 1970."""

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SAID = re.compile(
    r"(?:try again in|retry in|retry after|\"retryDelay\"\s*:\s*\")\s*"
    r"(?P<time>(?:\d+(?:\.\d+)?\s*(?:ms|h|m|s)(?:ec\w*|in\w*|our\w*)?\s*)+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|h|m|s)", re.IGNORECASE)


def asked_wait_s(error: Exception, now: Now) -> float | None:
    """Seconds that a failed call's server asks to wait; None where it does not say.

    `retry-after` holds seconds or a date (RFC 9110, section 10.2.3), `retry-after-ms` is a habit of
    OpenAI's and Azure's; Google and OpenAI say it in the message, too.
    """
    headers = _headers(error)
    for name, read in (("retry-after-ms", _milliseconds), ("retry-after", _seconds)):
        if name in headers and (wait := read(headers[name], now)) is not None:
            return wait
    return _said(str(error))


def _headers(error: Exception) -> dict[str, str]:
    """Those of the answer, also where litellm has made an exception of another kind of it."""
    answer = getattr(error, "response", None)
    places = (getattr(answer, "headers", None), getattr(error, "litellm_response_headers", None))
    found: dict[str, str] = {}
    for headers in places:
        if isinstance(headers, Mapping):
            found |= {str(name).lower(): str(value) for name, value in headers.items()}
    return found


def _milliseconds(text: str, now: Now) -> float | None:
    wait = _seconds(text, now)
    return None if wait is None else wait / 1000


def _seconds(text: str, now: Now) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError):  # neither a number nor a date
        return None
    whole = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, whole.timestamp() - now())


def _said(text: str) -> float | None:
    found = _SAID.search(text)
    if found is None:
        return None
    parts = _PART.findall(found["time"])
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in parts)
