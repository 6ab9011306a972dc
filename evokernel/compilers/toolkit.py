"""Owns where CUDA's compiler and headers lie on this machine: in wheels, or in a toolkit."""

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from evokernel.config import cuda_homes
from evokernel.frozen import Frozen

_USUAL = "/usr/local/cuda"
_VERSION_CHARS = 8192
_VERSION = re.compile(r"^# *define +(?:CUDART|CUB)_VERSION +(\d+)", re.MULTILINE)
_VERSIONED = ("cuda_runtime_api.h", "cub/version.cuh")


class Header(NamedTuple):
    """A group of headers that stands or falls together."""

    proof: str
    """The file that is looked for."""
    wheel: str
    """The distribution that brings it."""


HEADERS = {
    "cuda_fp16.h": Header("cuda_fp16.h", "nvidia-cuda-runtime"),
    "cuda_bf16.h": Header("cuda_bf16.h", "nvidia-cuda-runtime"),
    "mma.h": Header("crt/mma.h", "nvidia-cuda-crt"),
    "cooperative_groups.h": Header("cooperative_groups.h", "nvidia-cuda-runtime"),
    "cub/cub.cuh": Header("cub/cub.cuh", "nvidia-cuda-cccl"),
    "cuda/std": Header("cuda/std/cstdint", "nvidia-cuda-cccl"),
}
"""What kernels include most, by the name that they include."""


class Place(NamedTuple):
    """A folder that may hold headers."""

    folder: str
    origin: str
    """`wheels`, `$CUDA_HOME` or `toolkit`."""


class Toolkit(Frozen):
    """One NVRTC, and the folders in which it finds headers, the first match winning."""

    library: str | None
    """Path of NVRTC; None where there is none."""
    origin: str
    """Where it comes from: `wheels`, `$CUDA_HOME` or `toolkit`; empty where there is none."""
    includes: tuple[Place, ...]
    """Folders of headers, in the order of the search."""

    @classmethod
    def found(cls) -> Self:
        """Look in the wheels first, then in `$CUDA_HOME`, then in nvcc's tree."""
        roots = [*_wheels(), *_named(), *_installed()]
        libraries = ((path, origin) for root, origin in roots for path in _libraries(root))
        library, origin = next(libraries, (None, ""))
        includes = (Place(str(p), origin) for root, origin in roots for p in _includes(root))
        return cls(library=library, origin=origin, includes=tuple(dict.fromkeys(includes)))

    def header(self, name: str) -> Place | None:
        """The folder in which a header is found."""
        return next((place for place in self.includes if Path(place.folder, name).is_file()), None)

    def versions(self) -> str:
        """Versions of the headers, folder by folder; part of what decides the result."""
        return " ".join(f"{place.folder}={_version(place.folder)}" for place in self.includes)


def _wheels() -> Iterator[tuple[Path, str]]:
    """Folders of NVIDIA's wheels: one a CUDA version (`nvidia/cu13`), before that one a part."""
    for entry in sys.path:
        for folder in sorted(Path(entry or ".", "nvidia").glob("cu*"), reverse=True):
            yield folder, "wheels"


def _named() -> Iterator[tuple[Path, str]]:
    for folder in cuda_homes():
        yield Path(folder), "$CUDA_HOME"


def _installed() -> Iterator[tuple[Path, str]]:
    if found := shutil.which("nvcc"):
        yield Path(found).resolve().parent.parent, "toolkit"
    yield Path(_USUAL), "toolkit"  # where nvcc is missing, or a script that calls it


def _libraries(root: Path) -> Iterator[str]:
    for folder in ("lib", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
        for path in sorted(Path(root, folder).glob("libnvrtc.so.*"), key=lambda p: len(p.name)):
            yield str(path)


def _includes(root: Path) -> Iterable[Path]:
    folders = ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include")
    nested = (Path(root, folder, sub) for folder in folders for sub in (".", "cccl"))
    return (path for path in nested if _has_headers(path))


def _has_headers(folder: Path) -> bool:
    """Whether it holds one of CUDA's headers; `/usr/include` under a plain prefix does not."""
    return any(Path(folder, header.proof).is_file() for header in HEADERS.values())


def _version(folder: str) -> str:
    found = []
    for name in _VERSIONED:
        path = Path(folder, name)
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                found += _VERSION.findall(file.read(_VERSION_CHARS))
    return "/".join(found) or "unknown"
