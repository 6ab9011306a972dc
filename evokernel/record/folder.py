"""Owns how a run folder is written: whole files, whole lines, one process at a time.

A file is written under another name and renamed, so that a reader and a resumed run see it whole or
not at all. After a power cut a young file may be empty, which counts as not there; `precious` ones
(somebody paid for them) survive even that.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from evokernel.errors import RecordError
from evokernel.frozen import Frozen

R = TypeVar("R", bound=Frozen)


class Folder:
    """The files of one run, by their names relative to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = str(path)  # joining strings costs a fifth of what joining paths does
        self._lock: int | None = None
        self._growing: dict[str, int] = {}

    def make(self) -> None:
        """Create the folder, which must not exist yet.

        Raises:
            RecordError: when it cannot be created.
        """
        with _translated(self.path):
            self.path.mkdir(parents=True)

    def lock(self) -> None:
        """Become the only process that works on this run, until `unlock` or the process' end.

        Raises:
            RecordError: when another process, or this one, holds the lock already.
        """
        path = self.path / "lock"
        with _translated(path):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise RecordError(
                f"`{self.path}` is being worked on by process {owner or 'unknown'}; wait for it or "
                "stop it first"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def unlock(self) -> None:
        """Let others work on this run, and close every file."""
        while self._growing:
            os.close(self._growing.popitem()[1])
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, name: str, text: str, *, precious: bool = False) -> None:
        """Replace a file.

        Raises:
            RecordError: when it cannot be written, e.g. because the disk is full.
        """
        path = f"{self._root}/{name}"
        folder, _, last = path.rpartition("/")
        half = f"{folder}/.{last}.part"
        with _translated(path):
            file = _opened(half)
            try:
                _write_all(file, text.encode("utf-8", "replace"))
                if precious:
                    os.fsync(file)
            finally:
                os.close(file)
            os.rename(half, path)  # noqa: PTH104

    def append(self, name: str, line: str, *, precious: bool = False) -> None:
        """Add one line, visible to readers at once.

        Raises:
            RecordError: when it cannot be written.
        """
        path = f"{self._root}/{name}"
        with _translated(path):
            if name not in self._growing:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._growing[name] = os.open(path, flags, 0o644)
            _write_all(self._growing[name], f"{line}\n".encode("utf-8", "replace"))
            if precious:
                os.fsync(self._growing[name])

    def lines(self, name: str) -> Iterator[str]:
        """Whole lines; one that is still being written is left out."""
        if not self.has(name):
            return
        yield from self.read(name).split("\n")[:-1]

    def drop_torn_line(self, name: str) -> None:
        """Cut off what a killed process left half written, so that the next line stays whole."""
        path = self.path / name
        if not path.exists():
            return
        with _translated(path), path.open("rb+") as file:
            file.truncate(file.read().rfind(b"\n") + 1)

    def has(self, name: str) -> bool:
        """Whether there is such a file, with something in it."""
        try:
            return os.stat(f"{self._root}/{name}").st_size > 0  # noqa: PTH116
        except FileNotFoundError:
            return False

    def numbers(self, name: str) -> list[int]:
        """The numbers that entries of a subfolder have as names, sorted."""
        folder = self.path / name
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(int(entry.stem) for entry in found if entry.stem.isdigit())

    def read(self, name: str) -> str:
        """A file's text.

        Raises:
            RecordError: when it is missing, cannot be read, or is not UTF-8.
        """
        return read_text(self.path / name, "a file of the run")

    def parse(self, name: str, kind: type[R]) -> R:
        """A file's record.

        Raises:
            RecordError: when it cannot be read or does not fit.
        """
        try:
            return kind.model_validate_json(self.read(name))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise RecordError(
                f"`{self.path / name}` is damaged or from another version of EvoKernel: {place}: "
                f"{first['msg']}; the run's other files are untouched"
            ) from error


def read_text(path: Path, expected: str) -> str:
    """Read a UTF-8 file.

    Raises:
        RecordError: names the file, what was expected of it, and why it cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RecordError(f"`{path}` cannot be read: {reason}; expected {expected}") from error


def _opened(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)


def _write_all(file: int, content: bytes) -> None:
    """Write until it is all there: a disk that fills up takes a part first, then refuses."""
    while content:
        content = content[os.write(file, content) :]


@contextmanager
def _translated(path: Path | str) -> Iterator[None]:
    """Say which file could not be written, and that nothing is lost."""
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"`{path}` cannot be written: {error.strerror or error}; make room, or choose another "
            "folder with `--runs-dir`. What was stored before is intact"
        ) from error
