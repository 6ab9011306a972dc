"""Owns how the numbers of an experience are written for people."""

from evokernel.memory.experience import Experience
from evokernel.wording import times, with_interval


def speed(experience: Experience) -> str:
    """Its ratio and over what, e.g. `1.30x parent`; empty where none was measured."""
    ratio = experience.measurement.speedup
    return "" if ratio is None else f"{times(ratio.value)} {opponent(experience)}"


def opponent(experience: Experience) -> str:
    """What its ratio is over."""
    return "parent" if experience.kind == "edit" else "eager"


def measured(experience: Experience) -> str:
    """All that was measured of it, and where."""
    known = experience.measurement
    parts = []
    if (ratio := known.speedup) is not None:
        # A ratio of two separate sessions has no interval.
        told = with_interval(ratio) if ratio.low < ratio.high else f"about {times(ratio.value)}"
        parts.append(f"{told} over {opponent(experience)}")
    if known.median_ms is not None:
        parts.append(f"{known.median_ms:.4g} ms")
    parts += [text for text in (known.device, known.tools) if text and parts]
    return ", ".join(parts) or "nothing: it claims no speed"
