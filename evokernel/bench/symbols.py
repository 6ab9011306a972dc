"""Owns the names of functions in large libraries, looked up by their place in the file."""

import mmap
import re
from collections.abc import Iterable
from pathlib import Path

from evokernel.compilers import elf
from evokernel.compilers.elf import BadLibrary, Segment

_ENTRY = 24
_LONGEST = 4096
_PART = re.compile(r"(\d+)")


def names_of(library: Path, offsets: Iterable[int]) -> dict[int, str]:
    """The symbol of the function at each offset in a library's file; unknown ones are left out."""
    try:
        start, size, strings, segments = elf.symbol_table(library)
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            addresses = {offset: _address(offset, segments) for offset in offsets}
            wanted = {offset: at for offset, at in addresses.items() if at is not None}
            found = _find(data, start, size, wanted)
            return {offset: _text(data, strings + at) for offset, at in found.items()}
    except (BadLibrary, OSError, ValueError):
        return {}


def in_words(symbol: str) -> str:
    """The names in a C++ symbol, parted by `::`; other symbols as they are.

    Arguments of templates and functions are read as further names: enough to recognise it by.
    """
    if not symbol.startswith("_Z"):
        return symbol
    names: list[str] = []
    at = 2
    while found := _PART.search(symbol, at):
        length = int(found[1])
        at = found.end() + length
        if length and at <= len(symbol):
            names.append(symbol[found.end() : at].replace("_GLOBAL__N_1", "(anonymous)"))
        else:
            at = found.end()
    return "::".join(names)[:_LONGEST]


def _find(data: mmap.mmap, start: int, size: int, wanted: dict[int, int]) -> dict[int, int]:
    """For each offset whose address lies in a function, the place of its name."""
    import torch

    # A copy, so that the file can be closed again.
    words = torch.frombuffer(bytearray(data[start : start + size]), dtype=torch.int64)
    table = words.reshape(-1, _ENTRY // 8)
    table = table[table[:, 2] > 0]
    if not len(table):
        return {}
    table = table[table[:, 1].argsort()]
    addresses = torch.tensor(list(wanted.values()), dtype=torch.int64)
    rows = torch.searchsorted(table[:, 1].contiguous(), addresses, right=True) - 1
    found: dict[int, int] = {}
    for offset, address, row in zip(wanted, addresses.tolist(), rows.tolist(), strict=True):
        name, first, length = table[row].tolist()
        if row >= 0 and first <= address < first + length:
            found[offset] = name & 0xFFFFFFFF
    return found


def _address(offset: int, segments: tuple[Segment, ...]) -> int | None:
    for segment in segments:
        if 0 <= offset - segment.offset < segment.size:
            return offset - segment.offset + segment.address
    return None


def _text(data: mmap.mmap, at: int) -> str:
    return data[at : data.find(b"\0", at)].decode(errors="replace")
