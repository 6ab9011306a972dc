"""Owns `Skills`: the texts by which a model that has tools works, and what a user adds to them.

A skill is a `.md` file. Those in a user's folder come beside ours; one of the same name takes the
place of ours. They are read in the order of their names. `NAME.BACKEND.md` is for one language
only.
"""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import get_args

from evokernel.attempt import Backend
from evokernel.config import AgentConfig
from evokernel.errors import ConfigError
from evokernel.frozen import Frozen

SHOWN_LETTERS = 16_000
"""Letters of skills that are shown at once; the others are listed, for `read_skill` (ours)."""
MOST_LETTERS = 60_000
"""Of one file (ours)."""


class Skill(Frozen):
    """One text."""

    name: str
    """Its file's, without `.md` and language."""
    text: str

    @property
    def title(self) -> str:
        """Its first line that is not empty."""
        lines = (line.strip("# ").strip() for line in self.text.splitlines())
        return next((line for line in lines if line), self.name)


class Skills(Frozen):
    """The skills for one language, in order."""

    shown: tuple[Skill, ...]
    """Those that fit into the prompt."""
    listed: tuple[Skill, ...] = ()
    """Those that a model reads when it wants to."""

    @classmethod
    def load(cls, config: AgentConfig, backend: Backend) -> "Skills":
        """Ours, and those of the user's folder.

        Raises:
            ConfigError: no such folder, no skill in it, or a file that is too long or no text.
        """
        found = {**_ours(), **(_theirs(config.skills) if config.skills else {})}
        shown: list[Skill] = []
        listed: list[Skill] = []
        for file, text in sorted(found.items()):
            name, _, language = file.removesuffix(".md").partition(".")
            if language and language != backend:
                continue
            skill = Skill(name=name, text=text)
            room = SHOWN_LETTERS - sum(len(known.text) for known in shown)
            (shown if len(text) <= room else listed).append(skill)
        return cls(shown=tuple(shown), listed=tuple(listed))

    def written(self, config: AgentConfig) -> str:
        """What stands in the prompt."""
        limits = {"calls": str(config.calls), "replies": str(config.replies)}
        texts = [Template(skill.text).safe_substitute(limits).strip() for skill in self.shown]
        if self.listed:
            names = "\n".join(f"- `{skill.name}`: {skill.title}" for skill in self.listed)
            texts.append(f"# More\n\n`read_skill(name)` gives the text of one:\n\n{names}")
        return "\n\n".join(texts) + "\n"


def _ours() -> dict[str, str]:
    folder = files("evokernel.skills")
    entries = (entry for entry in folder.iterdir() if entry.name.endswith(".md"))
    return {entry.name: entry.read_text(encoding="utf-8") for entry in entries}


def _theirs(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise ConfigError(f"`--skills {folder}`: there is no such folder")
    found = dict(_read(path) for path in sorted(folder.glob("*.md")))
    if not found:
        raise ConfigError(
            f"`--skills {folder}` holds no skill; expected files such as `5-mine.md`, or "
            "`5-mine.cpp.md` for one language (docs/agentic.md)"
        )
    if unknown := next(_strangers(found), None):
        raise ConfigError(
            f"`{folder / unknown}` names no language; expected `NAME.md` or one of "
            f"{', '.join(f'`NAME.{backend}.md`' for backend in get_args(Backend))}"
        )
    return found


def _read(path: Path) -> tuple[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"`{path}` cannot be read as text in UTF-8: {error}") from error
    if len(text) > MOST_LETTERS:
        raise ConfigError(
            f"`{path}` has {len(text):,} letters; expected at most {MOST_LETTERS:,}: divide it"
        )
    return path.name, text


def _strangers(found: dict[str, str]) -> Iterator[str]:
    known = {"", *get_args(Backend)}
    return (file for file in found if file.removesuffix(".md").partition(".")[2] not in known)
