"""Owns how texts and values are written as Python, to be read back as they were."""

from typing import Any


def quoted(text: str) -> str:
    """A Python expression for a text, as readable as the text permits; see `reading.unquoted`."""
    for quote in ("'''", '"""'):
        is_plain = text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()
        if is_plain and quote not in text and not text.endswith((quote[0], "\\")):
            return f"r{quote}\n{text}{quote}[1:]"
    lines = "".join(f"    {line!a}\n" for line in text.splitlines(keepends=True))
    return f"(\n{lines})" if lines else '""'


def literal(value: Any) -> str:
    """A Python expression for a value that a domain may hold.

    Raises:
        ValueError: It is none of these: numbers, texts, None, dtypes, tensors' descriptions, and
            lists, tuples and dictionaries of them.
    """
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f'float("{value}")'
    if value is None or isinstance(value, bool | int | str) or hasattr(value, "_fields"):
        return repr(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(map(literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return repr(value)
    raise ValueError(f"a {type(value).__name__}, {str(value)[:60]}")


def pretty(value: Any, depth: int = 0) -> str:
    """The same for nested dictionaries, one entry a line."""
    if not isinstance(value, dict) or not value:
        return literal(value)
    inner = "    " * (depth + 1)
    lines = [f"{inner}{key!r}: {pretty(entry, depth + 1)}," for key, entry in value.items()]
    return "\n".join(["{", *lines, "    " * depth + "}"])
