"""The memory from the command line: list, show, search, stats, rebuild, refit."""

import json
import subprocess
import sys

import pytest
import typer

from evokernel.attempt import Stage
from evokernel.cli.memory import app
from evokernel.config import home
from evokernel.errors import UsageError
from evokernel.evaluation import Interval, Promotion
from evokernel.memory.embedding import StructuralEmbedder
from evokernel.memory.store import Memory
from tests.memory_samples import GOOD, config, edit, graph, keep, lesson, query


@pytest.fixture
def said(capsys, monkeypatch):
    """Return a function that runs a command line and gives its exit code and its output.

    A fault comes as the exit code and the message that the whole command line makes of it.
    """
    monkeypatch.setenv("COLUMNS", "200")
    command = typer.main.get_command(app)

    def run(*arguments: object) -> tuple[int, str]:
        words = [str(argument) for argument in arguments]
        try:
            command.main(words, prog_name="evokernel memory", standalone_mode=False)
        except UsageError as error:
            return error.exit_code, str(error)
        return 0, capsys.readouterr().out

    return run


@pytest.fixture
def place(tmp_path):
    """A memory with two lessons, of which one was shown twice, and a promoted edit."""
    with Memory.open(config(tmp_path)) as memory:
        keep(memory, lesson("tiling"), lesson("unrolling", family="scan", task="cumsum"))
        keep(memory, edit("vectorized-loads", parents=("sha-tiling",)))
        ratio = Interval(value=1.3, low=1.2, high=1.4)
        claim = {"claim": "edit", "holds": True, "ratio": ratio, "processes": 3}
        promotion = Promotion(candidate="sha-vectorized-loads", parent=None, **claim)
        memory.promote("old", [promotion], "old/9")
        hidden = (lesson("unrolling", family="scan", task="cumsum").id, EDIT)
        for step in ("1", "2"):
            memory.recall(query(step, exclude=hidden))
        memory.reinforce("new/1", Stage.REFINE, GOOD)
    return tmp_path


LESSON = lesson("tiling").id
EDIT = edit("vectorized-loads", parents=("sha-tiling",)).id


class TestList:
    def test_newest_first(self, said, place):
        code, out = said("list", "--memory", place)
        assert code == 0
        assert out.index(EDIT) < out.index(LESSON)
        assert "about vectorized-loads" in out
        assert "1.30x parent" in out
        assert f"3 of 3 experiences in `{place}`" in out

    @pytest.mark.parametrize(
        ("words", "count"),
        [
            (("--kind", "edit"), 1),
            (("--family", "scan"), 1),
            (("--status", "active"), 3),
            (("--status", "tombstone"), 0),
            (("--backend", "cpp", "--limit", "2"), 2),
            (("--backend", "cuda"), 0),
        ],
    )
    def test_filters(self, said, place, words, count):
        _, out = said("list", "--json", "--memory", place, *words)
        assert len(json.loads(out)) == count

    def test_json_has_every_field(self, said, place):
        _, out = said("list", "--json", "--kind", "edit", "--memory", place)
        (entry,) = json.loads(out)
        assert entry["id"] == EDIT
        assert entry["status"] == "active"
        assert entry["measurement"]["speedup"]["value"] == 1.3
        assert entry["payload"] == {"source": "source of vectorized-loads"}
        assert "features" not in entry

    @pytest.mark.parametrize(
        ("words", "hint"),
        [(("--kind", "edits"), "`edit`"), (("--status", "activ"), "`active`")],
    )
    def test_a_misspelt_value_suggests_the_nearest(self, said, place, words, hint):
        code, message = said("list", *words, "--memory", place)
        assert code == 2
        assert f"Did you mean {hint}" in message

    def test_no_memory_there(self, said, tmp_path):
        code, message = said("list", "--memory", tmp_path / "typo")
        assert code == 2
        assert "no memory at" in message
        assert not (tmp_path / "typo").exists()

    def test_the_default_is_the_users_own(self, said):
        with Memory.open(config(home() / "memory")) as memory:
            keep(memory, lesson("own"))
        assert "about own" in said("list")[1]


