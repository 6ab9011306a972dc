"""Owns pages: one self-contained HTML file from a template of this folder.

A page is a template that extends `base.html`, filled in by `write_page`:

    write_page(file, "memory.html", title="What memory knows", subtitle=..., table=Table(...))

    {% extends "base.html" %}
    {% import "parts.html" as parts with context %}
    {% block content %}
      {% call parts.section("techniques", "Techniques") %}
        {{ parts.table(table) }}
        {{ parts.plot(figure, "What the marks mean.") }}
      {% endcall %}
    {% endblock %}

`base.html` gives the page its head, the list of its sections (`parts.section` enters itself), the
style sheet (light and dark, phone width, print) and the script. `parts.html` has the pieces: facts,
figures in tiles, tables (`evokernel.report.html.table`), plots (`figure.inline`), folded texts.

What the script adds is made by the script, so that a page without it has no dead controls: tables
are sorted by their heads, filtered by a word or by the values of a column with `is_choice`, and
marks of plots show their tooltips at once. `data-items` on an element and `data-item` on its parts
give any other list the same search box. `said` sets names in backquotes as code.

Nothing is loaded from elsewhere: the page's own policy forbids it, inline styles and handlers too,
and allows exactly our style sheet and our script, by their hashes. Every text is escaped, and what
would turn the direction of writing or hide itself is spelt out (`evokernel.wording.plain`); only
what `figure`, `code` and the templates make is markup.
"""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evokernel import __version__
from evokernel.errors import RecordError
from evokernel.wording import plain

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FOLDER = Path(__file__).parent


class Contents:
    """The sections of a page, in the order in which they enter themselves."""

    def __init__(self) -> None:
        self.sections: list[tuple[str, str]] = []

    def add(self, name: str, title: str) -> str:
        """Enter one; empty, so that a template can say it where text would stand."""
        self.sections.append((name, title))
        return ""


def write_page(file: Path, template: str, **given: Any) -> None:
    """Write a page, whole or not at all.

    Args:
        file: Where to; its folder is made.
        template: Name of a template of this folder.
        given: What it shows; `title` and `subtitle` are the base's.

    Raises:
        RecordError: It cannot be written.
    """
    text = rendered(template, **given)
    half = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        half.write_text(text, encoding="utf-8")
        half.replace(file)
    except OSError as error:
        raise RecordError(
            f"the report cannot be written to `{file}`: {error.strerror or error}; name another "
            "place with `-o`"
        ) from error


def rendered(template: str, **given: Any) -> str:
    """A page as text."""
    from markupsafe import Markup

    style, script = (_own(name) for name in ("style.css", "page.js"))
    return (
        _templates()
        .get_template(template)
        .render(
            contents=Contents(),
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
            version=__version__,
            **given,
        )
    )


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters["said"] = said
    return made


def said(text: str) -> "Markup":
    """A sentence with its `names` in the type of code, and **weight** where it has it."""
    from markupsafe import Markup, escape

    shown = re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(plain(text))))
    return Markup(re.sub(r"\*\*([^*\n]+)\*\*", r"<strong>\1</strong>", shown))


def _shown(value: object) -> object:
    """Foreign text without what deceives the eye; markup of ours as it is."""
    is_foreign = isinstance(value, str) and not hasattr(value, "__html__")
    return plain(str(value)) if is_foreign else value


@cache
def _own(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A content security policy that allows our two texts and nothing else."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
