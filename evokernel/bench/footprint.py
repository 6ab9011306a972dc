"""Owns what a worker and all that it started take together, as their parent sees it in /proc.

Limits of the kernel count each process by itself: many small ones, files that exist in memory only,
and memory that was shared and left are bounded here.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FLOOR_BYTES = 256 << 20
"""Free memory of the machine below which the worker in hand is ended, whatever it seems to have;
on small machines a fiftieth."""
_FLOOR_SHARE = 50
_HIDDEN_FILES = ("/memfd:", "/dev/zero (deleted)")
_DELETED = " (deleted)"


class Footprint(NamedTuple):
    """What some processes take together."""

    tasks: int
    """Threads of all of them."""
    own_bytes: int
    """Resident memory beyond what their ancestor was born with; shared parts may count twice."""
    file_bytes: int
    """Open files that exist in memory only."""
    deleted_bytes: int
    """Open files on disk that have no name any more."""

    @property
    def memory_bytes(self) -> int:
        """Memory, mapped or only open."""
        return self.own_bytes + self.file_bytes


def footprint(pids: Sequence[int], birth_bytes: int) -> Footprint:
    """Measure processes; what has ended counts nothing.

    Args:
        pids: Their numbers.
        birth_bytes: Resident memory that each of them shares with its ancestor at most.
    """
    tasks = own = 0
    files: dict[tuple[int, int], tuple[bool, int]] = {}
    for pid in pids:
        count, resident = _status(pid)
        tasks += count
        own += max(resident - birth_bytes, 0)
        files |= _open_files(pid)
    hidden = sum(size for is_memory, size in files.values() if is_memory)
    deleted = sum(size for is_memory, size in files.values() if not is_memory)
    return Footprint(tasks, own, hidden, deleted)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process without the files that it maps; 0 where it has ended."""
    return _status(pid)[1]


def shared_out(pids: Sequence[int], birth_bytes: int) -> int | None:
    """Their memory with what several share counted once; slow. None where it may not be read.

    Args:
        pids: Their numbers.
        birth_bytes: Resident memory of which one share is not theirs.
    """
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            return None
        parts = _fields(text, ("Pss_Anon", "Pss_Shmem"))
        total += sum(parts.values())
    return max(total - birth_bytes, 0)


def is_machine_full() -> bool:
    """Whether the machine is about to end processes by its own choice."""
    try:
        facts = _fields(Path("/proc/meminfo").read_text(), ("MemTotal", "MemAvailable"))
        return facts["MemAvailable"] < min(FLOOR_BYTES, facts["MemTotal"] // _FLOOR_SHARE)
    except (OSError, KeyError):
        return False


def _status(pid: int) -> tuple[int, int]:
    """Threads, and resident memory in bytes without mapped files."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    parts = _fields(text, ("RssAnon", "RssShmem"))
    threads = text.partition("\nThreads:")[2].split(maxsplit=1)
    return int(threads[0]) if threads else 0, sum(parts.values())


def _open_files(pid: int) -> dict[tuple[int, int], tuple[bool, int]]:
    """By device and number of each open file that has no name: whether it is memory, its bytes."""
    found: dict[tuple[int, int], tuple[bool, int]] = {}
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                target = os.readlink(entry.path)  # noqa: PTH115
                if target.endswith(_DELETED):
                    facts = entry.stat()
                    is_memory = target.startswith(_HIDDEN_FILES)
                    found[facts.st_dev, facts.st_ino] = is_memory, facts.st_blocks * 512
    except OSError:  # it ended meanwhile, or is hidden from us
        return found
    return found


def _fields(text: str, names: tuple[str, ...]) -> dict[str, int]:
    """Bytes of the fields of a file in /proc, which gives them in kB."""
    lines = (line.partition(":") for line in text.splitlines())
    return {name: int(value.split()[0]) * 1024 for name, _, value in lines if name in names}
