"""Owns the system calls that Python has no name for: namespaces, mounts, rights, filters.

Like all that a confined program is started by, it imports little: `pathlib` and `typing` together
take longer to import than an interpreter to start.
"""

import ctypes
import os
import stat
import struct

CLONE_NEWNS = 0x0002_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 0x2, 0x4, 0x8, 0x1000
MS_REC, MS_PRIVATE = 0x4000, 0x4_0000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_LINUX_CAPABILITY_VERSION_3 = 0x2008_0522
_MOST_CAPABILITIES = 64  # bits of a set; those that the kernel does not know are refused singly

# Numbers of the calls that are the same on every architecture (all calls since Linux 5.1 are).
_SYS_MOUNT_SETATTR = 442
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 0x1
_LANDLOCK_VERSION = 1 << 0
_LANDLOCK_PATH_BENEATH = 1

_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER = 1
# Without it, kernels before 5.16 slow the arithmetic of every process that has a filter.
_SECCOMP_FILTER_FLAG_SPEC_ALLOW = 1 << 2

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave namespaces for new ones (for PIDs: the children born from now on).

    Raises:
        OSError: Not permitted here.
    """
    _check(_libc.unshare(flags), "unshare")


def enter_namespace(file: int, kind: int) -> None:
    """Join the namespace that `file` is open on.

    Raises:
        OSError: Not permitted here.
    """
    _check(_libc.setns(file, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or change or bind a mount.

    Raises:
        OSError: Not permitted here.
    """
    arguments = (source.encode(), target.encode(), kind.encode() or None)
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), "mount")


def set_read_only(path: str, read_only: bool, recursive: bool = False) -> None:
    """Make a mount (and with `recursive` all below it) read-only, or writable again.

    Raises:
        OSError: Not permitted here, or a kernel before 5.12.
    """
    bit = _MOUNT_ATTR_RDONLY
    attributes = struct.pack("QQQQ", *((bit, 0) if read_only else (0, bit)), 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    result = _libc.syscall(
        _SYS_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, ctypes.c_size_t(32)
    )
    _check(result, "mount_setattr")


def set_death_signal(number: int) -> None:
    """Have the kernel send this signal when the parent's thread that forked us ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "prctl")


def become_subreaper() -> None:
    """Become the parent of every descendant that is orphaned."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def forbid_new_privileges() -> None:
    """Make setuid and file capabilities ineffective, for good."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def show_memory(is_shown: bool) -> None:
    """Let other processes of the same user look into this one (ptrace, /proc), or not."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(is_shown), 0, 0, 0), "prctl")


def set_filter(program: bytes) -> None:
    """Put a filter before every system call of this process and its descendants, for good.

    Args:
        program: A `struct sock_fprog`; what it points to must live until this returns.

    Raises:
        OSError: The kernel refuses, or offers no filters.
    """
    number = _SYS_SECCOMP.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"no filter is known for `{os.uname().machine}`")
    flags = _SECCOMP_FILTER_FLAG_SPEC_ALLOW
    _check(_libc.syscall(number, _SECCOMP_SET_MODE_FILTER, flags, program), "seccomp")


def drop_capabilities() -> None:
    """Give up every capability; root's exec would bring them back but for no_new_privs.

    Raises:
        OSError: The kernel refuses.
    """
    for capability in range(_MOST_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # a second bar, where permitted
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", _LINUX_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def landlock_version() -> int:
    """The version of Landlock that the kernel offers; 0 is none."""
    size = ctypes.c_size_t(0)
    return max(int(_libc.syscall(_SYS_LANDLOCK_CREATE, None, size, _LANDLOCK_VERSION)), 0)


def landlock(handled: tuple[int, int, int], rules: dict[str, int], on_files: int) -> None:
    """Restrict this process and its descendants for good.

    Args:
        handled: What is forbidden unless a rule allows it: rights on files, TCP rights, scopes.
        rules: Path of a file or folder to the rights below it; what does not exist is skipped.
        on_files: The rights that a file can have; of others only folders have some.

    Raises:
        OSError: The kernel refuses.
    """
    attributes = struct.pack("QQQ", *handled)
    size = 24 if handled[2] else 16 if handled[1] else 8  # older kernels refuse unknown fields
    ruleset = _check(
        _libc.syscall(_SYS_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0),
        "landlock_create_ruleset",
    )
    try:
        for path, rights in rules.items():
            _allow(ruleset, path, rights, on_files)
        _check(_libc.syscall(_SYS_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, on_files: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it does not exist, or is none that we may reach
        return
    try:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            rights &= on_files
        rule = struct.pack("=Qi", rights, file)
        result = _libc.syscall(_SYS_LANDLOCK_ADD, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0)
        _check(result, "landlock_add_rule")
    finally:
        os.close(file)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result
