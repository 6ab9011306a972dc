"""Owns the outside look at the code that a process has in memory, and at whose it is."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from evokernel.config import host_compiler
from evokernel.confinement import files

Owner = Literal["own", "library", "runtime", "interpreter", "made"]
"""Whose code: built by the parent for this candidate; an installed library that may compute; the
language's own runtimes, which kernels call; the interpreter and the way into it; or anything else:
made, written or fetched at run time."""

_RUNTIME = re.compile(
    r"(lib(c|m|mvec|gomp|omp|iomp5|stdc\+\+|c\+\+|c\+\+abi|gcc_s|pthread|rt|dl|atomic|quadmath|ffi)"
    r"|ld-linux[\w-]*|ld64|ld-musl[\w-]*)([-.][\w.-]*)?"
)
"""Files whose functions a kernel's own code calls: arithmetic of C, memory, threads."""
_INTERPRETER = re.compile(r"(lib)?python[\d.]*\w*(\.so[\d.]*)?|libtorch_python\.so|libc10\.so")
_HARNESS = ("pydantic_core", "lib-dynload")
_SYSTEM = (*files.SYSTEM, "/opt", "/nix", "/gnu")
_ASKED_S = 10.0  # for a compiler to say where its runtimes lie
SCRATCH = re.compile(r"/evokernel-[^/]+/worker-[^/]+/")
SHARED_MEMORY = ("/dev/zero", "/memfd:", "/SYSV")
"""How /proc calls memory that is shared, and no file."""
_KERNEL_PAGES = ("[vdso]", "[vsyscall]", "[uprobes]")
_SPAN = re.compile(r"[0-9a-f]+-[0-9a-f]+ ")


class Region(NamedTuple):
    """Where an executable part of a process's memory lies."""

    first: int
    """Its first address."""
    last: int
    """The first address behind it."""
    offset: int
    """Where it begins in its file."""
    path: str
    """The file that it shows; empty where it shows none."""


class Mapping(NamedTuple):
    """One executable part of a process's memory."""

    path: str
    """The file that it shows; empty where it shows none."""
    size: int
    """Bytes."""
    written: int
    """Bytes that differ from the file because the process wrote to them."""


def code_of(pid: int) -> tuple[Mapping, ...] | None:
    """All executable memory of a process; None where it cannot be looked at."""
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    except OSError:
        return None
    return tuple(_mappings(lines))


def regions_of(pid: int) -> tuple[Region, ...]:
    """Where the executable memory of a process lies; nothing where it cannot be looked at."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return ()
    return tuple(region for line in lines if (region := _region(line)) is not None)


@cache
def trusted_folders() -> tuple[str, ...]:
    """Folders of the system, the interpreter and installed packages, which no worker can write."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    installed = (entry for entry in sys.path if entry.endswith("-packages"))
    named = (*_SYSTEM, *prefixes, *installed, *_compilers_folder())
    return tuple(dict.fromkeys(folder for name in named for folder in (name, _resolved(name))))


@lru_cache(4096)
def owner_of(path: str, built: frozenset[str]) -> Owner:
    """Whose code a mapped file is.

    Args:
        path: As /proc shows it; empty for memory without a file.
        built: Files that count as the candidate's own.
    """
    if path in built:
        return "own"
    if path in _KERNEL_PAGES:
        return "runtime"
    if SCRATCH.search(path) or not path.startswith(
        tuple(f"{folder}/" for folder in trusted_folders())
    ):
        return "made"
    name = path.rpartition("/")[2]
    if _RUNTIME.fullmatch(name):
        return "runtime"
    if _INTERPRETER.fullmatch(name) or any(part in path for part in _HARNESS):
        return "interpreter"
    return "library"


def _mappings(lines: list[str]) -> Iterator[Mapping]:
    """Each heading is followed by its fields, of which one matters."""
    region: Region | None = None
    for line in lines:
        if _SPAN.match(line):
            region = _region(line)
        elif region and line.startswith("Anonymous:") and region.path != "[vsyscall]":
            yield Mapping(region.path, region.last - region.first, _bytes(line))


def _region(heading: str) -> Region | None:
    """What a line of /proc/<pid>/maps says of executable memory; None where it is not."""
    span, rights, offset, _, _, *path = heading.split(maxsplit=5)
    if "x" not in rights:
        return None
    first, last = (int(part, 16) for part in span.split("-"))
    return Region(first, last, int(offset, 16), path[0] if path else "")


def _compilers_folder() -> tuple[str, ...]:
    """Where the compiler keeps the runtimes that its libraries ask for."""
    commands, _ = host_compiler()
    for command in commands:
        try:
            asked = (*shlex.split(command), "-print-file-name=libgomp.so")
            told = subprocess.run(asked, capture_output=True, text=True, timeout=_ASKED_S)
        except (OSError, ValueError, subprocess.SubprocessError):  # whoever builds will say so
            continue
        folder = Path(told.stdout.strip()).parent
        if folder.is_absolute():  # a bare name is none that it knows
            return (str(folder),)
    return ()


def _bytes(line: str) -> int:
    return int(line.split()[1]) * 1024


def _resolved(folder: str) -> str:
    return str(Path(folder).resolve())
