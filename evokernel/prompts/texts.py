"""Owns `Texts`: the `.md` files that prompts are made of, ours with a user's folder over them."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Self

from evokernel.errors import ConfigError
from evokernel.frozen import Frozen
from evokernel.task.constants import nearest

SECTIONS = frozenset(
    {
        *("task", "operators", "machine", "candidate", "second", "verdict", "advice", "log"),
        *("exemplars", "drafts", "children", "best", "experiences", "techniques"),
    }
)
"""Places for what differs from step to step."""


class File(Frozen):
    """What is known of one text."""

    about: str
    """What it is for, in a few words."""
    places: frozenset[str] = frozenset()
    """Names that may stand in it with a `$`."""
    needed: frozenset[str] = frozenset()
    """Those that a model cannot do without."""


def _step(about: str, *needed: str) -> File:
    return File(about=about, places=SECTIONS, needed=frozenset({"task", *needed}))


_SYSTEM = frozenset({"contract", "special", "precision", "language"})
FILES: Mapping[str, File] = {
    "system.md": File(
        about="what holds at every step: candidate, contract, judgement, reply",
        places=_SYSTEM,
        needed=frozenset({"contract", "language"}),
    ),
    "own_kernels_only.md": File(about="`$contract` where only own kernels may compute"),
    "library_allowed.md": File(about="`$contract` where PyTorch's operators may help"),
    "precision.md": File(about="`$precision`: a section for each precision of a task"),
    "special_values.md": File(about="`$special`: NaN and infinities, followed or ignored"),
    "cpp.md": File(about="`$language`: C++ through `jit.cpp_module`"),
    "cuda.md": File(about="`$language`: CUDA C++ through `jit.cuda_module`"),
    "triton.md": File(about="`$language`: Triton"),
    "draft.md": _step("the step that writes a first candidate"),
    "repair.md": _step("the step that repairs a failed one", "candidate"),
    "refine.md": _step("the step that makes a correct one faster", "candidate"),
    "recombine.md": _step("the step that joins two", "candidate", "second"),
    "advice.md": File(about="`$advice`: a section for each way to fail, and for slow and fast"),
}
"""Every text by name."""


class Texts(Frozen):
    """The texts that prompts are made of."""

    contents: dict[str, str]
    """Every file of `FILES` by name."""
    folder: Path | None = None
    """Where a user's own lie."""
    own: tuple[str, ...] = ()
    """Names of those that the user has replaced."""

    @classmethod
    def load(cls, folder: Path | None = None) -> Self:
        """Read our texts, and over them those of a folder, file by file.

        Raises:
            ConfigError: no such folder, a file that no prompt uses, a place that nothing is filled
                into, or a place missing that a model cannot do without. Names every fault.
        """
        ours = {name: _ours(name) for name in FILES}
        theirs = {} if folder is None else _theirs(folder)
        contents = ours | theirs
        if faults := [fault for name in theirs for fault in _faults(name, contents[name])]:
            listed = "; ".join(faults)
            raise ConfigError(f"the texts in `{folder}` cannot be used: {listed}")
        return cls(contents=contents, folder=folder, own=tuple(sorted(theirs)))

    @cached_property
    def digest(self) -> str:
        """First 12 hex digits of the SHA-256 of all texts: what a prompt was made of."""
        whole = "\n".join(f"{name}\n{text}" for name, text in sorted(self.contents.items()))
        return hashlib.sha256(whole.encode()).hexdigest()[:12]

    def plain(self, name: str) -> str:
        """A text in which nothing has to be filled in."""
        return Template(self.contents[name]).substitute().strip()

    def section(self, name: str, heading: str) -> str:
        """What stands below a heading `## ...` of a text; empty where there is none."""
        return _headed(self.contents[name]).get(heading, "")

    def filled(self, name: str, parts: Mapping[str, str]) -> str:
        """A text with its places filled; the line of a place with nothing to say is left out."""
        empty = {f"${place}" for place in FILES[name].places if not parts.get(place)}
        lines = self.contents[name].splitlines(keepends=True)
        text = "".join(line for line in lines if line.strip() not in empty)
        every = dict.fromkeys(FILES[name].places, "")
        return Template(text).substitute({**every, **parts}).strip()


def copy(folder: Path) -> tuple[Path, ...]:
    """Write our texts into a folder, to be changed there; files that exist are left alone.

    Returns:
        The files that were written.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [name for name in FILES if not (folder / name).exists()]
        for name in missing:
            (folder / name).write_text(_ours(name), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the texts cannot be written into `{folder}`: {error}") from error
    return tuple(folder / name for name in missing)


def _ours(name: str) -> str:
    return (files("evokernel.prompts") / name).read_text(encoding="utf-8")


def _theirs(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise ConfigError(
            f"`--prompts {folder}` is no folder; expected one with texts such as `draft.md`: "
            f"`evokernel prompts copy {folder}` makes it"
        )
    found = sorted(path for path in folder.glob("*.md") if path.name.lower() != "readme.md")
    if unknown := [path.name for path in found if path.name not in FILES]:
        known = ", ".join(f"`{name}`" for name in FILES)
        raise ConfigError(
            f"no prompt uses `{folder / unknown[0]}`; expected names among {known}."
            f"{nearest(unknown[0], tuple(FILES))}"
        )
    return {path.name: _read(path) for path in found}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"`{path}` cannot be read as text in UTF-8: {error}; correct it, or remove it to use "
            "ours"
        ) from error


def _faults(name: str, text: str) -> Iterator[str]:
    """What is wrong with a text."""
    if not text.strip():
        yield f"`{name}` is empty"
        return
    found: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        for match in Template.pattern.finditer(line):
            yield from _misplaced(f"`{name}` line {number}", match, FILES[name].places)
            found.add(match["named"] or match["braced"] or "")
    if missing := sorted(FILES[name].needed - found):
        yield f"`{name}` lacks {', '.join(f'`${place}`' for place in missing)}"
    if headings := _headings(name):
        for heading in sorted(set(_headed(text)) - headings):
            yield f"`{name}` has a section `{heading}`{_expected(headings, heading)}"


def _misplaced(where: str, match: re.Match[str], places: frozenset[str]) -> Iterator[str]:
    """What is wrong with one `$`."""
    place = match["named"] or match["braced"]
    if match["invalid"] is not None:
        yield f"{where} has a `$` that begins no place; write `$$` for a `$`"
    elif place and place not in places:
        yield f"{where}: nothing is filled in for `${place}`{_expected(places, place)}"


def _expected(known: Collection[str], given: str) -> str:
    if not known:
        return ", nor for anything else (write `$$` for a `$`)"
    listed = ", ".join(f"`{name}`" for name in sorted(known))
    hint = nearest(given, sorted(known)).strip()
    return f", expected among {listed}{f' ({hint})' if hint else ''}"


def _headings(name: str) -> frozenset[str]:
    """Headings that a text of several sections may have: those of ours."""
    is_divided = name in {"advice.md", "precision.md", "special_values.md"}
    return frozenset(_headed(_ours(name))) if is_divided else frozenset()


def _headed(text: str) -> dict[str, str]:
    parts = re.split(r"^## +(.+?) *$", text, flags=re.MULTILINE)
    return {
        head: Template(body).safe_substitute().strip()
        for head, body in zip(parts[1::2], parts[2::2], strict=True)
    }
