"""Owns how foreign texts are shown: kernels, as a difference where that says it, and logs."""

import difflib
import re

from evokernel.frozen import Frozen

ALIKE = 0.5
"""A difference is shown where it has at most this share of the kernel's letters (ours)."""
_AROUND = 2
"""Unchanged lines around each change."""
_PLANS = re.compile(r"^# evokernel-template: .*\n+", re.MULTILINE)
"""What the templates note for themselves."""
_FRAME = re.compile(r'^ *File "(?P<file>[^"]*)", line \d+,? (in .*)?$')
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[\w.+@~-]+/)+(?=[\w.+@~-])")
_FATAL = re.compile(r"Fatal Python error: [^\n]*(\n\s*|Stack \(most recent call first\):)*")
"""Says no more than the status where no line of the candidate follows."""
_NOISE = ("Extension modules: ", "Current thread 0x")
_PHASES = {"load": "on import", "run": "in a call", "time": "in a timed call"}


class Shown(Frozen):
    """A kernel as a prompt shows it."""

    code: str
    language: str = "python"
    against: str = ""
    """What it is shown as a difference from; empty where it is shown whole."""

    @property
    def remark(self) -> str:
        """Says that it is a difference."""
        return f" Shown is what differs from {self.against}." if self.against else ""


def tidy(source: str) -> str:
    """A kernel's source without what only the templates read."""
    return _PLANS.sub("", source)


def shown(source: str, base: str = "", name: str = "") -> Shown:
    """A kernel, as a difference from one that the prompt shows whole if that is much shorter.

    Args:
        source: Its text.
        base: The other one's; empty for none.
        name: What the prompt calls the other one.
    """
    source = tidy(source)
    if base:
        changes = difference(tidy(base), source)
        if 0 < len(changes) <= ALIKE * len(source):
            return Shown(code=changes, language="diff", against=name)
    return Shown(code=source)


def difference(before: str, after: str) -> str:
    """A unified difference without names of files; empty between equals."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=_AROUND)
    return "\n".join(list(lines)[2:])


def without_names(diff: str) -> str:
    """A stored difference without the names of its files and what only the templates read."""
    lines = diff.splitlines()
    hidden = ("--- ", "+++ ", "+# evokernel-template: ", "-# evokernel-template: ")
    return "\n".join(line for line in lines if not line.startswith(hidden))


def log(text: str) -> str:
    """What a candidate printed, without the harness's own frames and without folders."""
    kept: list[str] = []
    is_foreign = False
    for line in text.splitlines():
        if frame := _FRAME.match(line):
            is_foreign = not frame["file"].endswith("candidate.py")
        elif not line.startswith("    "):
            is_foreign = False
        if not is_foreign and not line.startswith(_NOISE):
            kept.append(line)
    text = without_folders("\n".join(kept)).strip()
    return "" if _FATAL.fullmatch(text) else text


def without_folders(text: str) -> str:
    """The text with absolute paths cut down to names of files."""
    return _FOLDERS.sub("", text)


def reason(text: str) -> str:
    """A reason with the harness's word for the phase in plain words."""
    found = re.match(r"in `(\w+)`: ", text)
    if found is None or found[1] not in _PHASES:
        return without_folders(text)
    return without_folders(f"{_PHASES[found[1]]}: {text[found.end() :]}")
