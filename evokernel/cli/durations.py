"""Owns how long commands took on this machine before, from which they say how long they may take.

It is a comfort, kept in one small file: where that cannot be read or written, nothing is estimated.
"""

import json
from pathlib import Path
from statistics import median

from evokernel.config import home

KEPT = 5
"""Runs of one kind of command that are remembered."""


def usual(kind: str) -> float | None:
    """Seconds that this kind of command took, the median of the last times; None at first."""
    times = _read().get(kind)
    return median(times) if times else None


def remember(kind: str, seconds: float) -> None:
    """Keep how long it took this time."""
    known = _read()
    known[kind] = [*known.get(kind, []), round(seconds, 1)][-KEPT:]
    file = _file()
    half = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        half.write_text(json.dumps(known), encoding="utf-8")
        half.replace(file)
    except OSError:
        half.unlink(missing_ok=True)


def _file() -> Path:
    return home() / "durations.json"


def _read() -> dict[str, list[float]]:
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
        return {str(kind): [float(seconds) for seconds in times] for kind, times in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
