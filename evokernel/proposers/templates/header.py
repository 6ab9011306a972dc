"""Owns what a generated C++ file begins with: includes, and the parts of `vectormath.h` it uses."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from evokernel.frozen import Frozen

_SECTION = re.compile(
    r"^// (scalar )?section (\w+)(?:: needs ([\w ,]+))?(?:: for (\w+))?\n", re.MULTILINE
)
_INCLUDES = "".join(
    f"#include <{name}>\n" for name in ("cstdint", "limits", "type_traits", "utility")
)
_MATHEMATICS = "#include <cmath>\n"
_FROM_MATHEMATICS = re.compile(r"\bstd::(?!numeric_limits\b|vector\b)")
"""What needs the library's mathematics, whose header takes longer to compile than most kernels."""
_CONSTANTS = {"INFINITY": "__builtin_inff()", "NAN": '__builtin_nanf("")'}
"""The only macros of that header that kernels use."""
_INTRINSICS = "#if defined(__AVX512F__)\n#include <immintrin.h>\n#endif\n"


class Section(Frozen):
    """A part of `vectormath.h` that is copied as a whole."""

    name: str
    """Unique together with `scalar`."""
    scalar: bool
    """Functions of plain numbers, called as `scalar::name`."""
    needs: tuple[str, ...]
    """Names of the sections that must stand before it."""
    defines: frozenset[str]
    """Functions and types that it brings, and words that call for it besides."""
    text: str


@cache
def sections() -> tuple[Section, ...]:
    """The sections of `vectormath.h`, in order; text before the first one is for its readers."""
    text = (files("evokernel.proposers.templates") / "vectormath.h").read_text(encoding="utf-8")
    heads = list(_SECTION.finditer(text))
    ends = [h.start() for h in heads[1:]] + [len(text)]
    return tuple(
        Section(
            name=head[2],
            scalar=bool(head[1]),
            needs=tuple(re.findall(r"\w+", head[3] or "")),
            defines=_defined(text[head.end() : end]) | {head[4] or head[2]},
            text=text[head.end() : end].strip("\n"),
        )
        for head, end in zip(heads, ends, strict=True)
    )


def _defined(text: str) -> frozenset[str]:
    functions = re.findall(r"^inline \w+ (\w+)\(", text, re.MULTILINE)
    types = re.findall(r"^(?:struct|constexpr int)\s+(\w+)", text, re.MULTILINE)
    return frozenset([*functions, *types])


def preamble(source: str) -> str:
    """Includes and the sections that `source` uses, inside an anonymous namespace.

    Args:
        source: The C++ text that will follow.
    """
    numbers = set(re.findall(r"scalar::(\w+)", source))
    vectors = set(re.findall(r"(?<!::)\b[A-Za-z_]\w*", source))
    plain = [s for s in sections() if s.scalar and s.defines & numbers]
    wide = _with_needs({s.name for s in sections() if not s.scalar and s.defines & vectors})
    parts = [s.text for s in wide]
    if plain:
        body = "\n\n".join(s.text for s in plain)
        parts.append(f"namespace scalar {{\n\n{body}\n\n}}  // namespace scalar")
    text = _INCLUDES + (_INTRINSICS if wide else "")
    if _FROM_MATHEMATICS.search(source) or any("std::" in s.text for s in plain):
        text = _MATHEMATICS + text
    else:
        text += "".join(
            f"#ifndef {name}\n#define {name} {value}\n#endif\n"
            for name, value in _CONSTANTS.items()
            if re.search(rf"\b{name}\b", source)
        )
    if parts:
        text += "\nnamespace {\n\n" + "\n\n".join(parts) + "\n\n}  // namespace\n"
    return text


def _with_needs(names: set[str]) -> list[Section]:
    """The named sections and what they need, in order."""
    found: list[Section] = []
    for section in reversed([s for s in sections() if not s.scalar]):
        if section.name in names:
            names.update(section.needs)
            found.append(section)
    return found[::-1]
