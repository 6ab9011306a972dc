"""Owns `IndexFiles`: what lies on disk around the vector index, and whom it belongs to."""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from evokernel.errors import StoreError
from evokernel.frozen import Frozen


class IndexState(Frozen):
    """What the index holds, written beside it."""

    embedder: str
    watermark: int = 0
    """Number of the last event of the journal that it reflects."""
    is_clean: bool = False
    """Whether it was closed properly; the digests hold only then."""
    digests: dict[str, str] = {}
    """Hash of every file."""


class IndexFiles:
    """Folder, state and lock of one index; only the process that has the lock may write."""

    def __init__(self, memory: Path, embedder: str) -> None:
        self.folder = memory / "index"
        self._memory = memory
        self._embedder = embedder
        self._lock_path = memory / "index.lock"
        self._state_path = memory / "index.json"
        self._lock: IO[str] | None = None

    @property
    def owner(self) -> str:
        """Process id of whoever owns it now; empty when nobody does."""
        if self._lock:
            return str(os.getpid())
        if not self._lock_path.exists():
            return ""
        if self.acquire():
            self.release()
            return ""
        return self._lock_path.read_text().strip()

    @property
    def watermark(self) -> int:
        """Number of the last event that it reflects; 0 where it has to be made anew."""
        state = self.state()
        return state.watermark if state and state.is_clean else 0

    def acquire(self) -> bool:
        """Take the lock; False where another process has it."""
        try:
            lock = self._lock_path.open("a+")
        except OSError as error:
            raise StoreError(self._unwritable(error)) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        return True

    def release(self) -> None:
        """Let others take the lock."""
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None

    def inspect(self) -> None:
        """Check them unless a process is at work on them.

        Raises:
            StoreError: damaged, or made with another embedder.
        """
        if self._lock or not self._state_path.exists() or not self.acquire():
            return
        try:
            self.check()
        finally:
            self.release()

    def check(self) -> None:
        """Compare the files with what was written last.

        Raises:
            StoreError: damaged, or made with another embedder.
        """
        state = self.state()
        if state is None:
            return
        self.compare_embedder(state.embedder)
        if state.is_clean and _digests(self.folder) != state.digests:
            raise StoreError(self.damaged("its files are not those that were written last"))

    def compare_embedder(self, found: str) -> None:
        """Refuse vectors of another embedder.

        Raises:
            StoreError: names both.
        """
        if found != self._embedder:
            raise StoreError(
                f"the index of the memory `{self._memory}` was made with the embedder `{found}`, "
                f"this EvoKernel uses `{self._embedder}`: `evokernel memory rebuild` embeds "
                "everything anew"
            )

    def state(self) -> IndexState | None:
        """What was written last, None where nothing was."""
        if not self._state_path.exists():
            return None
        try:
            return IndexState.model_validate_json(self._state_path.read_bytes())
        except ValidationError as error:
            raise StoreError(self.damaged("`index.json` cannot be read")) from error

    def write_state(self, watermark: int, is_clean: bool) -> None:
        """Write the state, whole or not at all."""
        state = IndexState(
            embedder=self._embedder,
            watermark=watermark,
            is_clean=is_clean,
            digests=_digests(self.folder) if is_clean else {},
        )
        fresh = self._state_path.with_suffix(".json.new")
        try:
            fresh.write_text(state.model_dump_json())
            fresh.replace(self._state_path)
        except OSError as error:
            raise StoreError(self._unwritable(error)) from error

    def remove(self) -> None:
        """Delete folder and state."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._state_path.unlink(missing_ok=True)

    def damaged(self, detail: str) -> str:
        """The message for a damaged index."""
        return (
            f"the index of the memory `{self._memory}` is damaged ({detail}): nothing is lost, the "
            "journal has everything; `evokernel memory rebuild` makes the index anew"
        )

    def taken(self) -> str:
        """The message for an index that another process owns."""
        return (
            f"the index of the memory `{self._memory}` is in use by process {self.owner}: wait "
            "until it has ended, then try again"
        )

    def _unwritable(self, error: OSError) -> str:
        return (
            f"the index of the memory `{self._memory}` cannot be written ({error.strerror}): make "
            "room or change its rights, nothing is lost"
        )


def _digests(folder: Path) -> dict[str, str]:
    """Hash of every file below `folder` by its relative name."""
    return {
        str(path.relative_to(folder)): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
