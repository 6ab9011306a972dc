"""Owns which system calls a confined process may make: a filter (seccomp) for two processors.

Everything is allowed but what is listed here: what reaches other processes, the network, the
machine's settings, or parts of the kernel that no kernel of a neural network needs. A refused call
fails with EPERM, as without the privilege for it; nothing is killed.
"""

import ctypes
import errno
import os
import struct

from evokernel.confinement import kernel

_Instruction = tuple[int, int, int, int]
"""Code, jumps if true and if false, operand: `struct sock_filter`."""

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`

_ALLOW = (_RETURN, 0, 0, 0x7FFF_0000)
_REFUSE = (_RETURN, 0, 0, 0x0005_0000 | errno.EPERM)
_NOBODY_THERE = (_RETURN, 0, 0, 0x0005_0000 | errno.ECONNREFUSED)
# glibc then takes the older call, whose flags lie in a register, where a filter can see them.
_UNKNOWN = (_RETURN, 0, 0, 0x0005_0000 | errno.ENOSYS)

_PROCESSORS = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}
"""By machine: the kernel's number of the architecture, and the column in the tables below."""
_X32 = 0x4000_0000  # from here on x86-64 has its calls once more, with pointers of 32 bits

# Numbers on x86-64 and AArch64; None where there is no such call.
_OTHER_PROCESSES: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}
_NETWORK: dict[str, tuple[int | None, int | None]] = {
    # No family at all: a Unix socket with a path leads out of every namespace, to any daemon.
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
}
_LASTING_MEMORY: dict[str, tuple[int | None, int | None]] = {
    # Segments and queues outlive their process, and no limit on memory counts them.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
_DEEP_KERNEL: dict[str, tuple[int | None, int | None]] = {
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "seccomp": (317, 277),
    "unshare": (272, 97),
    "setns": (308, 268),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "memfd_secret": (447, 447),
    "uselib": (134, None),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
}
_MOUNTS: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
}
_MACHINE: dict[str, tuple[int | None, int | None]] = {
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
}
REFUSED = _OTHER_PROCESSES | _NETWORK | _LASTING_MEMORY | _DEEP_KERNEL | _MOUNTS | _MACHINE
"""Calls that always fail, by name."""

# Calls of which an argument decides.
_SOCKETPAIR, _CLONE, _CLONE3 = (53, 199), (56, 220), (435, 435)
_IOCTL, _PRCTL = (16, 29), (157, 167)
_UNIX, _STREAM, _SEQUENCE, _KIND_OF_SOCKET = 1, 1, 5, 0xF
# CUDA does not start unless it may listen at a Unix socket (`@cuda-uvmfd-...`), over which nobody
# is answered; and it asks for a daemon (MPS), which is told to be missing.
_FOR_CUDA = frozenset({"socket", "connect", "bind", "listen"})
_TYPED_FOR_ANOTHER = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: put input into a terminal
_KEPT = (1, 4, 22)  # options of prctl: death signal, visible memory, filter
_NEW_NAMESPACES = 0x7E02_0000  # mounts, cgroup, UTS, IPC, user, PID, network

# Those that name a process of another, where no namespace and no Landlock keeps them apart.
_SIGNALS = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
_PACE = {
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "prlimit64": (302, 261),
}
_PACE_OF_KIND = {"setpriority": (141, 140, 0), "ioprio_set": (251, 30, 1)}
"""Numbers, and the value of the first argument that stands for one process."""
_PIDFD_SEND_SIGNAL = (424, 424)


def restrict(keep_signals: bool = False, keep_pace: bool = False, has_gpu: bool = False) -> None:
    """Refuse the listed calls to this process and its descendants, for good.

    Privileges must have been forbidden before (`kernel.forbid_new_privileges`).

    Args:
        keep_signals: Refuse to send signals to any other process.
        keep_pace: Refuse to change priority, processors and limits of any other process.
        has_gpu: Allow what CUDA needs: to make Unix sockets that nobody can be reached through.

    Raises:
        OSError: The kernel offers no filters, or the processor is not known here.
    """
    code = program(os.uname().machine, os.getpid(), keep_signals, keep_pace, has_gpu)
    buffer = ctypes.create_string_buffer(code)
    kernel.set_filter(struct.pack("HP", len(code) // 8, ctypes.addressof(buffer)))


def program(
    machine: str,
    own: int,
    keep_signals: bool = False,
    keep_pace: bool = False,
    has_gpu: bool = False,
) -> bytes:
    """The filter as the kernel reads it.

    Args:
        machine: As `uname -m` names it.
        own: Number of this process, the only one it may then name.
        keep_signals: As in `restrict`.
        keep_pace: As in `restrict`.
        has_gpu: As in `restrict`.

    Raises:
        OSError: The processor is not known here.
    """
    if machine not in _PROCESSORS:
        raise OSError(errno.ENOSYS, f"there is no table of system calls for `{machine}`")
    architecture, column = _PROCESSORS[machine]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        *((_IF_EQUAL, 1, 0, architecture), _REFUSE),  # calls of 32 bits have other numbers
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_IF_AT_LEAST, 0, 1, _X32), _REFUSE]
    for name, numbers in REFUSED.items():
        if not (has_gpu and name in _FOR_CUDA):
            code += _if(numbers[column], [_REFUSE])
    code += _examined(column)
    if has_gpu:
        code += _sockets(column)
    if keep_signals:
        code += _signals(column, own)
    if keep_pace:
        code += _pace(column, own)
    return b"".join(struct.pack("=HBBI", *step) for step in (*code, _ALLOW))


def _examined(column: int) -> list[_Instruction]:
    """The calls of which an argument decides, always."""
    pair = [
        *((_LOAD, 0, 0, _argument(0)), (_IF_EQUAL, 0, 3, _UNIX)),
        *((_LOAD, 0, 0, _argument(1)), (_AND, 0, 0, _KIND_OF_SOCKET)),
        # Of datagrams each could name its receiver.
        *((_IF_EQUAL, 1, 0, _STREAM), _REFUSE, _ALLOW),
    ]
    cloned = [(_LOAD, 0, 0, _argument(0)), (_IF_ANY_BIT, 0, 1, _NEW_NAMESPACES), _REFUSE, _ALLOW]
    return [
        *_if(_SOCKETPAIR[column], pair),
        *_if(_CLONE[column], cloned),
        *_if(_CLONE3[column], [_UNKNOWN]),
        *_if(_IOCTL[column], _choice(1, _TYPED_FOR_ANOTHER, _REFUSE, _ALLOW)),
        *_if(_PRCTL[column], _choice(0, _KEPT, _REFUSE, _ALLOW)),
    ]


def _sockets(column: int) -> list[_Instruction]:
    """Unix sockets that reach nobody: of kinds that have to be connected, and never are."""
    made = [
        *((_LOAD, 0, 0, _argument(0)), (_IF_EQUAL, 0, 4, _UNIX)),
        *((_LOAD, 0, 0, _argument(1)), (_AND, 0, 0, _KIND_OF_SOCKET)),
        *((_IF_EQUAL, 2, 0, _STREAM), (_IF_EQUAL, 1, 0, _SEQUENCE), _REFUSE, _ALLOW),
    ]
    return [
        *_if(_NETWORK["socket"][column], made),
        *_if(_NETWORK["connect"][column], [_NOBODY_THERE]),
    ]


def _signals(column: int, own: int) -> list[_Instruction]:
    mine = _choice(0, (0, own), _ALLOW, _REFUSE)  # 0 is the own group, in a session of its own
    code = [step for numbers in _SIGNALS.values() for step in _if(numbers[column], mine)]
    return [*code, *_if(_PIDFD_SEND_SIGNAL[column], [_REFUSE])]


def _pace(column: int, own: int) -> list[_Instruction]:
    mine = _choice(0, (0, own), _ALLOW, _REFUSE)
    code = [step for numbers in _PACE.values() for step in _if(numbers[column], mine)]
    for *numbers, process in _PACE_OF_KIND.values():
        one = [(_LOAD, 0, 0, _argument(0)), (_IF_EQUAL, 1, 0, process), _REFUSE]
        code += _if(numbers[column], [*one, *_choice(1, (0, own), _ALLOW, _REFUSE)])
    return code


def _if(number: int | None, then: list[_Instruction]) -> list[_Instruction]:
    """What to do at one call; `then` must decide, for it may have loaded an argument."""
    return [] if number is None else [(_IF_EQUAL, 0, len(then), number), *then]


def _choice(
    argument: int, values: tuple[int, ...], listed: _Instruction, other: _Instruction
) -> list[_Instruction]:
    count = len(values)
    tests = [(_IF_EQUAL, count - i, 0, value) for i, value in enumerate(values)]
    return [(_LOAD, 0, 0, _argument(argument)), *tests, other, listed]


def _argument(index: int) -> int:
    """Where the lower half of an argument lies; the calls above read no more of theirs."""
    return _ARGUMENTS + 8 * index
