"""What people change by hand: edit, pin, unpin, forget, from the command line."""

import json
import sqlite3
import stat

import pytest

from evokernel.evaluation import Promotion
from evokernel.memory.database import FILE
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.store import Memory
from tests.memory_samples import command_line, config, edit, graph, keep, lesson, query, shows


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: command_line(capsys, *words, "--memory", tmp_path)


ROOT = lesson("root")
CHILD = lesson("child", run="next", context=(ROOT.id,))
GRANDCHILD = lesson("grandchild", run="next", parents=("sha-child",))


@pytest.fixture
def place(tmp_path):
    with Memory.open(config(tmp_path)) as memory:
        keep(memory, ROOT, CHILD, GRANDCHILD, lesson("other"))
    return tmp_path


class TestEdit:
    def test_a_new_version_beside_the_old_one(self, said, place):
        changes = ("--set", "note=rows below 4096 only", "--set", "summary=tiles by rows")
        code, out = said("edit", ROOT.id, *changes, "--because", "seen in practice")
        assert code == 0
        assert "changed summary, note" in out
        shown = json.loads(said("show", ROOT.id, "--json")[1])
        assert (shown["summary"], shown["note"]) == ("tiles by rows", "rows below 4096 only")
        assert shown["payload"] == ROOT.payload
        (revision,) = shown["revisions"]
        assert revision["reason"] == "seen in practice"
        with sqlite3.connect(place / FILE) as journal:
            bodies = [body for (body,) in journal.execute("SELECT body FROM experiences")]
        journal.close()
        assert any("about root" in body for body in bodies)
        assert "seen in practice" in said("show", ROOT.id)[1]

    def test_other_techniques_are_embedded_anew_under_the_same_id(self, said, place):
        like = {"techniques": ("vectorized-math",)}
        with Memory.open(config(place)) as memory:
            before = {i.id: i.similarity for i in memory.recall(query("1", **like)).pool}
        assert said("edit", ROOT.id, "--set", "techniques=vectorized-math")[0] == 0
        with Memory.open(config(place)) as memory:
            retrieval = memory.recall(query("2", **like))
            after = {item.id: item.similarity for item in retrieval.pool}
            assert after[ROOT.id] > before[ROOT.id]
            assert ROOT.id in retrieval.ids
            assert memory.get(ROOT.id).experience.id == ROOT.id
            memory.rebuild()
            again = {i.id: i.similarity for i in memory.recall(query("3", **like)).pool}
            assert again == pytest.approx(after)

    def test_another_process_sees_it(self, said, place):
        like = {"techniques": ("vectorized-math",)}
        with Memory.open(config(place)) as memory:
            before = {i.id: i.similarity for i in memory.recall(query("1", **like)).pool}
            said("edit", ROOT.id, "--set", "techniques=vectorized-math", "--set", "note=new")
            after = {i.id: i.similarity for i in memory.recall(query("2", **like)).pool}
            assert after[ROOT.id] > before[ROOT.id]
            assert memory.get(ROOT.id).experience.note == "new"

    def test_an_editor_opens_without_set(self, said, place, monkeypatch, tmp_path):
        editor = tmp_path / "editor.sh"
        editor.write_text('#!/bin/sh\nsed -i "s/about root/from the editor/" "$1"\n')
        editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("VISUAL", str(editor))
        assert said("edit", ROOT.id)[0] == 0
        assert json.loads(said("show", ROOT.id, "--json")[1])["summary"] == "from the editor"
        monkeypatch.setenv("VISUAL", "true")
        assert "stays as it is" in said("edit", ROOT.id)[1]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ("sumary=x", "Did you mean `summary`"),
            ("payload=x", "expected one of `summary`, `techniques`, `note`"),
            ("note", "expects `note=VALUE`"),
            ("techniques=vectorised-math", "Did you mean `vectorized-math`"),
        ],
    )
    def test_what_cannot_be_changed(self, said, place, change, message):
        code, told = said("edit", ROOT.id, "--set", change)
        assert code == 2
        assert message in told

    def test_an_unknown_id_suggests_the_nearest(self, said, place):
        code, told = said("edit", ROOT.id[:-1], "--set", "note=x")
        assert code == 2
        assert f"the nearest is `{ROOT.id}`" in told


class TestApprove:
    REMARK = lesson("remark", measurement=edit("x").measurement)

    def test_a_remark_is_shown_to_every_task_once_a_person_has_read_it(self, said, place):
        with Memory.open(config(place)) as memory:
            (id,) = keep(memory, self.REMARK)
            assert id not in shows(memory, "1", run="other")
        assert said("list", "--status", "quarantine")[1].count(id) == 1
        code, out = said("approve", id, "--because", "true for all rows")
        assert (code, out) == (0, f"`{id}` is active now\n")
        with Memory.open(config(place)) as memory:
            assert memory.get(id).reason == "true for all rows"
            others = (ROOT.id, CHILD.id, GRANDCHILD.id)
            assert id in shows(memory, "2", *others, run="other")

    def test_what_is_active_stays_so_with_its_reason(self, said, place):
        code, out = said("approve", ROOT.id)
        assert (code, out) == (0, f"`{ROOT.id}` is active as before: it was not in quarantine\n")
        (entry,) = json.loads(said("approve", ROOT.id, "--json")[1])
        assert entry["reason"] == "a lesson from a failure claims no speed"

    def test_claims_of_kernels_are_measured_instead(self, said, place):
        with Memory.open(config(place)) as memory:
            (id,) = keep(memory, edit("fast"))
        code, told = said("approve", id)
        assert code == 2
        assert "`evokernel memory admit TASK` judges kernels, edits and fixes" in told

    def test_what_was_withdrawn_stays_withdrawn(self, said, place):
        assert said("forget", ROOT.id, "--because", "wrong")[0] == 0
        code, told = said("approve", ROOT.id)
        assert code == 2
        assert f"`{ROOT.id}` is tombstone (wrong)" in told

    def test_an_unknown_id_suggests_the_nearest(self, said, place):
        code, told = said("approve", ROOT.id[:-1])
        assert code == 2
        assert f"the nearest is `{ROOT.id}`" in told


