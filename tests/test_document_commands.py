"""Every command of the documents can be read, and those of tutorial and guides are carried out.

They judge with the fake evaluator: what is asked here is whether a reader gets through. The same
commands with real kernels are in the tests that their comments name.
"""

from typing import Any

import pytest

from evokernel.cli import COMMANDS, fetch
from tests.document_commands import PAGES, ROOT, WALKS, Line, lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_can_be_read(page):
    """Names, options, numbers and choices are those that the program takes."""
    for line in lines(page):
        words = line.words()
        assert words[0] in COMMANDS, line
        if "my_policy:" not in line.text:  # is imported, which the walk does
            read(fetch(words[0]), f"evokernel {words[0]}", words[1:], line)


def read(command: Any, name: str, words: list[str], line: Line) -> None:
    """Parse the words as the command would, and stop before anything is done."""
    context = command.context_class(command, info_name=name)
    try:
        command.parse_args(context, list(words))
    except Exception as error:
        raise AssertionError(f"{line.page}: {line.text}: {error}") from error
    inner = getattr(command, "commands", {})
    if inner:
        assert words, line
        read(inner[words[0]], f"{name} {words[0]}", words[1:], line)


def test_tutorial_leads_from_a_first_run_to_a_memory_that_is_understood(reader):
    for name in ("first-run", "own-task", "own-model", "report", "memory"):
        reader.through(ROOT / "docs" / "tutorial" / f"{name}.md")


ELSEWHERE = {"local-model": "test_llm.py"}
"""Guides that are walked where what they need is imported anyway."""
GUIDES = sorted((ROOT / "docs" / "howto").glob("*.md"))


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_guides_lead_where_they_say(reader, page):
    if page.stem in ELSEWHERE:
        assert f"{page.stem}.md" in (ROOT / "tests" / ELSEWHERE[page.stem]).read_text()
    else:
        reader.through(page)


def test_every_walk_is_walked():
    folders = {page.parent.name for page in PAGES if page.parent != ROOT} - {"docs", "reference"}
    assert folders == {*WALKS}
