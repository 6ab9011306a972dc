"""Owns how numbers and paragraphs are written for people."""

import re
import textwrap

from evokernel.evaluation import Interval


def milliseconds(value: float) -> str:
    """A time in milliseconds with four digits that count and no exponent, e.g. `0.01235 ms`."""
    bounds = (1000, 100, 10, 1, 0.1, 0.01)
    decimals = next((n for n, bound in enumerate(bounds) if value >= bound), len(bounds))
    return f"{value:.{decimals}f} ms"


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


def folded(text: str, width: int | None, indent: int = 0, first: str = "") -> str:
    """One paragraph in lines of at most `width`, or one line where that is None.

    Args:
        text: The words; what stands in backquotes, and a long path, is never broken.
        width: Columns.
        indent: Columns before every line.
        first: What stands in the indentation of the first line.
    """
    head = first.ljust(indent)
    if width is None:
        return head + text
    whole = re.sub(r"`[^`]*`", lambda quoted: quoted[0].replace(" ", "\0"), text)
    lines = textwrap.fill(
        whole,
        max(width, indent + 20),
        initial_indent=head,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace("\0", " ")
