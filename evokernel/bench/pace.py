"""Owns `Pace`: how long a timing takes, and how much calm it demands."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """How long to measure, and how much calm to demand."""

    limit_s: float
    """Seconds for the blocks, warming up not included; the least number of blocks comes first."""
    least: int
    """Clean blocks that make a number."""
    tight: float
    """Half width of the ratios' intervals at which measuring ends early. Dimensionless."""
    quiet_s: float
    """How long to wait for a quiet moment; 0 does not wait."""
    is_strict: bool
    """Too few clean blocks make no number; otherwise disturbed ones are used, and that is noted."""
    kept: int
    """Outputs of timed repetitions that are handed over for checking, fewer where they are large: a
    kernel that is wrong in half of the calls is right in all of them with a chance of 2^-kept."""
    warmups: int = 2
    """Untimed calls before the first block."""
    watched: int = 1
    """One block of so many is supplied and timed from outside. A worker that is let go by a message
    often begins with two threads on one processor, so that such blocks alone give no number where
    disturbed ones are dropped."""


STANDARD = Pace(limit_s=2.0, least=9, tight=0.004, quiet_s=20.0, is_strict=True, kept=8, watched=4)
QUICK = Pace(limit_s=0.25, least=5, tight=0.02, quiet_s=0.0, is_strict=False, kept=4, warmups=1)
