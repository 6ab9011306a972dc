"""Owns the one lock of a physical GPU, for all processes of all users of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evokernel.bench.disturbance import device_lock, runtime_folder
from evokernel.bench.gpu.nvml import Listed, opened, visible
from evokernel.errors import DeviceMissing

SHARED = Path("/tmp/evokernel-devices")
"""Where the processes of all users meet; anybody may make files there and nobody another's."""


def physical(index: int) -> Listed:
    """The GPU that torch calls by this number in this process.

    Raises:
        DeviceMissing: There is none.
    """
    found = visible(opened().devices())
    if not 0 <= index < len(found):
        known = ", ".join(f"{n} ({each.name})" for n, each in enumerate(found)) or "none"
        raise DeviceMissing(
            f"there is no GPU {index} here; this process sees {known} (`CUDA_VISIBLE_DEVICES` "
            "chooses among those that `nvidia-smi -L` lists)"
        )
    return found[index]


def lock_name(index: int) -> str:
    """What the lock of a GPU is called: by its UUID, which is the same in every process.

    Where the management library is missing, torch is asked, and makes a context.

    Raises:
        DeviceMissing: There is no such GPU.
    """
    try:
        return physical(index).uuid.lower()
    except DeviceMissing:
        import torch

        if not 0 <= index < torch.cuda.device_count():
            raise
        known: Any = torch.cuda.get_device_properties(index)
        return f"gpu-{known.uuid}".lower()


@contextmanager
def gpu_lock(name: str, limit_s: float, folder: Path | None = None) -> Iterator[float]:
    """Hold the lock of a GPU; see `disturbance.device_lock`.

    Args:
        name: As `lock_name` gives it.
        limit_s: How long to wait for the holder before us, seconds.
        folder: Where the lock file lies; None is the folder that all users share, or the user's own
            where that one cannot be used.

    Yields:
        Seconds that were waited.

    Raises:
        WorkerError: The lock stayed taken.
    """
    place = folder or shared_folder(name)
    with device_lock(name, limit_s, place) as waited:
        yield waited


def shared_folder(name: str, folder: Path = SHARED) -> Path:
    """The folder in which a lock is shared with all users; the user's own where that fails."""
    try:
        _make(folder)
        _make_file(folder / f"device-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}.lock")
    except OSError:
        return runtime_folder()  # another user's, closed to us
    return folder


def _make(folder: Path) -> None:
    try:
        folder.mkdir()
    except FileExistsError:
        if folder.is_symlink():
            raise
    else:
        folder.chmod(0o1777)


def _make_file(path: Path) -> None:
    """See that the file is there and can be locked by everybody, for which reading is enough."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o644)
        os.fchmod(descriptor, 0o644)
    os.close(descriptor)
