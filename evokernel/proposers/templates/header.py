"""Owns what a generated C++ file begins with: includes, and the parts of `vectormath.h` it uses."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from evokernel.frozen import Frozen

_SECTION = re.compile(r"^// section (\w+)(?:: needs ([\w ,]+))?\n", re.MULTILINE)
_INCLUDES = "#include <cmath>\n#include <cstdint>\n#include <cstring>\n#include <limits>\n"


class Section(Frozen):
    """A part of `vectormath.h` that is copied as a whole."""

    name: str
    needs: tuple[str, ...]
    """Names of the sections that must stand before it."""
    defines: frozenset[str]
    """Functions and types that it brings."""
    text: str


@cache
def sections() -> tuple[Section, ...]:
    """The sections of `vectormath.h`, in order; text before the first one is for its readers."""
    text = (files("evokernel.proposers.templates") / "vectormath.h").read_text(encoding="utf-8")
    heads = list(_SECTION.finditer(text))
    ends = [h.start() for h in heads[1:]] + [len(text)]
    return tuple(
        Section(
            name=head[1],
            needs=tuple(re.findall(r"\w+", head[2] or "")),
            defines=_defined(text[head.end() : end]),
            text=text[head.end() : end].strip("\n"),
        )
        for head, end in zip(heads, ends, strict=True)
    )


def _defined(text: str) -> frozenset[str]:
    functions = re.findall(r"^(?:inline|static inline)\s[\w\s*&]*?\b(\w+)\(", text, re.MULTILINE)
    types = re.findall(r"^(?:struct|constexpr int)\s+(\w+)", text, re.MULTILINE)
    return frozenset([*functions, *types])


def preamble(source: str) -> str:
    """Includes and the sections that `source` uses, inside an anonymous namespace.

    Args:
        source: The C++ text that will follow.
    """
    words = set(re.findall(r"(?<!std::)\b[A-Za-z_]\w*\b", source))
    wanted = {s.name for s in sections() if s.defines & words}
    for section in reversed(sections()):
        if section.name in wanted:
            wanted.update(section.needs)
    bodies = [s.text for s in sections() if s.name in wanted]
    if not bodies:
        return _INCLUDES
    vectors = "#if defined(__x86_64__)\n#include <immintrin.h>\n#endif\n"
    body = "\n\n".join(bodies)
    return f"{_INCLUDES}{vectors}\nnamespace {{\n\n{body}\n\n}}  // namespace\n"
