"""Owns the names of generated C++: readable, unique, never a function's or a keyword."""

from __future__ import annotations

import re

from evokernel.proposers.templates.operators import OPERATORS

_HEADER = """V M D LANES Floats Ints Bytes Lanes Power load load_first load_mask load_mask_first
load_back load_inside load_apart load_wide load_places store store_first store_back store_wide
store_places stream select select_places first last fma fast_max fast_min to_float narrow widen
reversed above below keep_above keep_below place_above place_below best_place same_place places_from
within running_product all any sum prod max min"""
_LOOPS = "r c d k n rows cols lines begin end thread threads chunk"
_LANGUAGE = """
alignas alignof and asm auto bool break case catch char class const constexpr continue default
delete do double else enum explicit extern false float for friend goto if inline int long main
mutable namespace new not nullptr operator or private protected public register return short
signed sizeof static std struct switch template this throw true try typedef typename union
unsigned using virtual void volatile while xor index time signal y0 y1 yn j0 j1 jn gamma
half nv_bfloat16 gpu packs results rint
"""
_PYTHON = """
False None True as assert async await class def del elif except finally from global import in is
lambda nonlocal pass raise with yield libdevice range tl torch triton larger smaller times
"""

RESERVED = frozenset({*OPERATORS, *f"{_HEADER} {_LOOPS} {_LANGUAGE} {_PYTHON}".split()})
"""What a value, source or output is never called: functions of the header, locals of the loops,
words of the language. A loop may also use any name that ends in `_`."""


def identifier(name: str) -> str:
    """A file's stem as a name in C++ and Python; those of KernelBench begin with a number."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"task_{plain}" if plain[:1].isdigit() else plain


class Names:
    """Hands out C identifiers, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set(RESERVED)

    def take(self, wish: str) -> str:
        """The wish itself if it is free, else the same with a number behind it."""
        stem = re.sub(r"\W+|_+", "_", wish).strip("_") or "value"
        stem = re.sub(r"(\D)_\d+$", r"\1", stem)  # The reference's own numbers would mix with ours.
        if stem[0].isdigit():
            stem = f"v{stem}"
        name, number = stem, 0
        while name in self._taken:
            number += 1
            name = f"{stem}{number}"
        self._taken.add(name)
        return name
