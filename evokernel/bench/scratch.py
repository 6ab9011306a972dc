"""Owns a worker's scratch folder: its size limit, and that nothing of it remains."""

import os
import shutil
import tempfile
from pathlib import Path

from evokernel.errors import WorkerError


class Scratch:
    """An empty folder; a worker with a mount namespace covers it with a tmpfs of limited size.

    Args:
        base: Existing folder in which it is made.
        limit: Bytes that it may hold.
    """

    def __init__(self, base: Path, limit: int) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="worker-", dir=base))
        self.limit = limit
        self._mounted: int | None = None

    def observe(self, file: int, is_mounted: bool) -> None:
        """Take over a descriptor of the folder as the worker sees it."""
        if is_mounted:
            self._mounted = file
        else:
            os.close(file)

    @property
    def is_full(self) -> bool:
        """Whether the worker has reached the limit."""
        if self._mounted is not None:
            return os.fstatvfs(self._mounted).f_bavail == 0
        return _bytes_below(self.path) > self.limit

    def remove(self) -> None:
        """Delete it, the worker being dead. Idempotent.

        Raises:
            WorkerError: Something is left.
        """
        if self._mounted is not None:
            os.close(self._mounted)
            self._mounted = None
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path.exists():
            _unlock(self.path)
            shutil.rmtree(self.path, ignore_errors=True)
        if self.path.exists():
            raise WorkerError(f"cannot delete the scratch folder `{self.path}`; delete it by hand")


def _bytes_below(folder: Path) -> int:
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(Path(where) / name).st_blocks * 512
            except OSError:  # deleted meanwhile
                continue
    return total


def _unlock(folder: Path) -> None:
    """Undo what a worker did to the permissions of its folders."""
    folder.chmod(0o700)
    for where, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(where) / name
            if not path.is_symlink():
                path.chmod(0o700)
