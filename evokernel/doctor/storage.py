"""Owns the checks of disk and memory: can they be written, is there room, is the journal whole."""

import errno
import os
import shutil
import tempfile
import time
from pathlib import Path

from evokernel.config import MemoryConfig
from evokernel.doctor.finding import Facts, Finding, Settings, in_one_line
from evokernel.errors import EvoKernelError

LITTLE_BYTES = 1 << 30
"""Below this much room there is a warning: built kernels, the cache of torch.compile and a run's
record come to some hundred megabytes (ours)."""
_PROBE_BYTES = 1 << 16


def runs(settings: Settings) -> Finding:
    """Whether run folders can be made."""
    return _folder("runs", settings.runs, "choose another with `--runs-dir FOLDER`")


def home(settings: Settings) -> Finding:
    """Whether the folder of cache and memory can be written."""
    return _folder("home", settings.home, "set `EVOKERNEL_HOME` to a folder that can be written")


def cache(settings: Settings) -> Finding:
    """Whether built kernels can be kept."""
    return _folder("cache", settings.cache, "delete it (it is made again), or set `EVOKERNEL_HOME`")


def memory(settings: Settings) -> Finding:
    """Whether the memory can be opened, what it holds, and who is at work on it."""
    folder = settings.memory
    facts = _memory_facts(folder)
    if not facts["exists"]:
        found = f"none yet in `{folder}`; the first run makes it"
        return Finding(name="memory", state="ok", found=found, facts=facts)
    try:
        facts |= _opened(folder)
    except EvoKernelError as error:
        return Finding(
            name="memory",
            state="missing",
            found=f"`{folder}` cannot be opened",
            advice=in_one_line(str(error)),
            facts=facts,
        )
    owner = f", its index in use by process {facts['owner']}" if facts["owner"] else ""
    return Finding(
        name="memory",
        state="ok",
        found=f"`{folder}`, experiences: {facts['experiences']}, embedder: {facts['embedder']}, "
        f"last written {facts['last_written']}{owner}",
        facts=facts,
    )


def _memory_facts(folder: Path) -> Facts:
    """What the files say; the rest is None until the memory is open."""
    from evokernel.memory.database import FILE

    # Opening makes the file of the write-ahead log anew, so that its time is read before.
    written = [path.stat().st_mtime for path in folder.glob(f"{FILE}*") if path.is_file()]
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(written))) if written else None
    return {
        "path": str(folder),
        "exists": (folder / FILE).exists(),
        "last_written": moment,
        "experiences": None,
        "embedder": None,
        "owner": None,
    }


def _opened(folder: Path) -> Facts:
    from evokernel.memory.store import Memory

    with Memory.open(MemoryConfig(path=folder), create=False) as opened:
        stats = opened.stats()
    owner = stats.index.owner if stats.index else ""
    return {"experiences": stats.experiences, "embedder": stats.embedder, "owner": owner or None}


def _folder(name: str, folder: Path, otherwise: str) -> Finding:
    """Write a file without a name into the folder, or into where it would be made."""
    place = _existing(folder)
    facts: Facts = {
        "path": str(folder.absolute()),
        "exists": folder.is_dir(),
        "is_writable": False,
        "free_bytes": None,
    }
    try:
        facts["free_bytes"] = free = shutil.disk_usage(place).free
        _write(place)
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return Finding(
            name=name,
            state="missing",
            found=f"`{folder}` cannot be written: {error.strerror}",
            advice=f"make room there, or {otherwise}" if is_full else otherwise,
            facts=facts,
        )
    is_little = free < LITTLE_BYTES
    where = f"`{folder}`{'' if folder.is_dir() else ' (not made yet)'}"
    return Finding(
        name=name,
        state="warning" if is_little else "ok",
        found=f"{where} can be written, {_size(free)} free",
        advice=f"make room there, or {otherwise}" if is_little else "",
        facts=facts | {"is_writable": True},
    )


def _existing(folder: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    here = folder.absolute()
    return next((path for path in (here, *here.parents) if os.path.lexists(path)), here)


def _write(place: Path) -> None:
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(b"\0" * _PROBE_BYTES)
        file.flush()
        os.fsync(file.fileno())


def _size(count: int) -> str:
    return f"{count / 1e9:.0f} GB" if count >= 10e9 else f"{count / 1e9:.2f} GB"
