"""Owns the names of GPU architectures, such as `sm_90a`: which one is here, and what runs where."""

import re
import shutil
import subprocess
from functools import cache

from evokernel.errors import ConfigError

_NAME = re.compile(r"sm_(\d{1,2})(\d)([af]?)")
_ANSWER_S = 10.0
_SHARED_KIB = {(7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99, (9, 0): 227}
_SHARED_KIB |= {(10, 0): 227, (10, 3): 227, (11, 0): 227, (12, 0): 99, (12, 1): 99}
_FIRST_VARIANT = 9
"""Compute capability from which the device's own instructions (wgmma, TMA) need the `a` name."""

Capability = tuple[int, int]
"""Compute capability of a device, such as (9, 0)."""


def checked(arch: str) -> str:
    """An architecture's name as it is.

    Raises:
        ConfigError: it has another form.
    """
    if not _NAME.fullmatch(arch):
        raise ConfigError(
            f"`{arch}` is no GPU architecture; expected a name such as `sm_90a` (H100, H200), "
            "`sm_100a` (B200), `sm_89` (L4, RTX 4090) or `sm_80` (A100)"
        )
    return arch


def of(capability: Capability) -> str:
    """The fullest architecture that a device runs: `sm_90a` for (9, 0), `sm_86` for (8, 6)."""
    major, minor = capability
    return f"sm_{major}{minor}{'a' * (major >= _FIRST_VARIANT)}"


def capability_of(arch: str) -> Capability:
    """Compute capability that an architecture's name stands for.

    Raises:
        ConfigError: it has another form.
    """
    found = _NAME.fullmatch(checked(arch))
    assert found
    return int(found[1]), int(found[2])


def runs_on(arch: str, capability: Capability) -> bool:
    """Whether machine code for `arch` runs on a device.

    Plain code runs on later devices of its generation too, code for a family (`f`) within the
    family, code for one architecture (`a`) there alone (CUDA C++ Programming Guide, "Binary
    Compatibility" and "Feature-Specific Targets").
    """
    wanted = capability_of(arch)
    if arch.endswith("a"):
        return wanted == capability
    return wanted[0] == capability[0] and wanted[1] <= capability[1]


def shared_bytes(arch: str) -> int | None:
    """Most shared memory of a block (CUDA C++ Programming Guide, "Compute Capabilities").

    Returns:
        Bytes; None for an architecture that is not in our table.
    """
    kibibytes = _SHARED_KIB.get(capability_of(arch))
    return kibibytes * 1024 if kibibytes else None


@cache
def present() -> str | None:
    """Architecture of this machine's first GPU, asked from the driver's tool; None without one.

    Nothing is opened in this process: a context here would spoil what is forked from it.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--query-gpu=compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"(\d+)\.(\d)$", done.stdout.strip().partition("\n")[0])
    return of((int(found[1]), int(found[2]))) if found else None
