"""Owns where NVIDIA's tools are, and what is remembered of them in the cache folder."""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from evokernel.config import cuda_homes
from evokernel.frozen import Frozen

T = TypeVar("T", bound=Frozen)

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


def remembered(cache: Path, program: str, kind: type[T]) -> T | None:
    """What was found out about a tool on this machine; None if nothing, or under other terms."""
    try:
        return kind.model_validate_json(_path(cache, program).read_text())
    except (OSError, ValidationError):
        return None


def remember(cache: Path, program: str, known: Frozen) -> None:
    """Keep what was found out, until tool, driver or user is another.

    It is written aside, then renamed: whoever reads it finds all of it.
    """
    path = _path(cache, program)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(known.model_dump_json())
    Path(file.name).replace(path)


def _path(cache: Path, program: str) -> Path:
    facts = Path(program).resolve().stat()
    driver = _DRIVER.read_text() if _DRIVER.exists() else ""
    parts = [program, facts.st_size, facts.st_mtime_ns, driver, os.geteuid()]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache / _FOLDER / f"{Path(program).name}-{key}.json"
