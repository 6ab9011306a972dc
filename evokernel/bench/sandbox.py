"""Owns what shuts a worker in: namespaces, mounts, limits, capabilities, Landlock.

Each step is attempted and what the system does not permit goes into the report, so that `doctor`
and the run folder can say which protections held. Nothing here knows what a worker does.
"""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evokernel.bench import kernel
from evokernel.bench.messages import Protections
from evokernel.frozen import Frozen

PROCESSES = 400
"""Processes and threads of one worker; a PID namespace allows no limit below 301."""
FILES = 1024
"""Open files of one worker."""
_NAMESPACED_PID_MAX = (6, 14)  # since this kernel `pid_max` belongs to the namespace, not the host

# Rights of Landlock on files, each with the version that brought it.
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
_ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_TCP = 0b11  # bind, connect; version 4
_SCOPES = 0b11  # abstract sockets and signals stay inside; version 6

_SYSTEM_READ = (
    *("/usr", "/lib", "/lib64", "/bin", "/proc", "/sys/devices/system"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Cell(Frozen):
    """The bounds of one worker."""

    scratch: str
    """Folder that exists, empty, and becomes the only writable one."""
    scratch_bytes: int
    memory_bytes: int
    """Address space beyond what the process is born with."""
    threads: int
    cpu_s: int
    """CPU seconds of one process; a last resort, the wall limits are the parent's."""
    readable: tuple[str, ...]
    """Files and folders that may be read beside the system's and the interpreter's."""
    writable: tuple[str, ...]
    """Folders that may be written beside the scratch folder."""


class Report:
    """Collects which protections hold and why others do not."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._notes: dict[str, str] = {}

    def attempt(self, name: str, step: Callable[[], int | None]) -> bool:
        """Take one step; `name` is a field of `Protections`. Returns whether it worked."""
        try:
            value = step()
        except OSError as error:
            self._fields.pop(name, None)
            self.miss(name, error.strerror or str(error))
            return False
        self._notes.pop(name, None)
        self._fields[name] = True if value is None else value
        return True

    def miss(self, name: str, why: str) -> None:
        """Note that a protection is missing."""
        self._notes[name] = f"{name.replace('_', ' ')}: {why}"

    def has(self, name: str) -> bool:
        """Whether a protection holds."""
        return bool(self._fields.get(name))

    @property
    def protections(self) -> Protections:
        """What holds by now."""
        known = {name: self._fields[name] for name in Protections.model_fields if self.has(name)}
        return Protections(**known, notes=tuple(self._notes.values()))


def enter(report: Report, isolation: str) -> bool:
    """Put this process, single-threaded still, into the namespaces that its workers share.

    Returns:
        Whether the next child starts a PID namespace of its own (as its init).
    """
    if isolation != "full":
        report.miss("namespaces", "not asked for")
        return False
    if not report.attempt("network_namespace", _leave_network):
        # Without privileges a user namespace of our own gives those that the others take.
        report.attempt("user_namespace", _enter_user_namespace)
        report.attempt("network_namespace", _leave_network)
    return report.attempt("pid_namespace", lambda: kernel.unshare(kernel.CLONE_NEWPID))


def furnish(report: Report, cell: Cell) -> None:
    """In the init of a worker's PID namespace: own mounts, own /proc, a limit on processes."""
    if not report.has("pid_namespace"):
        for name in ("ipc_namespace", "mount_namespace"):
            report.miss(name, "comes only with a PID namespace")
        return
    report.attempt("ipc_namespace", lambda: kernel.unshare(kernel.CLONE_NEWIPC))
    if report.attempt("mount_namespace", _leave_mounts):
        report.attempt("own_proc", lambda: kernel.mount("proc", "/proc", "proc"))
        report.attempt("process_limit", _limit_processes)
        report.attempt("mount_namespace", lambda: _mount_scratch(cell))


def confine(report: Report, cell: Cell) -> None:
    """In the worker itself: limits first, then privileges, at last the files. For good."""
    _limit(cell)
    report.attempt("memory_limit", lambda: _limit_memory(cell))
    if not report.has("process_limit"):
        report.attempt("process_limit", _limit_user_processes)
    report.attempt("no_new_privileges", kernel.forbid_new_privileges)
    version = kernel.landlock_version()
    if version:
        report.attempt("landlock", lambda: _landlock(version, cell))
    else:
        report.miss("landlock", "the kernel does not offer it")
    report.attempt("capabilities_dropped", kernel.drop_capabilities)


def readable_paths(package: Path) -> tuple[str, ...]:
    """What the interpreter needs to read: its own folders, installed packages, `package`."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    root = str(package.parent)
    installed = (p for p in sys.path if p and (p != root or p.endswith("-packages")))
    return tuple(dict.fromkeys((*prefixes, *installed, str(package))))


def compiler_paths() -> tuple[str, ...]:
    """What torch.compile's C++ compiler needs to read where it lies outside the system's folders.

    Only the parts of an installation, never the whole folder above them, which may be a home.
    """
    names = (os.environ.get("CXX", ""), os.environ.get("CC", ""), "g++", "gcc", "clang++", "clang")
    found = [Path(place) for name in names if name and (place := shutil.which(name))]
    prefixes = dict.fromkeys(p.parent.parent for place in found for p in (place, place.resolve()))
    parts = ("bin", "include", "lib", "lib32", "lib64", "libexec", "share")
    folders = (prefix / part for prefix in prefixes for part in parts)
    return tuple(str(folder) for folder in folders if folder.is_dir())


def _leave_network() -> None:
    kernel.unshare(kernel.CLONE_NEWNET)


def _enter_user_namespace() -> None:
    """Try it in a child first: there is no way back, and without an own number no file is ours."""
    child = os.fork()
    if child == 0:
        try:
            _become_own_user()
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    if number := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(number, os.strerror(number))
    _become_own_user()


def _become_own_user() -> None:
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _leave_mounts() -> None:
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)


def _mount_scratch(cell: Cell) -> None:
    for folder in cell.writable:
        kernel.mount(folder, folder, flags=kernel.MS_BIND)
    options = f"size={cell.scratch_bytes},mode=700,nr_inodes=20000"
    kernel.mount("tmpfs", cell.scratch, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    kernel.set_read_only("/", True, recursive=True)
    for folder in (cell.scratch, *cell.writable):
        kernel.set_read_only(folder, False)


def _limit_processes() -> None:
    """Root is exempt from RLIMIT_NPROC, but not from the size of its PID namespace."""
    release = platform.release().split(".")
    if (int(release[0]), int(release[1])) < _NAMESPACED_PID_MAX:
        raise OSError(0, "pid_max belongs to the whole host before Linux 6.14")
    Path("/proc/sys/kernel/pid_max").write_text(str(PROCESSES))


def _limit(cell: Cell) -> None:
    size = max(cell.scratch_bytes, cell.memory_bytes)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: cell.cpu_s,
        resource.RLIMIT_FSIZE: size,
        resource.RLIMIT_NOFILE: FILES,
    }
    for kind, value in limits.items():
        _lower(kind, value)


def _limit_memory(cell: Cell) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    # Address space, not use: each thread reserves a stack (8 MiB) and an allocator arena (128 MiB).
    overhead = (cell.threads + 1) * (136 << 20)
    _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + overhead + cell.memory_bytes)


def _limit_user_processes() -> None:
    if os.geteuid() == 0:
        raise OSError(0, "root is exempt from RLIMIT_NPROC")
    # The limit counts every process of the user, not only the worker's.
    _lower(resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + PROCESSES)


def _tasks_of(uid: int) -> int:
    """Threads of a user, as far as /proc shows them."""
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.stat().st_uid == uid:
                count += sum(1 for _ in (entry / "task").iterdir())
        except OSError:  # it ended meanwhile, or is hidden from us
            continue
    return count


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _landlock(version: int, cell: Cell) -> int:
    handled = sum(rights for since, rights in _RIGHTS.items() if since <= version)
    read_paths = (*_SYSTEM_READ, *cell.readable)
    rules = {path: _READ if Path(path).is_dir() else _READ & _ON_FILES for path in read_paths}
    rules |= dict.fromkeys(_DEVICES, handled & _ON_FILES)
    rules |= dict.fromkeys((cell.scratch, *cell.writable), handled)
    kernel.landlock((handled, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0), rules)
    return version
