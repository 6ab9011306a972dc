"""The page of a memory: what it says, what it leaves out, and that foreign text stays text."""

import json

import pytest

from evokernel.attempt import Stage
from evokernel.cli import main
from evokernel.memory.store import Memory
from evokernel.report.knowledge import Scope, knowledge
from tests.known_samples import CHILD, EDIT, FAILED, NOW, ROOT, SINCE, known_memory
from tests.memory_samples import BAD, GOOD, config, keep, lesson, query
from tests.page_samples import Seen
from tests.report_samples import HOSTILE


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return known_memory(tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("page") / "page.html"


@pytest.fixture(scope="module")
def seen(place, file):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: NOW)
        words = ["memory", "report", "--memory", str(place), "--to", str(file), "--since", SINCE]
        assert main(words) == 0
    return Seen(file.read_text())


@pytest.fixture
def said(place, tmp_path, capsys, monkeypatch):
    """Return a function that writes a page and gives its exit code, the page and what was said."""
    monkeypatch.setattr("time.time", lambda: NOW)

    def say(*options, memory=place, to=tmp_path / "page.html"):
        code = main(["memory", "report", "--memory", str(memory), "--to", str(to), *options])
        told = capsys.readouterr()
        page = to.read_text() if to.is_file() else ""
        return code, Seen(page), told.out + told.err

    return say


@pytest.mark.parametrize(
    "text",
    [
        "experiences from 2 runs, 3 of them active",
        "What changed since 2033-06-01",
        "1 new experience, 4 changes of status, 1 reward, 1 value that moved, 2 changes by",
        "tiling 2 100% [34%, 100%]",
        "vectorized-loads 1 100% [21%, 100%] 1.30x 1",
        "In the catalogue, and not tried yet: ",
        "All 7: what is pinned, then in turn the most valuable and the newest.",
        "kernel, active, pinned",
        "active: held in 3 fresh processes",
        "± 0.26 after 2 rewards",
        "Shown 2 times in 1 run; mean of 2 rewards that count -0.200.",
        "2033-05-01 12:00 UTC",
        "1 +0.600 2033-05-01 12:00 new refine softmax evokernel",
        "2033-07-01 12:00 tombstone it reads past the end",
        "2033-07-01 12:00 suspect",
        "2033-07-01 12:00 retired too much of it",
        "x = 1 # the kernel",
        "-slow +fast",
        "bound by memory",
        "read on 2033-08-01 00:00 UTC",
        "by the rule of the policy evokernel.",
    ],
)
def test_page_says(seen, text):
    assert text in seen.text


def test_every_link_leads_to_a_place_of_the_page(seen):
    ids = seen.values("id")
    assert len(ids) == len(set(ids))
    assert {f"experience-{n}" for n in range(1, 8)} <= set(ids)
    links = set(seen.values("href"))
    assert all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= set(ids)


def test_a_source_stands_in_the_page_once(seen):
    assert seen.text.count("x = 2") == 1
    assert f"Its source stands at {EDIT.id}" in seen.text or f"at {CHILD.id}" in seen.text


def test_foreign_text_is_text(seen, file):
    tags = {tag for tag, _ in seen.elements}
    assert not tags & {"img", "link", "iframe", "object", "base", "form"}
    assert not [name for _, attrs in seen.elements for name in attrs if name.startswith("on")]
    assert not seen.values("src") + seen.values("style")
    assert "http" not in file.read_text().replace("http-equiv", "")
    for what in ("summary", "technique", "family", "task", "alien", "mind the tail "):
        assert f"{what}{HOSTILE}" in seen.text


def test_nothing_is_told_of_changes_unless_asked(said):
    code, seen, _ = said()
    assert code == 0
    assert "What changed" not in seen.text


def test_nothing_has_changed(said):
    _, seen, out = said("--since", "2033-07-20")
    assert "What changed since 2033-07-20 Nothing." in seen.text
    assert "since 2033-07-20: nothing" in out


