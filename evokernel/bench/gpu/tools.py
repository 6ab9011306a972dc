"""Owns where NVIDIA's tools are, and what is remembered of them in the cache folder."""

import os
import shutil
from pathlib import Path

from evokernel.bench.remembered import digest
from evokernel.config import cuda_homes

_FOLDER = "tools"
_TOOLKIT = "/usr/local/cuda"
_BESIDE = (
    *("/opt/nvidia/nsight-compute/*/{name}", "/usr/local/NVIDIA-Nsight-Compute*/{name}"),
    *("/usr/local/cuda*/bin/{name}", "/opt/cuda/bin/{name}"),
    "/usr/local/cuda*/compute-sanitizer/{name}",
)
_DRIVER = Path("/proc/driver/nvidia/version")


def found(name: str) -> str:
    """Where a tool is: on the path, in a toolkit, or where its own package puts it; else empty."""
    toolkits = [f"{home}/bin/{name}" for home in (*cuda_homes(), _TOOLKIT)]
    patterns = (pattern.format(name=name)[1:] for pattern in _BESIDE)
    others = [str(path) for pattern in patterns for path in sorted(Path("/").glob(pattern))[::-1]]
    places = (shutil.which(name), *toolkits, *others)
    return next((place for place in places if place and os.access(place, os.X_OK)), "")


def page(cache: Path, program: str) -> Path:
    """The file that keeps what is found out about a tool, until tool, driver or user is another."""
    facts = Path(program).resolve().stat()
    driver = _DRIVER.read_text() if _DRIVER.exists() else ""
    parts = [program, facts.st_size, facts.st_mtime_ns, driver, os.geteuid()]
    return cache / _FOLDER / f"{Path(program).name}-{digest(*parts)}.json"
