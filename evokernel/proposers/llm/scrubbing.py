"""Owns the removal of keys from whatever is shown or stored."""

import re
from collections.abc import Iterable

_SHAPES = re.compile(
    r"\b(?:sk-|gsk_|xai-|hf_|pplx-|nvapi-|AIza)[A-Za-z0-9*_-]{8,}|(?i:\bbearer\s+)[^\s\"',]{8,}"
)
"""What keys of well-known providers look like, also where a server repeats them with stars."""

HIDDEN = "[key]"
SHORTEST = 8
"""Letters of the shortest key that is taken out: a local server's `x` is no secret (ours)."""


def without_keys(text: str, keys: Iterable[str]) -> str:
    """The text with the keys themselves replaced by `[key]`, and nothing else changed."""
    for key in keys:
        if len(key) >= SHORTEST:
            text = text.replace(key, HIDDEN)
    return text


def scrubbed(text: str, keys: Iterable[str]) -> str:
    """A message with the keys, and whatever looks like one, replaced by `[key]`."""
    return _SHAPES.sub(HIDDEN, without_keys(text, keys))
