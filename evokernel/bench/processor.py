"""Owns what the processor says of itself: its name, its vector instructions, its caches."""

import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_INFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_VECTORS = (
    *("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "amx_tile"),
    *("asimd", "sve"),
)


def name() -> str:
    """What it calls itself."""
    return next(_lines("model name"), "") or platform.machine()


def vectors() -> str:
    """The sets of vector instructions that matter to whoever writes kernels; empty if unknown."""
    flags = (next(_lines("flags"), "") or next(_lines("Features"), "")).split()
    return ", ".join(flag for flag in _VECTORS if flag in flags)


def caches() -> str:
    """Data caches of the first core, e.g. `L1 32K, L2 512K, L3 32768K`; empty if unknown."""
    found: list[str] = []
    with suppress(OSError):
        for entry in sorted(_CACHES.glob("index*")):
            kind, level, size = (
                (entry / part).read_text().strip() for part in ("type", "level", "size")
            )
            if kind != "Instruction":
                found.append(f"L{level} {size}")
    return ", ".join(found)


def _lines(field: str) -> Iterator[str]:
    with suppress(OSError):
        for line in _INFO.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == field:
                yield value.strip()
