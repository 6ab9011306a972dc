"""Owns which files a confined process may read and write: a list of what is allowed (Landlock)."""

import os
import re

from evokernel.confinement import kernel

# Rights of Landlock on files, each with the version that brought it.
_EXECUTE, _READ_FILE, _LIST = 1 << 0, 1 << 2, 1 << 3
_ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_TCP = 0b11  # bind, connect; version 4
_SCOPES = 0b11  # abstract sockets and signals stay inside; version 6

SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sys/devices/system"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
)
"""What programs need to read to run at all."""
GPU_SYSTEM = (
    *("/sys/bus/pci", "/sys/devices", "/sys/module/nvidia", "/sys/module/nvidia_uvm"),
    *("/usr/local/nvidia", "/etc/nvidia", "/sbin", "/dev/nvidia-caps"),
)
"""What the user's part of the NVIDIA driver, and Triton's search for it, read beside that."""
_GPU_NODES = re.compile(r"nvidia(\d+|ctl|-uvm|-uvm-tools)")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""What may be read and written."""


class Readable:
    """What may be read.

    Args:
        whole: Files, and folders with all below them.
        listed: Folders of which only the names below them may be listed.
    """

    def __init__(self, whole: tuple[str, ...], listed: tuple[str, ...] = ()) -> None:
        self.whole = whole
        self.listed = listed


def carve(paths: tuple[str, ...], hidden: tuple[str, ...]) -> Readable:
    """Leave `hidden` files and folders out of `paths`, whose rights reach everything below them.

    A folder above something hidden is replaced by what lies in it now.
    """
    secrets = {os.path.realpath(path) for path in hidden}
    above = {parent for secret in secrets for parent in _parents(secret)}
    whole: list[str] = []
    listed: list[str] = []
    pending = [os.path.realpath(path) for path in paths]
    while pending:
        place = pending.pop()
        if place in secrets or not secrets.isdisjoint(_parents(place)):
            continue
        if place in above:
            listed.append(place)
            pending += _entries(place)
        else:
            whole.append(place)
    return Readable(tuple(dict.fromkeys(whole)), tuple(dict.fromkeys(listed)))


def restrict(read: Readable, write: tuple[str, ...]) -> int:
    """Allow this process and its descendants these files and no others, for good.

    Also out of reach from then on: other processes (their memory, their environment, and from
    version 6 on signals), TCP (4), abstract Unix sockets (6).

    Args:
        read: What may be read and executed; what does not exist is skipped.
        write: Folders in which everything is allowed.

    Returns:
        The version of Landlock.

    Raises:
        OSError: The kernel refuses, or does not offer it.
    """
    version = kernel.landlock_version()
    if not version:
        raise OSError(0, "the kernel does not offer it")
    handled = sum(rights for since, rights in _RIGHTS.items() if since <= version)
    rules = dict.fromkeys(read.listed, _LIST)
    rules |= dict.fromkeys(read.whole, _EXECUTE | _READ_FILE | _LIST)
    rules |= dict.fromkeys((*DEVICES, *write), handled)
    network, scopes = (_TCP if version >= 4 else 0), (_SCOPES if version >= 6 else 0)
    kernel.landlock((handled, network, scopes), rules, _ON_FILES)
    return version


def gpu_nodes(folder: str = "/dev") -> tuple[str, ...]:
    """The device files through which programs use NVIDIA GPUs; none where there is no driver.

    Not among them: those that set display modes, or hand parts of a GPU out.
    """
    with os.scandir(folder) as entries:
        return tuple(sorted(e.path for e in entries if _GPU_NODES.fullmatch(e.name)))


def _parents(place: str) -> list[str]:
    found = []
    while (parent := os.path.dirname(place)) != place:  # noqa: PTH120
        found.append(parent)
        place = parent
    return found


def _entries(folder: str) -> list[str]:
    """What lies in it; what a link points to is allowed where it lies, or not."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
