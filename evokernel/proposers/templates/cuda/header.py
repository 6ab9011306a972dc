"""Owns what a generated CUDA file begins with: the parts of `device.cuh` that it uses."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_SECTION = re.compile(r"^// section (\w+): ([\w ,]+)\n", re.MULTILINE)
_USED = re.compile(r"gpu::(\w+)")
_TYPES = {"HALF": "half", "BFLOAT": "nv_bfloat16"}
_CONSTANTS = {"INFINITY": "__int_as_float(0x7f800000)", "NAN": "__int_as_float(0x7fffffff)"}


@cache
def sections() -> dict[str, str]:
    """The sections of `device.cuh` by the name that they define, in order."""
    folder = files("evokernel.proposers.templates.cuda")
    text = (folder / "device.cuh").read_text(encoding="utf-8")
    heads = list(_SECTION.finditer(text))
    ends = [h.start() for h in heads[1:]] + [len(text)]
    return {
        head[2]: text[head.end() : end].strip("\n") for head, end in zip(heads, ends, strict=True)
    }


def preamble(source: str) -> str:
    """Definitions that a CUDA text needs, in `namespace gpu`; types of half precision before it."""
    known, types = sections(), [name for name in _TYPES.values() if _has(source, name)]
    names = _needed(set(_USED.findall(source)) & known.keys())
    parts = [known[name] for name in known if name in names and name not in types]
    text = "".join(
        f"#ifndef {name}\n#define {name} {value}\n#endif\n"
        for name, value in _CONSTANTS.items()
        if _has(source, name)
    )
    for macro, name in _TYPES.items():
        parts = [_chosen(part, macro, name in types) for part in parts]
        text += f"{known[name]}\n" if name in types else ""
    if parts:
        body = "\n\n".join(parts)
        text += f"\nnamespace gpu {{\n\n{body}\n\n}}  // namespace gpu\n"
    return text.lstrip("\n")


def _needed(names: set[str]) -> set[str]:
    """Names of sections together with those that they name."""
    found: set[str] = set()
    todo = sorted(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [used for used in _USED.findall(sections()[name]) if used in sections()]
    return found


def _chosen(text: str, macro: str, is_set: bool) -> str:
    """The text with parts for a type of half precision only where it occurs."""
    pattern = rf"^#ifdef {macro}\n(.*?)^#endif\n?"
    kept = r"\1" if is_set else ""
    return re.sub(pattern, kept, f"{text}\n", flags=re.MULTILINE | re.DOTALL).strip("\n")


def _has(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None
