"""Owns the building of a C++ source on the machine that an exported file runs on.

Embedded in every exported file. A library lies in a folder of the user's own, under the hash of
everything that decides what it does and its own checksum: two processes that build it at once do
not disturb each other, and what a killed build or a full disk left behind is not taken for whole.
"""

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BUILD_S = 300.0
"""Seconds after which a compiler is killed."""
STALE_S = 3600.0
"""Seconds after which a build folder must be one that a killed process left."""
INSTALL = (
    "install g++ (Debian and Ubuntu: `apt install g++`, Fedora: `dnf install gcc-c++`, conda: "
    "`conda install gxx`) or set `$CXX` to a C++17 compiler with OpenMP"
)


class BuildError(Exception):
    """A kernel cannot be built or loaded here; the message says why and what to do."""


def built(source: str, flags: Sequence[str], ours: Sequence[str]) -> Path:
    """Build a C++ source, or find what was built of it before.

    Args:
        source: The whole file.
        flags: The author's compiler flags.
        ours: Flags that every kernel is built with.

    Returns:
        Path of the shared library.

    Raises:
        BuildError: There is no compiler, the source does not build, or nothing can be written.
    """
    command = compiler()
    folder = cache_folder()
    key = _key(source, (*ours, "--", *flags), command)
    if (known := _whole(folder, key)) is not None:
        return known
    try:
        _sweep(folder)
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as place:
            library = _compile(source, _line(command, flags, ours), Path(place))
            digest = hashlib.sha256(library.read_bytes()).hexdigest()[:16]
            return library.replace(folder / f"{key}-{digest}.so")
    except OSError as error:
        raise BuildError(
            f"cannot write the folder of built kernels `{folder}`: {error.strerror or error}; make "
            "room or name another folder with `EVOKERNEL_EXPORT_CACHE`"
        ) from error


def compiler() -> tuple[str, ...]:
    """The words of the compiler's command: `$CXX` where it is set, else `g++`, else `clang++`.

    Raises:
        BuildError: There is none.
    """
    chosen = os.environ.get("CXX", "").strip()
    for command in (chosen,) if chosen else ("g++", "clang++"):
        try:
            words = shlex.split(command)
        except ValueError:  # a quote that is not closed
            continue
        if path := shutil.which(words[0]):
            return (path, *words[1:])
    looked = f"`$CXX` is `{chosen}`, which cannot be run" if chosen else "no `g++`, no `clang++`"
    raise BuildError(f"no C++ compiler ({looked}); {INSTALL}")


def cache_folder() -> Path:
    """A folder that nobody else can write to: `$EVOKERNEL_EXPORT_CACHE`, else in the user's cache.

    Raises:
        BuildError: None can be made.
    """
    chosen = os.environ.get("EVOKERNEL_EXPORT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    temporary = Path(tempfile.gettempdir()) / f"evokernel-exports-{os.getuid()}"
    places = [Path(chosen)] if chosen else [Path(base) / "evokernel-exports", temporary]
    for place in places:
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = place.stat()
            is_private = found.st_uid == os.getuid() and not found.st_mode & 0o022
            if is_private and os.access(place, os.W_OK | os.X_OK):
                return place
    tried = ", ".join(f"`{place}`" for place in places)
    raise BuildError(
        f"no folder for built kernels: tried {tried}; it must be writable by you and by nobody "
        "else. Name one with `EVOKERNEL_EXPORT_CACHE`"
    )


def _key(source: str, flags: Sequence[str], command: Sequence[str]) -> str:
    parts = [source, *flags, *command, _version(command), _processor(), *platform.libc_ver()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _version(command: Sequence[str]) -> str:
    try:
        answer = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        text = f"`{' '.join(command)} --version` does not answer ({error}); {INSTALL}"
        raise BuildError(text) from error
    return answer.stdout.partition("\n")[0]


def _processor() -> str:
    """What `-march=native` stands for here."""
    try:
        first = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        first = platform.processor()
    wanted = re.findall(r"(?m)^(?:vendor_id|cpu family|model|flags|Features|CPU \w+)\s*:.*", first)
    return platform.machine() + "\n".join(wanted)


def _whole(folder: Path, key: str) -> Path | None:
    """The library of this key, if it is there and as it was written."""
    for path in folder.glob(f"{key}-*.so"):
        with contextlib.suppress(OSError):
            if hashlib.sha256(path.read_bytes()).hexdigest()[:16] == path.stem.rpartition("-")[2]:
                return path
    return None


def _line(command: Sequence[str], flags: Sequence[str], ours: Sequence[str]) -> list[str]:
    libraries = [flag for flag in flags if flag.startswith("-l")]
    others = [flag for flag in flags if not flag.startswith("-l")]
    return [*command, *ours, *others, "kernel.cpp", "-o", "kernel.so", *libraries]


def _compile(source: str, line: list[str], place: Path) -> Path:
    (place / "kernel.cpp").write_text(source, encoding="utf-8")
    process = subprocess.Popen(
        line,
        cwd=place,
        env={**os.environ, "TMPDIR": str(place), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=BUILD_S)
    except subprocess.TimeoutExpired:
        raise BuildError(f"`{line[0]}` was stopped after {BUILD_S:.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    library = place / "kernel.so"
    if process.returncode or not library.is_file():
        shown = "\n".join(said.strip().splitlines()[:12])
        raise BuildError(f"`{line[0]}` does not build the kernel:\n{shown}")
    return library


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed in mid-build left behind."""
    for place in folder.glob("build-*"):
        with contextlib.suppress(FileNotFoundError):  # another process has just finished with it
            if time.time() - place.stat().st_mtime > STALE_S:
                shutil.rmtree(place, ignore_errors=True)
