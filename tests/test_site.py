"""The site of the documents: built strictly, with a reference that leaves nothing undescribed."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """Let the parts of the site's hook be imported as MkDocs lets them."""
    sys.path.append(str(ROOT / "scripts"))
    yield
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a broken link, a page outside of the navigation or a warning ends it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("NO_MKDOCS_2_WARNING", "1")
    folder = tmp_path_factory.mktemp("site")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    patch.undo()
    return folder


def test_every_page_is_there_and_fetches_nothing_from_elsewhere(site):
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (site / page).with_suffix(".html").exists()} == set()
    for page in site.rglob("*.html"):
        fetched = r"<(?:script|img|iframe)[^>]+src=[\"']?https?:|<link[^>]+href=[\"']?https?:"
        assert re.findall(fetched, page.read_text()) == [], page


def test_reference_shows_commands_settings_and_names(site):
    commands = (site / "reference/commands.html").read_text()
    assert 'id="prompts-show"' in commands
    assert "<code>--attempts N</code>" in commands
    settings = (site / "reference/settings.html").read_text()
    assert "<code>16</code>, <code>&gt;= 1</code>" in settings
    assert 'id="evokernel.optimize.optimize"' in (site / "reference/python.html").read_text()


def test_pages_from_outside_of_the_folder_keep_their_links(site):
    assert 'href="../tree.html"' in (site / "project/contributing.html").read_text()
    assert 'href="project/contributing.html"' in (site / "architecture.html").read_text()
    assert (site / "files/examples/mcp_client.py").exists()


PLANTED = '''"""A module."""


class Told:
    """Said."""

    shown: int
    """Said."""
    silent: int

    def mute(self):
        return 1


def bare():
    return 1
'''


def test_public_name_without_docstring_is_found(tmp_path):
    from site_names import undocumented
    from site_source import reader

    (tmp_path / "planted.py").write_text(PLANTED)
    names = {"planted.Told", "planted.bare"}
    found = undocumented(names, reader("planted", tmp_path))
    assert found == ["planted.Told.silent", "planted.Told.mute", "planted.bare"]


def test_name_or_command_on_no_page_ends_the_build():
    from mkdocs.exceptions import PluginError
    from site_names import check_names

    with pytest.raises(PluginError, match="evokernel.optimize.optimize") as refused:
        check_names(["<!-- commands: run -->"], find=str)
    assert "`evokernel memory` on no page" in str(refused.value)
    assert "`evokernel run` on no page" not in str(refused.value)
