"""Owns how paragraphs are written on a terminal; how numbers are written lies lower down."""

import re
import textwrap

from evokernel.wording import call_time, counted, duration, milliseconds, times, with_interval

__all__ = ["call_time", "counted", "duration", "folded", "milliseconds", "times", "with_interval"]


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
