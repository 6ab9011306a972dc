"""Owns the question whether a measurement on a GPU was disturbed: clocks, heat, other processes.

What drops a block:

- the device held its clocks back to cool down, or because its supply failed;
- its multiprocessors ran slower than in the rest of the section, whatever the reason: a power limit
  that holds them back all the time is part of the machine;
- another process computed on it. Where the driver does not tell who did how much, being there is
  enough; a context that does nothing changes no time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from evokernel.bench import statistics
from evokernel.bench.gpu.lock import physical
from evokernel.bench.gpu.nvml import Nvml, NvmlError, State, Use, opened
from evokernel.errors import DeviceMissing
from evokernel.frozen import Frozen

REASONS = {
    0x1: "idle",
    0x2: "set by the user",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat (driver)",
    0x40: "heat (hardware)",
    0x80: "power supply",
    0x100: "display clock",
}
"""Bits of NVML's clock event reasons."""
HELD_BACK = 0x8 | 0x20 | 0x40 | 0x80
SLOWER = 0.9
"""Share of a section's median clock below which a block counts as slowed down. Under a power limit
the clock moves by a few percent all the time, for all sides of a block alike."""
FOREIGN_PERCENT = 1
"""Use of the multiprocessors by another process that counts."""


class Signs(Frozen):
    """A GPU at one moment, and who has used it since the moment before."""

    clock: float
    """Monotonic clock, seconds."""
    state: State | None
    """None where NVML does not answer."""
    uses: tuple[Use, ...] | None
    """None where it does not tell."""


class GpuDisturbance(Frozen):
    """What happened between two readings."""

    seconds: float
    sm_mhz: int | None
    """The lower of both readings."""
    memory_mhz: int | None
    temperature_c: int | None
    reasons: int
    """Bits of both readings."""
    others: int
    """Foreign processes that computed, as far as that is known."""
    idle_others: int
    """Foreign processes with a context."""

    @property
    def is_calm(self) -> bool:
        """Whether clocks were not held back and nobody else computed."""
        return not (self.reasons & HELD_BACK or self.others)

    def in_words(self) -> str:
        """The signs as a phrase for a status's reason."""
        parts = [
            f"SM clock {self.sm_mhz} MHz" if self.sm_mhz is not None else "clocks unknown",
            f"memory clock {self.memory_mhz} MHz" if self.memory_mhz is not None else "",
            f"{self.temperature_c} °C" if self.temperature_c is not None else "",
            f"held back by {why}" if (why := reasons_in_words(self.reasons & HELD_BACK)) else "",
            f"{self.others} other processes computed on it" if self.others else "",
        ]
        return ", ".join(part for part in parts if part)


class Monitor:
    """Reads the signs of one GPU.

    Args:
        index: The GPU, as torch numbers it in this process.
    """

    def __init__(self, index: int) -> None:
        self.note = ""
        """Why nothing can be read, for whoever has to know."""
        self._nvml: Nvml | None = None
        self._uuid = ""
        self._stamp_us = round(time.time() * 1e6)
        try:
            self._nvml = opened()
            self._uuid = physical(index).uuid
        except DeviceMissing as error:
            self._nvml = None
            self.note = f"clocks and other processes are not watched: {error}"

    def read(self) -> Signs:
        """Read the signs now; about two milliseconds."""
        state, uses = None, None
        if self._nvml is not None:
            try:
                state = self._nvml.state(self._uuid)
                uses = self._nvml.uses(self._uuid, self._stamp_us)
            except NvmlError:
                state = None  # it has gone away; a CUDA call will say so
        if uses:
            self._stamp_us = max(use.stamp_us for use in uses)
        return Signs(clock=time.monotonic(), state=state, uses=uses)


def between(before: Signs, after: Signs, ours: Iterable[int]) -> GpuDisturbance:
    """What two readings say of the time between them.

    Args:
        before: The first reading.
        after: The second; its `uses` are those since the first.
        ours: Processes of this measurement that have a context.
    """
    states = [state for state in (before.state, after.state) if state is not None]
    own = frozenset(ours) | {os.getpid()}
    present = foreign(after.state.pids, own) if after.state else None
    return GpuDisturbance(
        seconds=after.clock - before.clock,
        sm_mhz=_least(state.sm_mhz for state in states),
        memory_mhz=_least(state.memory_mhz for state in states),
        temperature_c=max(
            (s.temperature_c for s in states if s.temperature_c is not None), default=None
        ),
        reasons=_joined(state.reasons for state in states),
        others=_busy(after, own, present or 0),
        idle_others=present or 0,
    )


def foreign(pids: Sequence[int] | None, own: frozenset[int]) -> int | None:
    """How many processes on a GPU are not ours; None where NVML does not tell.

    Within a container NVML may number processes as the host does. Then none of ours is among them,
    and all that can be told is whether there are more than ours.
    """
    if pids is None:
        return None
    if own.isdisjoint(pids):
        return max(0, len(pids) - len(own))
    return sum(pid not in own for pid in pids)


def _busy(after: Signs, own: frozenset[int], present: int) -> int:
    if not present:
        return 0
    pids = after.state.pids if after.state and after.state.pids else ()
    if after.uses is None or own.isdisjoint(pids):
        return present
    return len({use.pid for use in after.uses if _is_foreign(use, own)})


def _is_foreign(use: Use, own: frozenset[int]) -> bool:
    return use.pid not in own and use.sm_percent >= FOREIGN_PERCENT


def slowed(clocks: Sequence[int | None]) -> list[bool]:
    """Which blocks of a section had a lower clock than the others."""
    known = [clock for clock in clocks if clock]
    if not known:
        return [False] * len(clocks)
    usual = statistics.median(known)
    return [clock is not None and clock < SLOWER * usual for clock in clocks]


def reasons_in_words(reasons: int) -> str:
    """Names of the bits."""
    return ", ".join(name for bit, name in REASONS.items() if reasons & bit)


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _joined(reasons: Iterable[int | None]) -> int:
    found = 0
    for each in reasons:
        found |= each or 0
    return found
