"""The command lines of the documents: where they stand, and a reader who carries them out."""

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from evokernel.bench.checkup import keep
from evokernel.bench.examination import Examination
from evokernel.cli import main
from evokernel.config import home
from evokernel.task import Task

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
WALKS = ("tutorial", "howto")
"""Folders whose pages are carried out, command by command."""

NOWHERE = {
    "it would change what is installed",
    "needs Ollama",
    "needs a GPU",
    "plain shell",
    "programs of others",
    "the tests run in an environment that is installed already",
}
"""Why a command of a walk may be run by no test of this kind; it can still be read."""

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_INDENTED = re.compile(r"^ {4}(?:\$ )?(evokernel .*)$", re.MULTILINE)


class Line(NamedTuple):
    """One command line of a page."""

    page: str
    text: str
    why_not: str
    """Why it is not carried out; empty where it is."""

    def words(self) -> list[str]:
        """The words of its first command, without the program's name."""
        text = re.sub(r"\$\([^)]*\)", "SAID", re.sub(r"^\$ ", "", self.text))
        words = shlex.split(text, comments=True)
        ends = [i for i, word in enumerate(words) if word in {"|", "&&", ">", "2>&1", "..."}]
        return words[1 : min(ends, default=len(words))]


def lines(page: Path) -> list[Line]:
    """Every line of a page that calls `evokernel`."""
    return list(_of(page))


def walk(page: Path) -> list[Line]:
    """What a reader of a page types, in order: all lines of its shell blocks."""
    return list(_blocks(page, {"bash"}))


def expanded(words: list[str], folder: Path) -> list[str]:
    """Words as a shell gives them: patterns as the files that fit, `basename` as it answers."""
    return [found for word in words for found in _expanded(word, folder)]


def split(text: str) -> list[str]:
    """Words of a line, what is in `$(...)` within one of them."""
    kept = re.sub(r"\$\([^)]*\)", lambda inner: inner[0].replace(" ", "\0"), text)
    return [word.replace("\0", " ") for word in shlex.split(kept, comments=True)]


def _of(page: Path) -> Iterator[Line]:
    called = (
        line
        for line in _blocks(page, {"", "bash"})
        if re.match(r"(\$ )?evokernel [a-z]", line.text)
    )
    yield from called
    name = str(page.relative_to(ROOT))
    yield from (Line(name, text, "") for text in _INDENTED.findall(page.read_text()))


def _blocks(page: Path, languages: set[str]) -> Iterator[Line]:
    for block in _BLOCK.finditer(page.read_text()):
        if block["language"] in languages:
            joined = block["text"].replace("\\\n", " ")
            for text in filter(None, map(str.strip, joined.splitlines())):
                yield Line(str(page.relative_to(ROOT)), text, block["why"] or "")


def _expanded(word: str, folder: Path) -> list[str]:
    if inner := re.search(r"\$\(basename ([^)]+)\)", word):
        (path,) = _expanded(inner[1], folder)[:1]
        return [word.replace(inner[0], Path(path).name)]
    if "*" not in word:
        return [word]
    return sorted(str(found.relative_to(folder)) for found in folder.glob(word)) or [word]


class Walk:
    """A reader's way through pages, from the folder in which it begins.

    Tasks pass their check unasked: it runs them in processes of their own, for seconds.
    """

    def __init__(self, *tasks: str) -> None:
        self.url = ""
        """Address that stands in for the one of a local server."""
        for name in tasks:
            self._believe(name)

    def through(self, page: Path) -> None:
        """Write the files that the page names, and carry out its commands."""
        for name, text in files(page):
            Path(name).write_text(text)
            if "class Model(" in text:
                self._believe(name)
        for line in walk(page):
            if line.why_not:
                excused(line)
            else:
                self.step(line)

    def step(self, line: Line) -> None:
        """Carry out one line; commands beside EvoKernel's are those of a shell."""
        for text in re.split(r" && ", line.text):
            words = expanded(split(text), Path.cwd())
            if words[0] == "mkdir":
                Path(words[-1]).mkdir(exist_ok=True)
            elif words[0] == "cd":
                os.chdir(words[1])
            elif words[0] == "export":
                assert words[1:] == ["PYTHONPATH=."], line
                sys.path.insert(0, str(Path.cwd()))
            else:
                assert words[0] == "evokernel", line
                self.call(words[1:], line)

    def call(self, words: list[str], line: Line) -> None:
        """Call the program; a reader expects that it does what the page says."""
        words = [word.replace("http://localhost:8000/v1", self.url) for word in words]
        said, told = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
            code = main(words)
        assert code == 0, (line, said.getvalue(), told.getvalue())

    def _believe(self, name: str) -> None:
        task = Task.load(name)
        keep(Examination(task=task.name, sha=task.sha, checks=()), home() / "cache")


def excused(line: Line) -> None:
    """Ask that a line which is not carried out is of a known kind, or that a test does it."""
    elsewhere = re.fullmatch(r".+; tests/(\w+\.py) runs it", line.why_not)
    if elsewhere is None:
        assert line.why_not in NOWHERE, line
    else:
        command = line.words()[0] if line.text.startswith("evokernel") else ""
        assert command in (ROOT / "tests" / elsewhere[1]).read_text(), line


def files(page: Path) -> list[tuple[str, str]]:
    """The files that a page asks to be written: "write this as `NAME`:" and the block below."""
    pattern = r"write this as\s+`([\w.]+)`:\n\n```python\n(.*?)^```$"
    return re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)
