"""Owns what a compiler may read: its own parts and the system's, never what lies beside them.

A kernel's text can name any file, in an `#include` or to its assembler, and would hold it when it
runs. What is missing in a list of what is allowed shows at once, as a failure of the simplest
kernel; the compiler then goes on without the fence, and `doctor` says so of g++ and of NVRTC.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from evokernel.confinement.launch import Terms

_PARTS = ("bin", "include", "lib", "lib32", "lib64", "libexec", "share", "sysroot")
_LISTS = ("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH")
_FOLDERS = ("GCC_EXEC_PREFIX", "CONDA_BUILD_SYSROOT")
_FACTS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/etc/alternatives", "/nix/store")
_REFERENCES = Path(__file__).resolve().parent.parent / "tasks"


def terms(
    command: Iterable[str],
    folder: Path,
    environment: dict[str, str],
    limits: dict[int, int],
    is_fenced: bool = True,
    readable: tuple[str, ...] = (),
) -> Terms:
    """What a compiler is started with.

    Args:
        command: The compiler's words.
        folder: Its working folder, which it may write.
        environment: Its environment.
        limits: Numbers of resources and their values.
        is_fenced: Whether more than the limits is put up.
        readable: Files and folders that it may read beside its own parts.
    """
    named = [environment[name] for name in _FOLDERS if name in environment]
    for name in _LISTS:
        named += environment.get(name, "").split(os.pathsep)
    return Terms(
        readable=(*_FACTS, *parts(command), *readable, *(p for p in named if p.startswith("/"))),
        writable=(str(folder),),
        hidden=(str(_REFERENCES),),
        limits=limits,
        is_fenced=is_fenced,
    )


def toolchain() -> tuple[str, ...]:
    """What torch's own calls of a compiler need to read."""
    names = (os.environ.get("CXX", ""), os.environ.get("CC", ""), "g++", "gcc", "clang++", "clang")
    return parts(names)


def parts(names: Iterable[str]) -> tuple[str, ...]:
    """What programs need to read where they lie outside the system's folders.

    Only the parts of an installation, never the whole folder above them, which may be a home.
    """
    found = [Path(place) for name in names if name and (place := shutil.which(name))]
    places = dict.fromkeys(p for place in found for p in (place, place.resolve()))
    prefixes = dict.fromkeys(place.parent.parent for place in places)
    folders = (prefix / part for prefix in prefixes for part in _PARTS)
    return (*map(str, places), *(str(folder) for folder in folders if folder.is_dir()))