class TestPin:
    def test_it_is_in_every_pool_that_it_fits_into(self, said, tmp_path):
        far = lesson("far", family="scan", fingerprint="scan")
        with Memory.open(config(tmp_path, pool_factor=1)) as memory:
            memory.add([far], far.origin.step, graph("cumsum", family="scan"))
            keep(memory, *(lesson(f"near-{number}") for number in range(4)))
            assert far.id not in [item.id for item in memory.recall(query("1")).pool]
        code, out = said("pin", far.id, "--because", "the best trick we have")
        assert code == 0
        assert "in every pool that it fits into" in out
        with Memory.open(config(tmp_path, pool_factor=1)) as memory:
            pool = {item.id: item for item in memory.recall(query("2")).pool}
            assert pool[far.id].is_pinned
            assert len(pool) == 3
            hidden = memory.recall(query("3", exclude=(far.id,)))
            assert far.id not in [item.id for item in hidden.pool]
            other = memory.recall(query("4", backend="cuda"))
            assert not other.pool
        assert json.loads(said("unpin", far.id, "--json")[1])["is_pinned"] is False
        with Memory.open(config(tmp_path, pool_factor=1)) as memory:
            assert far.id not in [item.id for item in memory.recall(query("5")).pool]

    def test_a_second_look_does_not_withdraw_it(self, said, tmp_path):
        pinned, loose = edit("pinned"), edit("loose")
        with Memory.open(config(tmp_path)) as memory:
            keep(memory, pinned, loose)
            for one in (pinned, loose):
                memory.set_status(one.id, ExperienceStatus.ACTIVE, "for the test")
            memory.pin(pinned.id)
            refuted = [
                Promotion(claim="edit", candidate=f"sha-{n}", parent=None, holds=False, processes=3)
                for n in ("pinned", "loose")
            ]
            memory.promote("old", refuted, "old/p")
            assert memory.get(pinned.id).status is ExperienceStatus.ACTIVE
            assert memory.get(pinned.id).reason.startswith("pinned, so kept as it is")
            assert memory.get(loose.id).status is ExperienceStatus.SUSPECT
            assert pinned.id in shows(memory, "1")

    def test_quarantine_of_another_run_stays_hidden(self, tmp_path):
        with Memory.open(config(tmp_path)) as memory:
            keep(memory, edit("young"))
            memory.pin(edit("young").id)
            assert not memory.recall(query("1")).pool


class TestForget:
    def test_nothing_happens_without_yes(self, said, place):
        code, out = said("forget", ROOT.id)
        assert code == 0
        assert "with `--because TEXT`, 1 experience would be withdrawn" in out
        assert CHILD.id in out
        assert GRANDCHILD.id in out
        with Memory.open(config(place)) as memory:
            assert len(memory.list(status=ExperienceStatus.ACTIVE)) == 4

    def test_a_tombstone_with_its_reason(self, said, place):
        code, out = said("forget", ROOT.id, "--because", "wrong on odd sizes")
        assert code == 0
        assert "1 experience withdrawn; the journal keeps them" in out
        shown = json.loads(said("show", ROOT.id, "--json")[1])
        assert (shown["status"], shown["reason"]) == ("tombstone", "wrong on odd sizes")
        with Memory.open(config(place)) as memory:
            assert ROOT.id not in [item.id for item in memory.recall(query("1")).pool]
        assert f"`{ROOT.id}` is withdrawn already" in said("forget", ROOT.id)[1]

    def test_descendants_go_with_it_save_what_is_pinned(self, said, place):
        said("pin", GRANDCHILD.id)
        out = json.loads(said("forget", ROOT.id, "--descendants", "--yes", "--json")[1])
        assert out["is_done"] is True
        assert out["ids"] == [ROOT.id, CHILD.id]
        assert out["pinned"] == [GRANDCHILD.id]
        with Memory.open(config(place)) as memory:
            active = {e.experience.id for e in memory.list(status=ExperienceStatus.ACTIVE)}
            assert active == {GRANDCHILD.id, lesson("other").id}

    def test_everything_that_a_run_left(self, said, place):
        out = json.loads(said("forget", "--run", "next", "--yes", "--json")[1])
        assert set(out["ids"]) == {CHILD.id, GRANDCHILD.id}
        code, told = said("forget", "--run", "nex")
        assert code == 2
        assert "the nearest is `next`" in told

    def test_it_needs_to_know_what(self, said, place):
        code, told = said("forget")
        assert code == 2
        assert "expects ids of experiences, or `--run RUN`" in told
