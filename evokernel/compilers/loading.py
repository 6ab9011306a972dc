"""Owns the loading of a shared library, with a guard on the floating-point control state."""

import ctypes

_ENVIRONMENT_BYTES = 256  # at least sizeof(fenv_t) everywhere: 32 on x86-64, 8 on AArch64
_PROBES = (
    2.0**-1022,
    2.0**-1074,
    2.0**-60,
)  # smallest normal, smallest denormal, below half an ulp


class FloatStateChanged(Exception):
    """A library changed, while it was loaded, how this process rounds or treats denormals."""


def load(path: str) -> ctypes.CDLL:
    """Load a shared library and put back the floating-point state that it may have changed.

    Start-up code linked by fast-math flags, and constructors, can switch denormals off for the
    whole process: then the reference and every other kernel compute other numbers too.

    Raises:
        OSError: the system's loader refuses the file.
        FloatStateChanged: the library changed the state; it is restored.
    """
    libc = ctypes.CDLL(None)
    saved = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    libc.fegetenv(saved)
    before = float_state()
    library = ctypes.CDLL(path)
    after = float_state()
    if after != before:
        libc.fesetenv(saved)
        raise FloatStateChanged(_difference(before, after))
    return library


def float_state() -> tuple[bool, bool, bool, bool]:
    """How this thread computes, found by computing.

    Returns:
        Whether denormal results are kept, denormal operands are used, and a sum, then a
        difference, is rounded to nearest.
    """
    normal, denormal, tiny = _PROBES
    return normal * 0.5 != 0.0, denormal * 2.0**60 != 0.0, 1.0 + tiny == 1.0, 1.0 - tiny == 1.0


def _difference(before: tuple[bool, ...], after: tuple[bool, ...]) -> str:
    if before[:2] != after[:2]:
        return "it switched denormal numbers off (or on) for the whole process"
    return "it changed the rounding mode of the whole process"
