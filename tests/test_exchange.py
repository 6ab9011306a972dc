"""What memories hand to each other: export, import, merge, hold-out and diff."""

import itertools
import json
import os
import stat

import pytest
import typer

from evokernel.attempt import Candidate, Stage
from evokernel.cli.memory import app
from evokernel.errors import StoreError, UsageError
from evokernel.evaluation import Interval, Promotion
from evokernel.memory.embedding import StructuralEmbedder
from evokernel.memory.exchange import Bank, leaks, merged, parse, read, without, write
from evokernel.memory.exchange_diff import difference
from evokernel.memory.exchange_kin import kin
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.store import Memory
from tests.memory_samples import BAD, GOOD, config, edit, graph, keep, lesson, query

ACTIVE, TOMBSTONE = ExperienceStatus.ACTIVE, ExperienceStatus.TOMBSTONE
SOFTMAX, CUMSUM = graph(), graph("cumsum", family="scan")


SHA = Candidate(source="source of loads", backend="cpp").sha


def claimed(run):
    """An edit that claims something of the very source that it holds."""
    made = edit("loads", run, parents=("sha-tiling",), fingerprint=SOFTMAX.fingerprint)
    return made.model_copy(update={"origin": made.origin.model_copy(update={"candidate": SHA})})


def filled(folder, run="old", reward=GOOD):
    """A memory with a shown and rewarded lesson, a promoted edit, and a task of another family."""
    with Memory.open(config(folder)) as memory:
        shown = lesson("tiling", run, fingerprint=SOFTMAX.fingerprint)
        keep(memory, shown)
        keep(memory, claimed(run))
        other = lesson("unrolling", run, family="scan", task="cumsum")
        other = other.model_copy(update={"fingerprint": CUMSUM.fingerprint})
        memory.add([other], other.origin.step, CUMSUM)
        ratio = Interval(value=1.3, low=1.2, high=1.4)
        claim = {"claim": "edit", "holds": True, "ratio": ratio, "processes": 3}
        promotion = Promotion(candidate=SHA, parent=None, **claim)
        memory.promote(run, [promotion], f"{run}/9")
        asked = query("1", run=f"{run}-later")
        memory.recall(asked)
        memory.reinforce(asked.step, Stage.REFINE, reward)
        return memory.bank(name=run)


@pytest.fixture
def bank(tmp_path):
    return filled(tmp_path / "first")


def opened(path):
    return Memory.open(config(path))


def test_a_bank_is_read_back_as_it_was_written(bank, tmp_path):
    write(bank, tmp_path / "bank.jsonl")
    again = read(tmp_path / "bank.jsonl")
    assert (again.held, again.events, again.graphs) == (bank.held, bank.events, bank.graphs)
    assert all(json.loads(line) for line in (tmp_path / "bank.jsonl").read_text().splitlines())


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([], "empty"),
        (['{"format": "other"}'], "no bank"),
        (['{"format": "evokernel-memory", "version": 99}'], "version 99"),
        (["nonsense"], "line 1"),
        (None, "line 3"),
    ],
)
def test_what_is_no_bank_is_refused_and_named(bank, lines, word):
    if lines is None:
        lines = [*itertools.islice(bank.lines(), 2), '{"held": {"experience": {}}}']
    with pytest.raises(StoreError, match=word):
        parse(lines, "x")


def test_an_import_waits_in_quarantine_and_brings_no_rewards(bank, tmp_path):
    with opened(tmp_path / "second") as memory:
        found = memory.take_over(bank)
        assert len(found.new) == len(bank.held) == 3
        assert found.rewards == 0
        assert {entry.status for entry in memory.list()} == {ExperienceStatus.QUARANTINE}
        assert "imported from old" in memory.list()[0].reason
        assert memory.recall(query("1")).chosen == ()


def test_a_claim_about_another_source_is_refused(bank, tmp_path):
    id = next(id for id in bank.held if id.startswith("edit"))
    forged = bank.held[id].experience.model_copy(update={"payload": {"source": "os.remove('x')"}})
    held = {**bank.held, id: bank.held[id].model_copy(update={"experience": forged})}
    with opened(tmp_path / "second") as memory:
        found = memory.take_over(Bank(bank.header, bank.graphs, held, bank.events))
        assert found.refused == (id,)
        assert len(memory.list()) == 2


def test_a_merge_brings_status_measurement_and_values(bank, tmp_path):
    with opened(tmp_path / "first") as memory:
        mine = {e.experience.id: e for e in memory.list()}
        values = {id: memory.value(id, Stage.REFINE) for id in mine}
    with opened(tmp_path / "second") as memory:
        found = memory.take_over(bank, is_trusted=True)
        assert found.rewards == 1
        theirs = {e.experience.id: e for e in memory.list()}
        assert {i: e.status for i, e in theirs.items()} == {i: e.status for i, e in mine.items()}
        measured = {i: e.experience.measurement for i, e in theirs.items()}
        assert measured == {i: e.experience.measurement for i, e in mine.items()}
        assert {id: memory.value(id, Stage.REFINE) for id in theirs} == values
        assert any(value.visits for value in values.values())
        assert memory.refit().changes == ()


