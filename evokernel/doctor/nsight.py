"""Owns the check of what looks into kernels on a GPU: Nsight Compute, and compute-sanitizer."""

from __future__ import annotations

import re
from pathlib import Path

from evokernel.bench.gpu.tools import found
from evokernel.doctor.finding import Facts, Finding, Settings
from evokernel.frozen import Frozen

_PARAMETERS = Path("/proc/driver/nvidia/params")
_CAP_SYS_ADMIN = 1 << 21
_PERMIT = (
    "`echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > /etc/modprobe.d/nvidia.conf` "
    "and a restart permit it to every user; in a container `--cap-add SYS_ADMIN` does; until then "
    "profiles use a trace and the compiler's report"
)


class Tools(Frozen):
    """What was found."""

    has_driver: bool
    ncu: str | None
    """Where Nsight Compute lies."""
    sanitizer: str | None
    """Where compute-sanitizer lies."""
    is_restricted: bool | None
    """Whether the driver lets administrators alone read counters; None if it does not tell."""
    is_admin: bool
    """Whether this process is one."""

    @property
    def may_profile(self) -> bool:
        """Whether counters can be read, as far as the driver tells."""
        return self.is_admin or not self.is_restricted


def nsight(settings: Settings) -> Finding:
    """Whether kernels can be profiled, and searched for invalid accesses."""
    return judged(_look())


def judged(tools: Tools) -> Finding:
    """What it comes to, and what to do."""
    facts: Facts = {
        "ncu": tools.ncu,
        "compute_sanitizer": tools.sanitizer,
        "restricted": tools.is_restricted,
        "may_profile": tools.may_profile if tools.has_driver else None,
    }
    if not tools.has_driver:
        return Finding(
            name="nsight",
            state="missing",
            found="no NVIDIA driver, so that there is nothing to look into",
            advice="none is needed for kernels in C++ (`--backend cpp`)",
            facts=facts,
        )
    troubles: list[tuple[str, str]] = []
    if tools.ncu is None:
        troubles.append(
            (
                "no Nsight Compute (`ncu`)",
                "it comes with the CUDA toolkit; until then profiles use a trace and the "
                "compiler's report",
            )
        )
    if not tools.may_profile:
        troubles.append(("counters are for administrators only", _PERMIT))
    if tools.sanitizer is None:
        troubles.append(
            (
                "no `compute-sanitizer`",
                "it comes with the CUDA toolkit; until then promoted kernels are not searched for "
                "invalid accesses",
            )
        )
    there = [name for name in (tools.ncu, tools.sanitizer) if name]
    there += ["counters can be read"] if tools.ncu and tools.may_profile else []
    return Finding(
        name="nsight",
        state="warning" if troubles else "ok",
        found="; ".join([*there, *(what for what, _ in troubles)]),
        advice="; ".join(advice for _, advice in troubles),
        facts=facts,
    )


def restricted(parameters: str) -> bool | None:
    """Whether the driver's parameters let administrators alone read counters."""
    told = re.search(r"^\s*RmProfilingAdminOnly:\s*(\d+)", parameters, re.MULTILINE)
    return told[1] != "0" if told else None


def _look() -> Tools:
    parameters = _read(_PARAMETERS)
    has_driver = parameters is not None or any(Path("/dev").glob("nvidia[0-9]*"))
    return Tools(
        has_driver=has_driver,
        ncu=found("ncu") or None,
        sanitizer=found("compute-sanitizer") or None,
        is_restricted=restricted(parameters or ""),
        is_admin=_is_admin(),
    )


def _is_admin() -> bool:
    """Whether this process has CAP_SYS_ADMIN, which the driver asks for."""
    told = re.search(r"^CapEff:\s*([0-9a-f]+)$", _read(Path("/proc/self/status")) or "", re.M)
    return bool(told and int(told[1], 16) & _CAP_SYS_ADMIN)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
