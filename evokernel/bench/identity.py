"""Owns the identity of the harness's own functions inside a worker: told before, read after.

Before it sees any candidate a worker tells where the functions of its timed path, their code, their
constants, their closures and the names that they look up lie in its memory, and what pointers stand
there. After the timing the parent reads those places from outside. What an edit leaves in place,
e.g. the counts of references and the adapting byte code, is not compared.

Offsets are found by looking for the pointers, not taken from a version of the interpreter.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from evokernel.bench.hold import Hold, Unreachable

Anchor = tuple[str, int, int]
"""A name for messages, an address, and the word that stands there."""

_WORD = struct.Struct("@Q")
_PACKAGE = "evokernel."
_METHOD_BYTES = 16  # PyMethodDef: name, function
_MOST = 4096
_FIXED = (FunctionType, BuiltinFunctionType, type, ModuleType)
"""Kinds of values that a name stands for as long as the process lives."""


def anchors(roots: Iterable[Any]) -> list[Anchor]:
    """The anchors of functions, methods and what they reach within this package.

    Args:
        roots: Functions, classes and builtin functions.
    """
    walk = _Walk()
    for root in roots:
        walk.visit(root)
    return walk.found[:_MOST]


def still(told: Iterable[Anchor]) -> bool:
    """Whether all that was told of this process, or of the one that it was forked from, holds."""
    return all(_word(address) == value for _, address, value in told)


def edited(hold: Hold, told: Iterable[Anchor]) -> list[str]:
    """Names of what is no longer as it was told, in order, each once.

    Raises:
        Unreachable: Memory of other processes cannot be reached here.
    """
    word = ctypes.create_string_buffer(_WORD.size)
    names: dict[str, None] = {}
    for name, address, value in told:
        try:
            hold.read(address, ctypes.addressof(word), _WORD.size)
        except Unreachable as error:
            if not error.is_permitted:
                raise
            names[name] = None  # the memory is gone
            continue
        if _WORD.unpack(word.raw)[0] != value:
            names[name] = None
    return list(names)


class _Walk:
    """Follows functions to their code, and on to what they look up."""

    def __init__(self) -> None:
        self.found: list[Anchor] = []
        self._seen: set[int] = set()
        self._mapped = _writable()

    def visit(self, thing: Any) -> None:
        """Add the anchors of one thing, and of what it reaches."""
        if id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        if isinstance(thing, property | staticmethod | classmethod):
            for part in gc.get_referents(thing):
                self.visit(part)
        elif isinstance(thing, FunctionType):
            self._function(thing)
        elif isinstance(thing, BuiltinFunctionType):
            self._builtin(thing)
        elif isinstance(thing, type) and thing.__module__.startswith(_PACKAGE):
            self._class(thing)

    def _function(self, function: FunctionType) -> None:
        name = f"{function.__module__}.{function.__qualname__}"
        parts = (function.__code__, function.__globals__, function.__closure__)
        self._pointers(name, function, (*parts, function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            self._pointers(name, cell, (cell.cell_contents,))
            self.visit(cell.cell_contents)
        self._code(name, function.__code__, function.__globals__)

    def _code(self, name: str, code: CodeType, scope: dict[str, Any]) -> None:
        self._pointers(name, code, (code.co_consts, code.co_names))
        for used in code.co_names:
            if used in scope and isinstance(scope[used], _FIXED):
                self._entry(f"{name} ({used})", scope, scope[used])
                if _is_ours(scope[used]):
                    self.visit(scope[used])
        for const in code.co_consts:
            if isinstance(const, CodeType):
                self._code(name, const, scope)

    def _class(self, made: type) -> None:
        (space,) = (d for d in gc.get_referents(made) if isinstance(d, dict))
        for attribute, value in list(space.items()):
            if isinstance(value, FunctionType | property | staticmethod | classmethod):
                self._entry(f"{made.__module__}.{made.__qualname__}.{attribute}", space, value)
                self.visit(value)

    def _builtin(self, function: BuiltinFunctionType) -> None:
        """The definition that it points at, and the machine code that this points at."""
        name = f"{function.__module__}.{function.__name__}"
        start = id(function) + object.__basicsize__
        definition = _word(start)
        self.found.append((name, start, definition))
        for offset in range(0, _METHOD_BYTES, _WORD.size):
            self.found.append((name, definition + offset, _word(definition + offset)))

    def _pointers(self, name: str, holder: Any, targets: Iterable[Any]) -> None:
        """Where an object points at its parts."""
        size = type(holder).__basicsize__
        for target in targets:
            if target is not None:
                self._find(name, id(holder), size, id(target))

    def _entry(self, name: str, space: dict[str, Any], value: Any) -> None:
        """Where a dictionary holds a value: in the table that the dictionary points at."""
        for offset in range(object.__basicsize__, dict.__basicsize__, _WORD.size):
            table = _word(id(space) + offset)
            size = sys.getsizeof(space) - dict.__basicsize__
            if not any(low <= table and table + size <= high for low, high in self._mapped):
                continue
            if self._find(name, table, size, id(value)):
                self.found.append((name, id(space) + offset, table))
                return

    def _find(self, name: str, start: int, size: int, word: int) -> bool:
        for address in range(start, start + size - _WORD.size + 1, _WORD.size):
            if _word(address) == word:
                self.found.append((name, address, word))
                return True
        return False


def _is_ours(thing: Any) -> bool:
    if isinstance(thing, BuiltinFunctionType):
        return True
    return isinstance(thing, FunctionType) and thing.__module__.startswith(_PACKAGE)


def _writable() -> list[tuple[int, int]]:
    """Ranges of addresses that can be written, and so read."""
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    ranges = [area.split("-") for area, rights, *_ in lines if rights.startswith("rw")]
    return [(int(low, 16), int(high, 16)) for low, high in ranges]


def _word(address: int) -> int:
    return int(ctypes.c_uint64.from_address(address).value)
