"""Pieces of pages: what becomes of foreign text, plots, sources and tables."""

import base64
import hashlib
import re

import pytest

from evokernel.report.canvas import BEST, canvas
from evokernel.report.html import rendered, said
from evokernel.report.html.code import Changes, highlighted
from evokernel.report.html.figure import Mark, inline
from evokernel.report.html.table import Cell, row, table

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[2J"


def test_foreign_text_is_shown_as_text():
    page = rendered("base.html", title=HOSTILE, subtitle="")
    assert "<img" not in page
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;\\u202e\\x1b[2J" in page


def test_names_in_a_sentence_are_code_and_nothing_else_is_markup():
    text = said(f"**not** `a <b>` {HOSTILE} `open")
    assert text.startswith("<strong>not</strong> <code>a &lt;b&gt;</code> &lt;/script&gt;&lt;img")
    assert text.endswith("`open")


def test_policy_allows_our_own_style_and_script_alone():
    page = rendered("base.html", title="t", subtitle="")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src &#39;none&#39;" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy


def test_plot_follows_the_page_and_names_its_marks():
    figure, axes = canvas(3, 2)
    axes.plot([1, 2], [1, 2], "o", color=BEST, markerfacecolor="white", gid="a1")
    axes.set_title("speed <b>")
    text = inline(figure, "p", 'what "is" seen', {"a1": Mark("fast & right", "#attempt-1")})
    assert "style" not in text
    assert "http" not in text
    assert 'class="fill-paper stroke-best"' in text
    assert '<a href="#attempt-1"><g data-tip=""><title>fast &amp; right</title>' in text
    assert "speed &lt;b&gt;" in text
    assert 'aria-label="what &quot;is&quot; seen"' in text
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert {*re.findall(r'href="#(p-\w+)"', text), *re.findall(r"url\(#(p-\w+)\)", text)} == set(
        ids
    )


def test_source_is_highlighted_in_both_of_its_languages():
    kernel = "// a kernel\nint main(const float* x) { return 0; }\n" * 4
    text = highlighted(f'import torch\nS = """{kernel}"""\n{HOSTILE!r}\n', "a1")
    assert '<span class="c1">// a kernel\n</span>' in text or "// a kernel</span>" in text
    assert '<span class="k">const</span>' in text
    assert '<span class="kn">import</span>' in text
    assert "<img" not in text
    assert text.count('<span id="a1-') == 11


@pytest.mark.parametrize("source", ["", HOSTILE, 'x = """ unfinished {' + "y" * 200, "\x00\r\n"])
def test_any_text_can_be_highlighted(source):
    assert "<img" not in highlighted(source, "n")


def test_changes_are_marked():
    changes = Changes("a\nb\nc\n", f"a\n{HOSTILE}\nc\n")
    assert (changes.added, changes.removed) == (1, 1)
    text = changes.markup()
    assert '<span class="del">-b\n</span>' in text
    assert '<span class="add">+&lt;/script&gt;' in text
    assert Changes("a\n", "a\n").markup() == ""


def test_table_refuses_rows_of_another_length():
    with pytest.raises(ValueError, match="2 cells in a table of 1 columns"):
        table(["a"], [row("x", Cell(text="y"))])
