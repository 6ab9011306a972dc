"""Owns the check of the graphics processor: what of its tools is there, and what is missing."""

import re
import shutil
import subprocess
from pathlib import Path

from evokernel.doctor.finding import Facts, Finding, Settings
from evokernel.doctor.software import installed

ANSWER_S = 5.0
"""A driver that hangs does not answer later either."""

_QUERY = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
_NVCC = "/usr/local/cuda/bin/nvcc"
_PACKAGES = {
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12"),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "triton": ("triton",),
}


def gpu(settings: Settings) -> Finding:
    """Whether there is an NVIDIA GPU, and with which tools kernels for it could be built."""
    names, driver = _devices()
    tools = {
        "nvcc": shutil.which("nvcc") or (_NVCC if Path(_NVCC).is_file() else None),
        **{tool: _first(*known) for tool, known in _PACKAGES.items()},
    }
    facts: Facts = {"devices": names, "driver": driver, **tools}
    if not names:
        return Finding(
            name="gpu",
            state="missing",
            found="no NVIDIA GPU" if driver is None else f"driver {driver}, but no GPU answers",
            advice="none is needed for kernels in C++ (`--backend cpp`)",
            facts=facts,
        )
    gone = [tool for tool in _PACKAGES if tools[tool] is None]
    there = [f"{tool} {found}" for tool, found in tools.items() if found]
    return Finding(
        name="gpu",
        state="warning" if gone else "ok",
        found=f"{', '.join(names)}; driver {driver or 'unknown'}; {', '.join(there) or 'no tools'}"
        + (f"; without {', '.join(gone)}" if gone else ""),
        advice="install the extra `cuda` to build kernels for it" if gone else "",
        facts=facts,
    )


def _devices() -> tuple[tuple[str, ...], str | None]:
    """Names with memory, and the driver's version; without its tool, what the system shows."""
    program = shutil.which("nvidia-smi")
    if program is not None:
        try:
            done = subprocess.run(
                [program, *_QUERY], capture_output=True, text=True, timeout=ANSWER_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return (), _driver()
        rows = [row.split(", ") for row in done.stdout.splitlines() if row.count(", ") == 2]
        if rows:
            return tuple(f"{name} ({size})" for name, size, _ in rows), rows[0][2]
    nodes = sorted(Path("/dev").glob("nvidia[0-9]*"))
    return tuple(node.name for node in nodes), _driver()


def _driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    version = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return version[1] if version else "of unknown version"


def _first(*names: str) -> str | None:
    return next((found for name in names if (found := installed(name))), None)
