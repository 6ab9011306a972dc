"""Owns how numbers and foreign texts are written for people, in the terminal and in reports."""

import re

from evokernel.evaluation import Interval

_SUSPECT = re.compile(r"[^\n\t -~]")


def milliseconds(value: float) -> str:
    """A time in milliseconds with four digits that count and no exponent, e.g. `0.01235 ms`."""
    bounds = (1000, 100, 10, 1, 0.1, 0.01)
    decimals = next((n for n, bound in enumerate(bounds) if value >= bound), len(bounds))
    return f"{value:.{decimals}f} ms"


def call_time(median_ms: float, wall_ms: float | None = None) -> str:
    """The time of a call: wall time alone, or device time with the wall time beside it."""
    if wall_ms is None:
        return milliseconds(median_ms)
    return f"{milliseconds(median_ms)} on the device, {milliseconds(wall_ms)} wall"


def times(ratio: float) -> str:
    """A speedup, e.g. `1.52x`."""
    return f"{ratio:.2f}x" if ratio < 100 else f"{ratio:.0f}x"


def with_interval(ratio: Interval) -> str:
    """A speedup with its interval, e.g. `1.52x [1.48, 1.55]`."""
    return f"{times(ratio.value)} [{ratio.low:.2f}, {ratio.high:.2f}]"


def duration(seconds: float) -> str:
    """Whole seconds up to two minutes, then `m:ss` or `h:mm:ss`."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def counted(number: int, noun: str) -> str:
    """A number with its noun, e.g. `1 attempt`, `3 attempts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def plain(text: str) -> str:
    r"""Text that somebody else wrote, with what a terminal would obey spelt out, e.g. `\x1b`.

    That goes for control characters and for those that turn the direction of writing; line ends
    and tabs stay.
    """
    return _SUSPECT.sub(_spelt, text.replace("\r\n", "\n"))


def _spelt(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else ascii(character)[1:-1]
