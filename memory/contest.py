"""Owns `Contest` and `Leaders`: which kernels of a task are about as fast as its fastest."""

from collections import defaultdict
from typing import NamedTuple

MARGIN = 0.05
"""How much slower than the fastest of its task a kernel may be to be worth starting from, as the
logarithm of a ratio: about what two measurements of one kernel may differ by (ours)."""


class Contest(NamedTuple):
    """What is compared with each other: times of one task in one language on one device."""

    fingerprint: str
    backend: str
    device: str


class Leaders:
    """Keeps what active kernels gained, by task; told of every change."""

    def __init__(self) -> None:
        self._gains: defaultdict[Contest, dict[str, float]] = defaultdict(dict)

    def put(self, of: Contest, id: str, gain: float | None) -> None:
        """Take a kernel in, or its newer measurement.

        Args:
            of: Where it counts.
            id: Of the kernel.
            gain: ln(eager / itself); None takes it out.
        """
        if gain is None:
            self._gains[of].pop(id, None)
        else:
            self._gains[of][id] = gain

    def lead(self, of: Contest, gain: float | None) -> float:
        """By how much the fastest kernel beats a gain: the logarithm of a ratio, 0 if by none."""
        known = self._gains.get(of)
        return max(0.0, max(known.values()) - gain) if known and gain is not None else 0.0
