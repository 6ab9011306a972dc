"""Owns scratch folders: a pool's and its workers', their size limit, and that nothing remains."""

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from evokernel.errors import WorkerError

MOST_FILES = 20_000
"""Files and folders that a scratch folder may hold."""


_PREFIX = "evokernel-pool-"
_LOCK = "lock"
_YOUNG_S = 60.0  # a folder without a lock that is younger may just be in the making


class Quarters:
    """The folder of one pool, in which those of its workers lie; others see that it lives.

    Where a pool ended without a word, together with all of its processes, the next one that
    starts in the same place removes what it left.

    Args:
        place: Where it is made; None is the system's folder for temporary files.
    """

    def __init__(self, place: Path | None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for other in self.path.parent.glob(f"{_PREFIX}*"):
            if other != self.path and _is_abandoned(other):
                _delete(other)

    def remove(self) -> None:
        """Delete it with all in it. Idempotent.

        Raises:
            WorkerError: Something is left.
        """
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            _delete(self.path)
        if self.path.exists():
            raise WorkerError(f"cannot delete the folder `{self.path}`; delete it by hand")


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
        return _is_more(self.path, self.limit)

    def remove(self) -> None:
        """Delete it, the worker being dead. Idempotent.

        Raises:
            WorkerError: Something is left.
        """
        if self._mounted is not None:
            os.close(self._mounted)
            self._mounted = None
        _delete(self.path)
        if self.path.exists():
            raise WorkerError(f"cannot delete the scratch folder `{self.path}`; delete it by hand")


def _is_more(folder: Path, limit: int) -> bool:
    """Whether there are more bytes or files; the walk ends as soon as that is clear."""
    total = count = 0
    pending = [folder]
    while pending:
        for entry in _entries(pending.pop()):
            count += 1
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
            except OSError:  # deleted meanwhile
                continue
            if total > limit or count > MOST_FILES:
                return True
    return False


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    """What lies in a folder, also where the worker locked it."""
    for _ in range(2):
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except PermissionError:
            _open(folder)
        except OSError:  # deleted meanwhile
            break
    return []


def _open(folder: Path) -> None:
    try:
        if not folder.is_symlink():
            folder.chmod(0o700)
    except OSError:  # deleted meanwhile
        return


def _is_abandoned(quarters: Path) -> bool:
    """Whether it is ours to delete: of the same user, and its pool does not live."""
    try:
        facts = quarters.lstat()
    except FileNotFoundError:  # another pool was faster
        return False
    if facts.st_uid != os.geteuid():
        return False
    try:
        lock = os.open(quarters / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - facts.st_mtime > _YOUNG_S
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its pool holds it
        return False
    finally:
        os.close(lock)
    return True


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _unlock(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _unlock(folder: Path) -> None:
    """Undo what a worker did to the permissions of its folders."""
    _open(folder)
    for where, folders, _ in os.walk(folder):
        for name in folders:
            _open(Path(where) / name)