def test_what_is_left_out_is_said(said):
    _, seen, out = said("--limit", "2")
    assert "2 of 7: what is pinned" in seen.text
    assert "5 are left out here, and counted in everything above" in seen.text
    assert "(7 experiences, 2 of them shown)" in out
    assert "vectorized-loads 1 100%" in seen.text


def test_experiences_can_be_narrowed_down(said):
    _, seen, _ = said("--status", "retired")
    assert "All 1 of status retired" in seen.text
    assert f"id {FAILED.id}" in seen.text
    assert f"id {ROOT.id}" not in seen.text


def test_json_says_what_was_written(said, tmp_path):
    _, _, out = said("--json", "--since", SINCE, "--limit", "2")
    told = json.loads(out)
    changes = told.pop("changes")
    assert told == {
        "page": str(tmp_path / "page.html"),
        "experiences": 7,
        "shown": 2,
        "techniques": 4,
        "since": "2033-06-01T00:00:00+00:00",
    }
    assert changes.startswith("1 new experience")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--since", "yesterday"], "`--since` cannot be `yesterday`; expected a date such as"),
        (["--since", "2033-13-01"], "`--since` cannot be `2033-13-01`"),
        (["--since", "2034-01-01"], "expected a day up to today, 2033-08-01 in UTC"),
        (["--family", "softmx"], "Did you mean `softmax`?"),
        (["--kind", "kernal"], "Did you mean `kernel`?"),
        (["--policy", "hybird"], "`hybrid`"),
    ],
)
def test_a_wrong_word_is_told(said, options, message):
    code, seen, out = said(*options)
    assert code == 2
    assert message in " ".join(out.split())
    assert not seen.elements


def test_no_memory_is_no_page(said, tmp_path):
    code, seen, out = said(memory=tmp_path / "nowhere")
    assert code == 2
    assert "nowhere" in out
    assert not seen.elements


def test_a_page_that_cannot_be_written_is_told(said, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, out = said(to=tmp_path / "file" / "page.html")
    assert code == 2
    assert "the report cannot be written to" in out


def test_page_of_an_empty_memory_says_so(said, tmp_path):
    Memory.open(config(tmp_path / "empty")).close()
    code, seen, _ = said("--since", SINCE, memory=tmp_path / "empty")
    assert code == 0
    assert "There is none yet." in seen.text
    assert "Nothing." in seen.text


def test_page_lies_in_the_memory_unless_a_place_is_named(tmp_path, capsys):
    Memory.open(config(tmp_path)).close()
    assert main(["memory", "report", "--memory", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").exists()
    assert main(["memory", "report", "--memory", str(tmp_path), "-o", str(tmp_path / "sub")]) == 0
    assert (tmp_path / "sub" / "report.html").exists()


def test_pinned_then_in_turn_the_most_valuable_and_the_newest():
    names = "abcdef"
    made = {name: lesson(name) for name in names}
    with Memory.open(config(shown_refine=1)) as memory:
        keep(memory, *made.values())
        for step, (name, reward) in enumerate([("a", GOOD), ("b", BAD)]):
            others = [made[other].id for other in names if other != name]
            memory.recall(query(str(step), exclude=tuple(others)))
            memory.reinforce(f"new/{step}", Stage.REFINE, reward)
        memory.pin(made["c"].id)
        told = knowledge(memory.account(), Scope(limit=5))
    shown = [one.experience.origin.candidate for one in told.known]
    assert shown == ["sha-c", "sha-a", "sha-f", "sha-b", "sha-e"]
    assert told.left_out == 1


def test_longer_texts_are_cut_and_it_is_said(said, tmp_path):
    with Memory.open(config(tmp_path / "m")) as memory:
        keep(memory, lesson("a", payload={"error": "e" * 70_000 + "THE END"}))
    _, seen, _ = said(memory=tmp_path / "m")
    assert "Error (the first 60,000 of 70,007 letters)" in seen.text
    assert "THE END" not in seen.text
