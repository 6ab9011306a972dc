"""Owns the reading of built libraries: what they offer, what they import, where its code lies.

Only what is needed of the format ELF (System V ABI, chapters 4 and 5), 64 bits, little endian.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from evokernel.frozen import Frozen

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD = 1
_SYMBOLS, _DYNAMIC_SYMBOLS = 2, 11
_FUNCTION, _RESOLVED = 2, 10
"""Kinds of functions; the second is chosen by a resolver when the library is loaded."""
MACHINES = {62: "x86_64", 183: "aarch64"}
"""Processors by their number in the header."""


class BadLibrary(Exception):
    """A file that is no library of the kind that is read here."""


class Code(Frozen):
    """One function that a library offers."""

    name: str
    """Name of its symbol."""
    offset: int
    """Where it begins in the file, bytes."""
    size: int
    """Bytes, as the symbol says."""
    is_resolver: bool = False
    """What lies there only answers which of several versions is taken (`target_clones`)."""


class Library(Frozen):
    """What a shared library says of itself."""

    machine: str
    """Processor it is for, as `platform.machine()` names it; its number where it is another."""
    functions: tuple[Code, ...]
    """Functions that others can find in it."""
    imports: tuple[str, ...]
    """Symbols that it takes from others, without their versions."""


class Segment(NamedTuple):
    """One loaded part of the file."""

    offset: int
    address: int
    size: int


def read(path: Path) -> Library:
    """Read a shared library.

    Raises:
        BadLibrary: It is not one, or is damaged.
    """
    try:
        return _read(_File(path.read_bytes()))
    except (OSError, struct.error, IndexError, ValueError) as error:
        raise BadLibrary(f"`{path.name}` cannot be read as a library: {error}") from error


def symbol_table(path: Path) -> tuple[int, int, int, tuple[Segment, ...]]:
    """Where the fullest table of symbols lies, for libraries too large to be read as a whole.

    Returns:
        Offset and bytes of the table (24 bytes an entry), offset of its strings, loaded parts.

    Raises:
        BadLibrary: It has none.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            fields = _HEADER.unpack(head)
            file.seek(fields[6])
            sections = list(_SECTION.iter_unpack(file.read(fields[11] * fields[12])))
            file.seek(fields[5])
            segments = _loaded(file.read(fields[9] * fields[10]))
    except (OSError, struct.error) as error:
        raise BadLibrary(f"`{path.name}` cannot be read as a library: {error}") from error
    for kind in (_SYMBOLS, _DYNAMIC_SYMBOLS):
        for section in sections:
            if section[1] == kind and section[6] < len(sections):
                return section[4], section[5], sections[section[6]][4], segments
    raise BadLibrary(f"`{path.name}` has no symbols")


def section_sizes(data: bytes) -> Iterator[tuple[str, int]]:
    """Names of the sections and their bytes; nothing where it is no 64-bit ELF file."""
    if data[:5] != b"\x7fELF\x02" or len(data) < _HEADER.size:
        return
    fields = _HEADER.unpack_from(data)
    table = data[fields[6] : fields[6] + fields[11] * fields[12]]
    sections = list(_SECTION.iter_unpack(table[: len(table) // _SECTION.size * _SECTION.size]))
    if fields[13] < len(sections):
        start = sections[fields[13]][4]
        for section in sections:
            end = data.find(b"\0", start + section[0])
            yield data[start + section[0] : end].decode(errors="replace"), section[5]


class _File:
    """The bytes, and the tables that say where everything lies."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        fields = _HEADER.unpack_from(data)
        if fields[0][:6] != b"\x7fELF\x02\x01":
            raise struct.error("not a 64-bit little-endian ELF file")
        self.machine = MACHINES.get(fields[2], str(fields[2]))
        self.segments = _loaded(data[fields[5] : fields[5] + fields[9] * fields[10]])
        table = data[fields[6] : fields[6] + fields[11] * fields[12]]
        self.sections = list(_SECTION.iter_unpack(table))

    def sections_of(self, kind: int) -> Iterator[tuple[bytes, bytes]]:
        """Contents of each section of a kind, and of the strings that belong to it."""
        for section in self.sections:
            if section[1] == kind:
                yield self._content(section), self._content(self.sections[section[6]])

    def _content(self, section: tuple[int, ...]) -> bytes:
        return self.data[section[4] : section[4] + section[5]]

    def offset(self, address: int) -> int | None:
        for segment in self.segments:
            if 0 <= address - segment.address < segment.size:
                return address - segment.address + segment.offset
        return None


def _loaded(table: bytes) -> tuple[Segment, ...]:
    parts = _SEGMENT.iter_unpack(table)
    return tuple(Segment(part[2], part[3], part[5]) for part in parts if part[0] == _LOAD)


def _read(file: _File) -> Library:
    functions: list[Code] = []
    imports: list[str] = []
    for table, strings in file.sections_of(_DYNAMIC_SYMBOLS):
        for name, info, _, section, address, size in _SYMBOL.iter_unpack(table):
            text = _text(strings, name)
            if not section:
                imports.append(text)
                continue
            kind, offset = info & 0xF, file.offset(address)
            if kind in (_FUNCTION, _RESOLVED) and offset is not None:
                found = Code(name=text, offset=offset, size=size, is_resolver=kind == _RESOLVED)
                functions.append(found)
    return Library(
        machine=file.machine,
        functions=tuple(functions),
        imports=tuple(sorted(filter(None, imports))),
    )


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()
