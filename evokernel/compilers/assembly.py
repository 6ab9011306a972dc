"""Owns what the compiler made of a kernel's loops, read from the built library's instructions.

The library itself is read, not the compiler's remarks: it says the same for every compiler, also
about registers that did not suffice, and an artefact from the cache need not be built again. Only
x86-64 is read; other processors have no report.
"""

import platform
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from evokernel.frozen import Frozen

_TIMEOUT_S = 20.0
_MOST_BYTES = 8 << 20  # a library so large is no kernel
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_LINE = re.compile(r"^ *([0-9a-f]+):\s+(lock\s+)?(\S+)\s*(.*)$")
_TARGET = re.compile(r"^(?:0x)?([0-9a-f]+) <([^>+]+)(?:\+0x[0-9a-f]+)?>")
_CALLED = re.compile(r"<([^>@+]+)")
_LOADED, _EXECUTABLE = 1, 1  # of a program header: its kind, and a bit of its rights
_WIDTHS = {"x": 128, "y": 256, "z": 512}
_STACK = re.compile(r"(?:^|,)-?0x[0-9a-f]+\(%rsp\)|(?:^|,)\(%rsp\)|-0x[0-9a-f]+\(%rbp\)")
"""A fixed place on the stack: where a value waits for a register. GCC and Clang address it from
`%rsp`, or below `%rbp` where the frame is aligned for vectors."""
_PACKED = re.compile(
    r"v?(?:add|sub|mul|div|sqrt|max|min|rcp\w*|rsqrt\w*|fn?m(?:add|sub)\w*|haddp|addsub|round|rndscale"
    r"|cmp\w*|cvt\w+|blendv?|and|andn|or|xor)p[sd]"
    r"|v?p(?:add|sub|mul\w*|max|min|cmp\w*|s[lr][la]|and|or|xor|madd\w*|blend\w*)[bwdq]\w*|vdpbf16ps"
)
_SCALAR = re.compile(
    r"v?(?:add|sub|mul|div|sqrt|max|min|fn?m(?:add|sub)\w*|u?comi|cmp\w*|round|cvt\w+)s[sd]"
)
_NO_ACCESS = ("lea", "nop", "prefetch", "call", "jmp", "endbr")


class Instruction(Frozen):
    """One instruction of a function."""

    address: int
    """Offset in the library."""
    name: str
    """Mnemonic in AT&T form, e.g. `vfmadd231ps`."""
    operands: str
    """As objdump writes them, comment included."""
    is_locked: bool
    """It has the prefix that makes it atomic."""

    @property
    def target(self) -> int | None:
        """Where a jump goes; None for what is no jump to a known place."""
        found = _TARGET.match(self.operands) if self.name.startswith("j") else None
        return int(found[1], 16) if found else None


class Loop(Frozen):
    """An innermost loop, in numbers."""

    function: str
    """The function that it stands in; OpenMP regions are functions of their own."""
    start: int
    """Offset of its first instruction in the library."""
    end: int
    """Offset of the jump back."""
    instructions: int
    vector: int
    """Arithmetic instructions on whole vectors."""
    scalar: int
    """Arithmetic instructions on one floating-point number."""
    vector_bits: int
    """Widest vector of its arithmetic; 0 without vector arithmetic."""
    accesses: int
    """Instructions that read or write memory, those of `spills` not included."""
    spills: int
    """Instructions that read or write a fixed place on the stack: registers did not suffice."""
    gathers: int
    """Reads of single elements into a vector."""
    atomics: int
    """Atomic instructions."""
    calls: tuple[str, ...]
    """Functions that it calls, sorted; `indirect` where the name is not known."""

    @property
    def arithmetic(self) -> int:
        """Arithmetic instructions, vector and scalar."""
        return self.vector + self.scalar

    def holds(self, address: int) -> bool:
        """Whether an address lies in it."""
        return self.start <= address <= self.end


def loops(library: Path) -> tuple[Loop, ...] | None:
    """The innermost loops of a library, in order; None where they cannot be read here."""
    tool = shutil.which("objdump") or shutil.which("llvm-objdump")
    if tool is None or platform.machine() not in {"x86_64", "AMD64"}:
        return None
    try:
        if library.stat().st_size > _MOST_BYTES:
            return None
        listing = subprocess.run(
            [tool, "--disassemble", "--no-show-raw-insn", "--section=.text", str(library)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return read(listing)


def text_shift(library: Path) -> int:
    """What to add to an offset in the file to get the address that its code is listed under.

    From the first executable segment of a 64-bit ELF file; 0 where it is something else.
    """
    data = library.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        return 0
    (table,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    for number in range(count):
        kind, rights, offset, address = struct.unpack_from("<IIQQ", data, table + number * size)
        if kind == _LOADED and rights & _EXECUTABLE:
            return int(address - offset)
    return 0


def read(listing: str) -> tuple[Loop, ...]:
    """The innermost loops in objdump's listing, in order."""
    found: list[Loop] = []
    function, body = "", list[Instruction]()
    for line in listing.splitlines():
        if named := _FUNCTION.match(line):
            found += _innermost(function, body)
            function, body = named[1], []
        elif met := _LINE.match(line):
            body.append(
                Instruction(
                    address=int(met[1], 16),
                    name=met[3],
                    operands=met[4].strip(),
                    is_locked=bool(met[2]),
                )
            )
    return (*found, *_innermost(function, body))


def _innermost(function: str, body: Sequence[Instruction]) -> list[Loop]:
    """Jumps back within a function make loops; those around another one are left out."""
    if not body:
        return []
    first = body[0].address
    spans = {
        (target, instruction.address)
        for instruction in body
        if (target := instruction.target) is not None and first <= target < instruction.address
    }
    inner = [
        span
        for span in sorted(spans)
        if not any(span != other and _contains(span, other) for other in spans)
    ]
    return [_loop(function, [i for i in body if start <= i.address <= end]) for start, end in inner]


def _contains(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _loop(function: str, body: Sequence[Instruction]) -> Loop:
    packed = [i for i in body if _PACKED.fullmatch(i.name)]
    spills = [i for i in body if _is_access(i) and _STACK.search(i.operands)]
    return Loop(
        function=function,
        start=body[0].address,
        end=body[-1].address,
        instructions=len(body),
        vector=len(packed),
        scalar=sum(bool(_SCALAR.fullmatch(i.name)) for i in body),
        vector_bits=max(map(_bits, packed), default=0),
        accesses=sum(map(_is_access, body)) - len(spills),
        spills=len(spills),
        gathers=sum("gather" in i.name for i in body),
        atomics=sum(i.is_locked or _is_exchange(i) for i in body),
        calls=tuple(sorted(set(_called(body)))),
    )


def _is_access(instruction: Instruction) -> bool:
    has_address = "(" in instruction.operands.partition("#")[0]
    return has_address and not instruction.name.startswith(_NO_ACCESS)


def _is_exchange(instruction: Instruction) -> bool:
    """An exchange with memory is atomic without a prefix."""
    return instruction.name.startswith("xchg") and _is_access(instruction)


def _bits(instruction: Instruction) -> int:
    return max(
        (width for letter, width in _WIDTHS.items() if f"%{letter}mm" in instruction.operands),
        default=0,
    )


def _called(body: Iterable[Instruction]) -> Iterable[str]:
    for instruction in body:
        if instruction.name.startswith("call"):
            named = _CALLED.search(instruction.operands)
            yield named[1] if named else "indirect"
