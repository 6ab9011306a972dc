"""Owns the cache of built kernels: one JSON entry per key, and the library that it names.

Entries are written under a temporary name and renamed; a library's name holds its own checksum.
So readers need no lock, two builders of one key do not disturb each other, and an entry that a
crash or a full disk damaged is a miss that the next build repairs. Nothing is evicted.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from evokernel.compilers.resources import Resources
from evokernel.errors import ConfigError
from evokernel.evaluation import Diagnostic
from evokernel.frozen import Frozen

FORMAT = 2
"""Version of the entries; part of every key."""

_STALE_S = 3600.0  # far above any compile limit: only a killed process leaves its folder that long
_LEAST_FREE_BYTES = 4 * 2**20


class Entry(Frozen):
    """What is known about one key: a library, or why there is none."""

    key: str
    """The key, repeated to recognise a file that was moved or damaged."""
    library: str | None
    """File name of the library; None is a failure."""
    digest: str = ""
    """SHA-256 of the library."""
    seconds: float = 0.0
    """Wall seconds the compiler took."""
    log: str = ""
    """What the compiler wrote, capped."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Errors or warnings, with the neutral file name that all kernels are compiled under."""
    timed_out: bool = False
    """The failure was a limit, given by the next two fields."""
    timeout_s: float = 0.0
    """Wall limit of that build, seconds."""
    memory_bytes: int = 0
    """Memory limit of that build, bytes."""
    resources: tuple[Resources, ...] = ()
    """What the kernels of a GPU take."""
    notes: tuple[str, ...] = ()
    """What a reader should know of how it was built."""


class ArtefactCache:
    """A folder of built kernels, shared by any number of processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> Entry | None:
        """The entry of a key, or None where it is missing, unreadable or damaged."""
        try:
            entry = Entry.model_validate_json(self._entry_path(key).read_bytes())
            if entry.key != key:
                return None
            if entry.library and _digest(self.library_path(entry)) != entry.digest:
                return None
        except (OSError, ValidationError):
            return None
        return entry

    def keep(self, entry: Entry, library: Path | None = None) -> Entry:
        """Store an entry, and its library by moving the file.

        Raises:
            ConfigError: the folder cannot be written.
        """
        with self._writing():
            place = self._entry_path(entry.key)
            place.parent.mkdir(parents=True, exist_ok=True)
            if library:
                digest = _digest(library)
                name = f"{entry.key}-{digest[:16]}{library.suffix}"
                entry = entry.model_copy(update={"library": name, "digest": digest})
                library.replace(self.library_path(entry))
            self._write(place, entry.model_dump_json(indent=1))
        return entry

    def library_path(self, entry: Entry) -> Path:
        """Where the entry's library lies."""
        return self._entry_path(entry.key).parent / (entry.library or "")

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a private folder for one build, on the same disk, and remove it afterwards.

        Raises:
            ConfigError: the folder cannot be made.
        """
        with self._writing():
            builds = self.folder / "build"
            builds.mkdir(parents=True, exist_ok=True)
            _sweep(builds)
            place = Path(tempfile.mkdtemp(dir=builds))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def write_source(self, place: Path, source: str) -> None:
        """Write a source to a workspace's file.

        Raises:
            ConfigError: it cannot be written.
        """
        with self._writing():
            place.write_text(source, encoding="utf-8", errors="replace")

    def check_space(self) -> None:
        """Refuse to blame a kernel for a disk without room.

        Raises:
            ConfigError: names the folder.
        """
        free = shutil.disk_usage(self.folder).free
        if free < _LEAST_FREE_BYTES:
            raise ConfigError(self._advice(f"only {free // 1024} KiB are free there"))

    def _entry_path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def _write(self, place: Path, text: str) -> None:
        handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).replace(place)
        finally:
            Path(temporary).unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(self._advice(error.strerror or str(error))) from error

    def _advice(self, reason: str) -> str:
        return (
            f"cannot write the cache of built kernels `{self.folder}`: {reason}; free some space "
            "or name a writable folder with `EVOKERNEL_HOME`"
        )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sweep(builds: Path) -> None:
    """Remove what processes that were killed in mid-build left behind."""
    now = time.time()
    for place in builds.iterdir():
        try:
            is_stale = now - place.stat().st_mtime > _STALE_S
        except FileNotFoundError:  # another process has just finished with it
            continue
        if is_stale:
            shutil.rmtree(place, ignore_errors=True)
