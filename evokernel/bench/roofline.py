"""Owns `Roofline`: what a device can do at most, whatever it is, and the floor that follows."""

import math
from abc import abstractmethod

from evokernel.frozen import Frozen


class Rates(Frozen):
    """Best rates at one working set, GB/s (1e9 bytes)."""

    working_set: int
    """Bytes that one pass touches."""
    copy_rate: float
    """Bytes read plus bytes written."""
    read_rate: float
    fill_rate: float

    @property
    def best(self) -> float:
        """The largest of the three."""
        return max(self.copy_rate, self.read_rate, self.fill_rate)


class Roofline(Frozen):
    """One device and its measured peaks."""

    name: str
    """What the device calls itself."""
    memory_bytes: int
    """Memory that belongs to it."""
    rates: tuple[Rates, ...]
    """By growing working set."""
    gflops: float
    """Best float32 rate, GFLOP/s; a multiply-add counts two."""
    quiet: bool = True
    """Nothing else ran while it was measured."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Short name of device and versions on which every number of it rests."""

    @property
    @abstractmethod
    def flush_bytes(self) -> int:
        """How much to go through so that nothing useful stays in the last-level cache."""

    @abstractmethod
    def in_words(self) -> str:
        """Name and peaks for a listing."""

    def bandwidth(self, working_set: int) -> float:
        """Best rate of copy, read and fill at a working set, GB/s.

        Between two measured sizes it is interpolated along the logarithm of the size.
        """
        points = [(math.log(rate.working_set), rate.best) for rate in self.rates]
        at = math.log(max(working_set, 1))
        if at <= points[0][0]:
            return points[0][1]
        for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
            if at <= x1:
                return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
        return points[-1][1]

    def memory_floor_ms(self, min_bytes: int, working_set: int | None = None) -> float:
        """Time that moving the bytes takes at least, milliseconds.

        Args:
            min_bytes: Bytes that any implementation moves.
            working_set: What decides which caches help; None is `min_bytes`.
        """
        return 1e-6 * min_bytes / self.bandwidth(working_set or min_bytes)

    def compute_floor_ms(self, flops: int) -> float:
        """Time that the arithmetic takes at least at the float32 peak, milliseconds."""
        return 1e-6 * flops / self.gflops

    @property
    def ceiling_gflops(self) -> float:
        """The rate of arithmetic that the floor rests on, GFLOP/s."""
        return 1e3 / self.compute_floor_ms(10**9)

    def floor_ms(self, min_bytes: int, flops: int, working_set: int | None = None) -> float:
        """The roofline: the longer of the two (Williams, Waterman and Patterson 2009)."""
        return max(self.memory_floor_ms(min_bytes, working_set), self.compute_floor_ms(flops))


def better(new: tuple[Rates, ...], old: tuple[Rates, ...]) -> tuple[Rates, ...]:
    """The best of two looks at each working set of the new one."""
    known = {rate.working_set: rate for rate in old}
    return tuple(
        Rates(
            working_set=rate.working_set,
            copy_rate=max(rate.copy_rate, other.copy_rate),
            read_rate=max(rate.read_rate, other.read_rate),
            fill_rate=max(rate.fill_rate, other.fill_rate),
        )
        for rate in new
        for other in [known.get(rate.working_set, rate)]
    )
