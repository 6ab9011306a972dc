"""Owns what shuts a worker in: namespaces, mounts, limits, capabilities, Landlock, a filter.

Each step is attempted and what the system does not permit goes into the report, so that `doctor`
and the run folder can say which protections held. Nothing here knows what a worker does.
"""

import os
import platform
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evokernel.bench.messages import Protections
from evokernel.bench.scratch import MOST_FILES
from evokernel.confinement import calls, files, kernel
from evokernel.frozen import Frozen

PROCESSES = 400
"""Processes and threads of one worker; a PID namespace allows no limit below 301."""
FILES = 1024
"""Open files of one worker."""
_NAMESPACED_PID_MAX = (6, 14)  # since this kernel `pid_max` belongs to the namespace, not the host
_SIGNAL_SCOPE = 6  # version of Landlock that keeps signals inside

ISOLATIONS = ("full", "basic", "bare")
"""`full` takes all that the system permits, `basic` no namespaces (as in most containers), `bare`
neither those nor Landlock: only what needs nobody's permission."""


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
    """Files and folders that may be read; the server adds the system's and the interpreter's."""
    writable: tuple[str, ...]
    """Folders that may be written beside the scratch folder."""
    listed: tuple[str, ...] = ()
    """Folders of which only the names may be listed: something below is hidden."""
    hidden: tuple[str, ...] = ()
    """Files and folders that must not be read, wherever they lie."""
    device: str = "cpu"
    """Where the module runs, see `WorkerSpec`."""
    nodes: tuple[str, ...] = ()
    """Device files that it may use beside the system's harmless ones."""
    variables: dict[str, str] = {}
    """Environment of its own."""


class Report:
    """Collects which protections hold and why others do not.

    Args:
        isolation: One of `ISOLATIONS`.
    """

    def __init__(self, isolation: str = "full") -> None:
        self.isolation = isolation
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

    def value(self, name: str) -> int:
        """What a protection that holds has for a value, such as its version; 0 where it fails."""
        return int(self._fields.get(name, 0))

    @property
    def protections(self) -> Protections:
        """What holds by now."""
        known = {name: self._fields[name] for name in Protections.model_fields if self.has(name)}
        return Protections(**known, notes=tuple(self._notes.values()))


def enter(report: Report) -> bool:
    """Put this process, single-threaded still, into the namespaces that its workers share.

    Returns:
        Whether the next child starts a PID namespace of its own (as its init).
    """
    if report.isolation != "full":
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
        for name in ("ipc_namespace", "mount_namespace", "own_proc"):
            report.miss(name, "comes only with a PID namespace")
        return
    report.attempt("ipc_namespace", lambda: kernel.unshare(kernel.CLONE_NEWIPC))
    if report.attempt("mount_namespace", _leave_mounts):
        report.attempt("own_proc", lambda: kernel.mount("proc", "/proc", "proc"))
        report.attempt("process_limit", _limit_processes)
        report.attempt("mount_namespace", lambda: _mount_scratch(cell))
    else:
        report.miss("own_proc", "comes only with a mount namespace")


def confine(report: Report, cell: Cell) -> None:
    """In the worker itself: limits first, then privileges, at last the files. For good."""
    tasks = () if cell.device == "cpu" else (_own_tasks(report),)
    _limit(cell)
    if cell.device == "cpu":
        report.attempt("memory_limit", lambda: _limit_memory(cell))
    else:
        report.miss("memory_limit", "CUDA reserves more addresses than any limit: use is watched")
    if not report.has("process_limit"):
        report.attempt("process_limit", _limit_user_processes)
    report.attempt("no_new_privileges", kernel.forbid_new_privileges)
    if report.isolation == "bare":
        report.miss("landlock", "not asked for")
    else:
        read = files.Readable(("/proc", *cell.readable), cell.listed)
        write = (cell.scratch, *cell.writable, *cell.nodes, *tasks)
        report.attempt("landlock", lambda: files.restrict(read, write))
    # Landlock hides memory from its prisoners; else nobody of our user may look into another.
    kernel.show_memory(report.has("landlock"))
    report.attempt("system_calls", lambda: _refuse_calls(report, cell.device != "cpu"))
    report.attempt("capabilities_dropped", kernel.drop_capabilities)


def _own_tasks(report: Report) -> str:
    """The folder of this process's threads in /proc, where CUDA writes the names of its own.

    Without that it does not start (CUDA error 304). Only this folder is opened for it: the rest of
    /proc stays read-only.
    """
    folder = os.path.realpath("/proc/self/task")
    # Rules of Landlock are about an inode, which in /proc lasts as long as somebody holds it.
    os.open(folder, os.O_PATH | os.O_CLOEXEC)
    if report.has("mount_namespace"):
        report.attempt("mount_namespace", lambda: _open_folder(folder))
    return folder


def _open_folder(folder: str) -> None:
    kernel.mount(folder, folder, flags=kernel.MS_BIND)
    kernel.set_read_only(folder, False)


def _refuse_calls(report: Report, has_gpu: bool) -> None:
    is_alone = report.has("pid_namespace")
    has_scope = report.value("landlock") >= _SIGNAL_SCOPE
    calls.restrict(not (is_alone or has_scope), keep_pace=not is_alone, has_gpu=has_gpu)


def overhead_bytes(threads: int) -> int:
    """Address space, not use: a thread reserves a stack (8 MiB) and an allocator arena (128)."""
    return (threads + 1) * (136 << 20)


def readable_paths(package: Path) -> tuple[str, ...]:
    """What the interpreter needs to read: its own folders, installed packages, `package`."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    root = str(package.parent)
    installed = (p for p in sys.path if p and (p != root or p.endswith("-packages")))
    return tuple(dict.fromkeys((*prefixes, *installed, str(package))))


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
    options = f"size={cell.scratch_bytes},mode=700,nr_inodes={MOST_FILES}"
    for place in cell.hidden:
        _cover(place)
    kernel.mount("tmpfs", cell.scratch, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    kernel.set_read_only("/", True, recursive=True)
    for folder in (cell.scratch, *cell.writable):
        kernel.set_read_only(folder, False)


def _cover(place: str) -> None:
    """Lay nothing over a file or folder: what is hidden stays so also without Landlock."""
    if Path(place).is_dir():
        kernel.mount("tmpfs", place, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4k")
    elif Path(place).exists():
        kernel.mount("/dev/null", place, flags=kernel.MS_BIND)


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
    born_with = pages * resource.getpagesize()
    _lower(resource.RLIMIT_AS, born_with + overhead_bytes(cell.threads) + cell.memory_bytes)


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