class TestShow:
    def test_everything_about_one(self, said, place):
        code, out = said("show", LESSON, "--memory", place)
        assert code == 0
        for text in (
            "about tiling",
            "a lesson from a failure claims no speed",
            "value for refine",
            "+0.120 ± 0.20 after 1 visit",
            "none: not shown yet",
            "new/1",
            "+0.600",
            "1 other experience",
            "source of tiling",
        ):
            assert text in out

    def test_json(self, said, place):
        _, out = said("show", LESSON, "--json", "--memory", place)
        found = json.loads(out)
        value = {
            "q": pytest.approx(0.12),
            "visits": 1,
            "evidence": None,
            "spread": pytest.approx(0.2),
        }
        assert found["values"]["refine"] == value
        assert [s["reward"] for s in found["showings"]] == [0.6, None]
        assert [change["status"] for change in found["history"]] == ["active"]
        assert [d["id"] for d in found["descendants"]] == [EDIT]
        assert len(found["features"]) == 256

    def test_an_unknown_id(self, said, place):
        code, message = said("show", LESSON[:-1], "--memory", place)
        assert code == 2
        assert f"the nearest is `{LESSON}`" in message


class TestSearch:
    def test_words(self, said, place):
        _, out = said("search", "vectorized loads", "--memory", place)
        assert out.splitlines()[1].split()[0] == EDIT
        _, out = said("search", "cumsum", "--json", "--memory", place)
        (hit,) = json.loads(out)
        assert (hit["family"], hit["score"]) == ("scan", 2.0)

    def test_nothing(self, said, place):
        assert "nothing found" in said("search", "convolution", "--memory", place)[1]

    def test_a_task(self, said, tmp_path):
        with Memory.open(config(tmp_path)) as memory:
            memory.add([lesson("A", family="scan")], "old/1", graph("cumsum", family="scan"))
            memory.add([lesson("B")], "old/2", graph("softmax"))
        _, out = said("search", "--task", "softmax", "--json", "--memory", tmp_path)
        first, second = json.loads(out)
        assert first["techniques"] == ["B"]
        assert first["score"] > second["score"]

    @pytest.mark.parametrize("words", [(), ("softmax", "--task", "softmax")])
    def test_words_or_a_task(self, said, place, words):
        code, message = said("search", *words, "--memory", place)
        assert code == 2
        assert "either words or `--task TASK`" in message

    def test_an_unknown_task(self, said, place):
        code, message = said("search", "--task", "sofmax", "--memory", place)
        assert code == 2
        assert "`softmax`" in message


class TestStats:
    def test_for_people(self, said, place):
        code, out = said("stats", "--memory", place)
        assert code == 0
        for text in ("structural/1/256", "2 by evokernel", "lesson", "up to event 0, 3 items"):
            assert text in out

    def test_json(self, said, place):
        found = json.loads(said("stats", "--json", "--memory", place)[1])
        assert found["experiences"] == 3
        assert found["policies"] == {"evokernel": 2}
        refine = found["stages"][1]
        assert (refine["retrievals"], refine["rewards"], refine["values"]) == (2, 1, 1)
        assert found["index"]["behind"] == 3


class TestUpkeep:
    def test_rebuild(self, said, place):
        code, out = said("rebuild", "--memory", place)
        assert code == 0
        assert out == "3 experiences embedded, 3 in the index\n"
        assert json.loads(said("stats", "--json", "--memory", place)[1])["index"]["behind"] == 0

    def test_rebuild_after_another_embedder(self, said, place):
        with Memory.open(config(place), embedder=StructuralEmbedder(128), to_repair=True) as memory:
            memory.rebuild()
        code, message = said("list", "--memory", place)
        assert code == 2
        assert "`structural/1/128`" in message
        assert "`structural/1/256`" in message
        assert said("rebuild", "--memory", place)[0] == 0
        assert said("list", "--memory", place)[0] == 0

    def test_refit_finds_nothing_to_change(self, said, place):
        code, out = said("refit", "--memory", place)
        assert (code, out) == (0, "1 value from 1 reward, 0 differ from those in use before\n")

    def test_refit_tells_what_changes(self, said, tmp_path):
        with Memory.open(config(tmp_path, alpha=0.5)) as memory:
            keep(memory, lesson("tiling"))
            memory.recall(query("1"))
            memory.reinforce("new/1", Stage.REFINE, GOOD)
        _, out = said("refit", "--json", "--memory", tmp_path)
        (change,) = json.loads(out)["changes"]
        assert (change["before"]["q"], change["after"]["q"]) == pytest.approx((0.3, 0.12))
        assert "0 differ" in said("refit", "--memory", tmp_path)[1]


def test_the_whole_command_line(place, tmp_path):
    """Exit codes and messages as the shell sees them."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "evokernel", "memory", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    found = run("list", "--json", "--memory", str(place))
    assert (found.returncode, found.stderr) == (0, "")
    assert len(json.loads(found.stdout)) == 3
    (place / "journal.sqlite").write_bytes(b"not a database")
    broken = run("stats", "--memory", str(place))
    assert (broken.returncode, broken.stdout) == (2, "")
    assert "is damaged" in broken.stderr
    assert "Traceback" not in broken.stderr
