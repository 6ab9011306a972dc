"""Owns how the long texts of experiences are kept: deflated, and each once however often it occurs.

An edit carries the source of the kernel that it led to, and both come from one step.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

LONG = 200
"""Characters from which a text is kept apart; below, its hash would cost as much (ours)."""

LEVEL = 1
"""Of deflate: a source shrinks to a quarter, in a tenth of a millisecond."""

MARK = "text"
"""Key of the reference that stands in place of a text."""


def set_apart(body: str, payload: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Put references in place of the long texts.

    Args:
        body: JSON of the experience without its payload: an object with something in it.
        payload: Its texts by name.

    Returns:
        JSON of all of it, and the long texts by their ids.
    """
    ids = {name: _id(text) for name, text in payload.items() if len(text) >= LONG}
    texts = {name: {MARK: ids[name]} if name in ids else text for name, text in payload.items()}
    whole = f'{body[:-1]},"payload":{json.dumps(texts)}}}'
    return whole, {id: payload[name] for name, id in ids.items()}


def deflated(text: str) -> bytes:
    """A text as it is kept."""
    return zlib.compress(_bytes(text), LEVEL)


def put_back(
    bodies: Iterable[str], fetch: Callable[[list[str]], Mapping[str, bytes]]
) -> list[dict[str, Any]]:
    """The fields of experiences, every reference replaced by its text.

    Args:
        bodies: JSON as `set_apart` made it, or with all texts in it.
        fetch: Gets the deflated texts of some ids.
    """
    all_fields = [json.loads(body) for body in bodies]
    wanted = {
        text[MARK]: None
        for fields in all_fields
        for text in fields.get("payload", {}).values()
        if isinstance(text, dict)
    }
    found = {id: zlib.decompress(blob).decode() for id, blob in fetch(list(wanted)).items()}
    for fields in all_fields:
        payload = fields.get("payload", {})
        for name, text in payload.items():
            if isinstance(text, dict):
                payload[name] = found[text[MARK]]
    return all_fields


def _id(text: str) -> str:
    return hashlib.sha256(_bytes(text)).hexdigest()[:32]


def _bytes(text: str) -> bytes:
    """A lone surrogate, which only a damaged source has, becomes a question mark as in JSON."""
    return text.encode("utf-8", "replace")
