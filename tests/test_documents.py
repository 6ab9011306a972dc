"""The documents say what is there: the tree, links, commands with their options, and examples."""

import io
import re
import subprocess
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

import evokernel
import evokernel.memory
from evokernel.cli import COMMANDS, main

ROOT = Path(__file__).parent.parent
TREE = (ROOT / "docs" / "tree.md").read_text()
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def tracked(folder: str) -> list[Path]:
    """Files of a folder as they would be committed, links left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / line for line in listed.stdout.splitlines())
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def tree() -> list[str]:
    """The paths that `docs/tree.md` draws."""
    found: list[str] = []
    folders: list[str] = []
    for line in TREE.splitlines():
        if not (entry := re.match(r"( *)(\S+)", line)):
            continue
        depth, name = len(entry[1]) // 2, entry[2]
        folders = folders[:depth]
        if name.endswith("/"):
            folders.append(name)
        names = line.split() if folders[-1:] == ["tasks/"] and depth == 2 else [name]
        found += ["".join(folders) + name for name in names if not name.endswith("/")]
    return found


@pytest.mark.parametrize("folder", ["evokernel", "memory", "graphs"])
def test_tree_shows_every_file_of_the_package(folder):
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    shown = {path for path in tree() if path.startswith(f"{folder}/")}
    assert shown == {str(path.relative_to(ROOT)) for path in tracked(folder)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([\w./-]+\.\w+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


GROUPS = {"memory", "task", "serve", "env", "prompts"}


@cache
def help_of(*command: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        assert main([*command, "--help"]) == 0
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page):
    for line in re.findall(r"(?<=evokernel )[a-z][^\n`#|]*", page.read_text()):
        name, *rest = line.split()
        if name not in COMMANDS:
            assert not line.startswith(("run", "memory", "task")), f"evokernel {line}"
            continue
        is_group = name in GROUPS and rest and rest[0].isalpha()
        group = rest[:1] if is_group else []
        text = help_of(name, *group)
        for option in re.findall(r"--[a-z][a-z-]*", line):
            assert f" {option} " in text, f"evokernel {line}"


# The site asks for more (tests/test_site.py); these are what is forgotten most.


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_navigation_of_the_site_has_every_page(page):
    if page.is_relative_to(ROOT / "docs"):
        assert f" {page.relative_to(ROOT / 'docs')}\n" in (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("door", [evokernel, evokernel.memory], ids=lambda door: door.__name__)
def test_public_names_are_on_a_page_of_the_reference(door):
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    places = (home.partition(":") for home in door._HOMES.values())
    names = zip(door._HOMES, places, strict=True)
    paths = {f"{home}.{other or name}" for name, (home, _, other) in names}
    assert {path for path in paths if f"::: {path}\n" not in pages} == set()