def test_merging_twice_counts_once(bank, tmp_path):
    with opened(tmp_path / "second") as memory:
        memory.take_over(bank, is_trusted=True)
        before = memory.stats(), {e.experience.id: e.status for e in memory.list()}
        again = memory.take_over(bank, is_trusted=True)
        assert (again.new, again.changed, again.rewards) == ((), (), 0)
        assert again.known == 3
        after = memory.stats(), {e.experience.id: e.status for e in memory.list()}
    assert after == before


def test_the_order_of_merging_decides_nothing(bank, tmp_path):
    other = filled(tmp_path / "third", run="other", reward=BAD)
    found = []
    for order in ((bank, other), (other, bank)):
        with opened(tmp_path / f"into-{len(found)}") as memory:
            for each in order:
                memory.take_over(each, is_trusted=True)
            found.append(memory.bank(name="x"))
    assert difference(*found).is_none
    assert found[0].rewards == 2
    once, twice = (merged(banks, bank.header) for banks in ((bank, other), (other, bank, other)))
    assert difference(once, twice).is_none


def test_what_one_memory_withdrew_is_withdrawn_after_a_merge(bank, tmp_path):
    id = next(id for id in bank.held if id.startswith("edit"))
    with opened(tmp_path / "second") as memory:
        memory.take_over(bank, is_trusted=True)
    with opened(tmp_path / "first") as memory:
        memory.set_status(id, TOMBSTONE, "it was wrong")
        newer = memory.bank(name="old")
    with opened(tmp_path / "second") as memory:
        assert memory.take_over(newer, is_trusted=True).changed == (id,)
        assert memory.get(id).status is TOMBSTONE
        memory.take_over(bank, is_trusted=True)
        assert memory.get(id).status is TOMBSTONE


def test_held_out_tasks_leave_nothing(bank):
    kept = without(bank, {CUMSUM.fingerprint: "cumsum"})
    assert CUMSUM.fingerprint not in "\n".join(itertools.islice(kept.lines(), 1, None))
    assert kept.header.holdout == (CUMSUM.fingerprint,)
    assert leaks(kept, [CUMSUM.fingerprint]) == ()
    assert len(kept.held) == 2
    assert kept.rewards == 1
    nothing = without(bank, {SOFTMAX.fingerprint: "softmax", CUMSUM.fingerprint: "cumsum"})
    assert not nothing.held
    assert nothing.rewards == 0


def test_what_was_written_beside_a_held_out_one_is_named(bank):
    outside = next(h for h in bank.held.values() if h.experience.fingerprint != SOFTMAX.fingerprint)
    seen = next(id for id, h in bank.held.items() if h is not outside)
    origin = outside.experience.origin.model_copy(update={"context": (seen,)})
    held = {
        **bank.held,
        outside.experience.id: outside.model_copy(
            update={"experience": outside.experience.model_copy(update={"origin": origin})}
        ),
    }
    beside = Bank(bank.header, bank.graphs, held, bank.events)
    assert outside.experience.id in leaks(beside, [SOFTMAX.fingerprint])


def test_the_same_task_in_other_sizes_is_kin(bank):
    larger = {"softmax": graph(size=8192)}
    found = kin(bank, larger, StructuralEmbedder())
    assert SOFTMAX.fingerprint in found
    assert CUMSUM.fingerprint not in found


@pytest.fixture
def said(capsys):
    command = typer.main.get_command(app)

    def run(*arguments):
        words = [str(argument) for argument in arguments]
        try:
            code = command.main(words, prog_name="evokernel memory", standalone_mode=False)
        except UsageError as error:
            return error.exit_code, str(error)
        return code or 0, capsys.readouterr().out

    return run


def test_banks_pass_from_memory_to_memory(bank, tmp_path, said):
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "bank.jsonl"
    code, out = said("export", file, "--memory", first)
    assert (code, "3 experiences and 1 reward" in out) == (0, True)
    code, out = said("import", file, "--memory", second, "--json")
    assert (code, len(json.loads(out)["new"])) == (0, 3)
    code, out = said("merge", first, "--memory", second)
    assert code == 0
    assert "3 known already" in out
    code, out = said("diff", first, second)
    assert (code, "active in the first" in out) == (0, False)


def test_differences_are_told(bank, tmp_path, said):
    filled(tmp_path / "third", run="other")
    code, out = said("diff", tmp_path / "first", tmp_path / "third", "--json")
    told = json.loads(out)
    assert code == 1
    assert len(told["only_first"]) == len(told["only_second"]) == 3
    assert told["kinds_first"] == {"edit": 1, "lesson": 2}
    code, out = said("diff", tmp_path / "nowhere")
    assert (code, "is not there" in out) == (2, True)


def test_a_device_is_written_to_and_not_replaced(bank, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(bank, pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.read(reader, 65536)
    os.close(reader)


def test_a_bank_that_cannot_be_written_says_where(bank, tmp_path):
    with pytest.raises(StoreError, match=r"gone/bank\.jsonl` cannot be written: No such file"):
        write(bank, tmp_path / "gone" / "bank.jsonl")
