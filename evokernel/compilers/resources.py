"""Owns what a GPU kernel needs of the device, read from the assembler's report and the cubin."""

import re
from collections.abc import Iterator

from evokernel.compilers.elf import section_sizes
from evokernel.frozen import Frozen

STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory that a kernel may declare with a fixed size, on every device (CUDA C++ Programming
Guide, "Compute Capabilities"); more has to be asked for when it is launched."""

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(?P<name>[^']+)' for '\w+'")
_SPILLS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


class Resources(Frozen):
    """What one launch of a kernel takes, as the compiler tells it."""

    kernel: str
    """Name of the function; a template's or C++ function's is mangled."""
    registers: int
    """32-bit registers of each thread."""
    shared_bytes: int = 0
    """Shared memory of fixed size for each block; what a launch asks for comes on top."""
    stack_bytes: int = 0
    """Local memory of each thread: arrays that are indexed at run time, and spilled registers."""
    spill_stores: int = 0
    """Bytes that each thread stores because registers ran out."""
    spill_loads: int = 0
    """Bytes that each thread loads again."""
    constant_bytes: int = 0
    """Constant memory that the source declares or that holds its literals; arguments excluded."""

    def __str__(self) -> str:
        """For people, e.g. `32 registers, 1024 bytes shared, no spills`."""
        spilled = self.spill_stores + self.spill_loads
        parts = [
            f"{self.registers} registers",
            f"{self.shared_bytes} bytes shared" if self.shared_bytes else "no fixed shared memory",
            f"{self.spill_stores} + {self.spill_loads} bytes spilled" if spilled else "no spills",
        ]
        parts += [f"{self.stack_bytes} bytes stack"] * bool(self.stack_bytes)
        parts += [f"{self.constant_bytes} bytes constant"] * bool(self.constant_bytes)
        return ", ".join(parts)


def report(log: str, cubin: bytes = b"") -> tuple[Resources, ...]:
    """Read what `ptxas -v` wrote, and from the cubin what it does not tell.

    Args:
        log: Its messages.
        cubin: What it made; empty leaves constant memory at 0.

    Returns:
        One per kernel, by name.
    """
    constants = dict(_constants(cubin))
    everywhere = constants.get("", 0)
    found = {}
    for name, text in _kernels(log):
        if used := _USED.search(text):
            spills, shared = _SPILLS.search(text), _SHARED.search(text)
            found[name] = Resources(
                kernel=name,
                registers=int(used["registers"]),
                shared_bytes=int(shared[1]) if shared else 0,
                stack_bytes=int(spills["stack"]) if spills else 0,
                spill_stores=int(spills["stores"]) if spills else 0,
                spill_loads=int(spills["loads"]) if spills else 0,
                constant_bytes=everywhere + constants.get(name, 0),
            )
    return tuple(found[name] for name in sorted(found))


def _kernels(log: str) -> Iterator[tuple[str, str]]:
    """Each kernel with the part of the report that is about it."""
    entries = list(_ENTRY.finditer(log))
    ends = [*(entry.start() for entry in entries), len(log)][1:]
    for entry, end in zip(entries, ends, strict=True):
        yield entry["name"], log[entry.end() : end]


def _constants(cubin: bytes) -> Iterator[tuple[str, int]]:
    """Bytes of the banks of literals (2) and of variables (3), by kernel; empty name: of all."""
    for name, size in section_sizes(cubin):
        bank, _, kernel = name.removeprefix(".nv.constant").partition(".")
        if name.startswith(".nv.constant") and bank in {"2", "3"}:
            yield kernel, size
