"""What may be retrieved: the bounded bank, duplicates, evidence from elsewhere, and priors."""

import json
import sqlite3

import pytest

from evokernel.attempt import Stage
from evokernel.evaluation import Interval
from evokernel.memory.bank import upper_bound
from evokernel.memory.database import FILE
from evokernel.memory.environment import Environment, differs, discount
from evokernel.memory.experience import ExperienceStatus, Measurement
from evokernel.memory.likeness import canonical, likeness, shape_of, sketch_of
from evokernel.memory.store import Memory
from evokernel.memory.values import Value
from tests.memory_samples import (
    BAD,
    GOOD,
    command_line,
    config,
    edit,
    experience,
    graph,
    keep,
    lesson,
    query,
    shows,
)

ACTIVE, RETIRED = ExperienceStatus.ACTIVE, ExperienceStatus.RETIRED
HERE = Environment(device="A", tools="harness 1, torch 2.13, compiler g++ 13", proposer="gpt")
KERNEL = '''
"""A kernel."""
import torch
CPP = """
// adds one
void f(float* x) { x[0] += 1; }
"""
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = cpp_module(CPP)  # built once
        return y.f(x)
'''


def statuses(memory: Memory) -> dict[str, ExperienceStatus]:
    return {entry.experience.id: entry.status for entry in memory.list()}


class TestLikeness:
    def test_names_layout_and_comments_do_not_matter(self):
        same = KERNEL.replace("        y =", "        kernel =").replace("y.f", "kernel.f")
        same = same.replace("# built once", "").replace("// adds one\n", "\n\n").replace("x)", "z)")
        same = same.replace("float* z)", "float* x)").replace('"""A kernel."""', '"""Another."""')
        assert shape_of(same) == shape_of(KERNEL)

    @pytest.mark.parametrize("change", [("+= 1", "+= 2"), ("y.f(x)", "y.g(x)"), ("torch", "t")])
    def test_what_it_does_matters(self, change):
        assert shape_of(KERNEL.replace(*change)) != shape_of(KERNEL)

    def test_what_is_no_python_is_compared_as_tokens(self):
        assert canonical("void f( )  { /* no */ }") == ("void", "f", "(", ")", "{", "}")
        assert shape_of("") == ""

    def test_likeness_follows_the_share_of_what_is_equal(self):
        import numpy as np

        lines = [f"a{n} = b{n} + {n}" for n in range(60)]
        whole, most, half = ("\n".join(lines[:n]) for n in (60, 57, 30))
        sketches = [np.frombuffer(sketch_of(text), dtype=np.uint32) for text in (whole, most, half)]
        assert likeness(sketches[0], sketches[0]) == 1
        assert likeness(sketches[0], sketches[1]) > 0.85
        assert 0.3 < likeness(sketches[0], sketches[2]) < 0.7
        assert likeness(sketches[0], sketches[0][:0]) == 0


class TestDuplicates:
    @pytest.mark.parametrize(
        ("other", "words"),
        [
            (KERNEL.replace("y", "q"), "the same code as"),
            (KERNEL + "LAST = 1\n", "almost the same code as"),
        ],
    )
    def test_they_take_one_slot(self, other, words):
        long = KERNEL + "\n".join(f"N{n} = f{n}({n})" for n in range(150))
        one = lesson("a", techniques=("t",), payload={"source": long})
        two = lesson("b", techniques=("t",), payload={"source": other + long[len(KERNEL) :]})
        with Memory.open(config()) as memory:
            keep(memory, one, two, lesson("c"))
            found = memory.recall(query("1"))
        assert len(found.chosen) == 2
        assert "c" in {e.techniques[0] for e in found.experiences}
        assert any(words in item.fate for item in found.pool)

    def test_other_techniques_make_another_experience(self):
        one, two = (lesson(name, payload={"source": KERNEL}) for name in "ab")
        with Memory.open(config()) as memory:
            keep(memory, one, two)
            assert len(shows(memory, "1")) == 2


class TestBank:
    def test_the_slots_of_a_task_are_bounded(self, tmp_path):
        with Memory.open(config(tmp_path, task_slots=4)) as memory:
            first, *rest = keep(memory, *(lesson(f"{n}") for n in range(7)))
            other = keep(memory, lesson("x", fingerprint="another task"))
        with Memory.open(config(tmp_path)) as memory:
            found = statuses(memory)
            active = [id for id in (first, *rest) if found[id] is ACTIVE]
            assert len(active) == 4
            assert {first, rest[-1]} <= set(active)
            assert found[other[0]] is ACTIVE
            assert len(memory.list()) == 8  # the journal keeps everything
            (gone,) = [id for id in rest[:1] if found[id] is RETIRED]
            assert "least promising" in memory.get(gone).reason
            assert memory.reinstate([gone], "wanted") == (gone,)
            assert memory.get(gone).status is ACTIVE

    def test_a_bank_that_is_too_large_loses_the_least_promising(self):
        with Memory.open(config(bank=3, alpha=0.5)) as memory:
            ids = keep(memory, *(lesson(f"{n}", fingerprint=f"{n}") for n in range(5)))
            for step, (id, reward) in enumerate([(ids[1], BAD), (ids[1], BAD), (ids[3], BAD)]):
                shows(memory, f"{step}", *(set(ids) - {id}))
                memory.reinforce(f"new/{step}", Stage.DRAFT, reward)
            leaving = {one.experience for one in memory.trim()}
            assert leaving == {ids[1], ids[3]}
            assert memory.trim() == ()

    def test_what_harms_even_by_its_upper_bound_leaves(self):
        with Memory.open(config(task_slots=99, policy="hybrid", probe=0, null=0)) as memory:
            good, bad = keep(memory, lesson("good"), lesson("bad"))
            for n in range(80):
                id = bad if n % 2 else good
                assert shows(memory, f"{n}", *{good, bad} - {id}, stage=Stage.DRAFT) == (id,)
                memory.reinforce(f"new/{n}", Stage.DRAFT, BAD if n % 2 else GOOD)
            (gone,) = memory.trim()
            assert gone.experience == bad
            assert gone.reason.startswith("harmful")

    def test_the_last_of_a_kind_and_what_is_pinned_stay(self):
        with Memory.open(config(bank=1)) as memory:
            ids = keep(memory, *(lesson(f"{n}", family=f"{n}") for n in range(3)))
            assert memory.trim() == ()
            more = keep(memory, lesson("a", family="0"), lesson("b", family="0"))
            memory.pin(more[0])
            leaving = {one.experience for one in memory.trim()}
        assert more[0] not in leaving
        assert len(leaving & {ids[0], more[1]}) == 1

    def test_the_same_code_on_the_same_task_is_kept_once(self):
        same = {"techniques": ("t",), "payload": {"source": KERNEL}}
        with Memory.open(config(task_slots=9)) as memory:
            one, two, other = keep(
                memory, lesson("a", **same), lesson("b", **same), lesson("c", **same, task="z")
            )
            elsewhere = keep(memory, lesson("d", **same, fingerprint="z"))
            leaving = memory.trim()
            assert {gone.experience for gone in leaving} == {one, two}
            assert {gone.reason for gone in leaving} == {f"the same code as `{other}`"}
            assert memory.get(elsewhere[0]).status is ACTIVE

    def test_doubt_speaks_for_a_stay(self):
        bounds = [upper_bound(Value(q=-0.3, visits=n)) for n in (0, 4, 100)]
        assert bounds == sorted(bounds, reverse=True)
        assert bounds[0] > 0 > bounds[-1]

    def test_retired_experiences_still_count_for_their_techniques(self):
        with Memory.open(config()) as memory:
            (id,) = keep(memory, lesson("tiling"))
            memory.set_status(id, RETIRED, "too much")
            assert shows(memory, "1") == ()
            assert memory.techniques()[0].attempts == 1
            assert memory.explain("new/1").reasons == {id: "retired from the bank"}

    def test_from_the_command_line(self, capsys, tmp_path):
        with Memory.open(config(tmp_path)) as memory:
            keep(memory, *(lesson(f"{n}") for n in range(5)))
        words = ("trim", "--memory", tmp_path, "--task-slots", 4, "--json")
        for is_done in (False, True):
            _, out = command_line(capsys, *words, *["--yes"][:is_done])
            told = json.loads(out)
            assert (len(told["retired"]), told["is_done"]) == (1, is_done)
        _, out = command_line(capsys, *words, "--yes")
        assert json.loads(out)["retired"] == {}
        assert "retired" in command_line(capsys, "list", "--memory", tmp_path)[1]


class TestEnvironment:
    def test_what_differs_counts_less(self):
        other = HERE.model_copy(update={"device": "B", "proposer": "templates"})
        assert discount(HERE, HERE) == discount(Environment(), HERE) == 1
        assert discount(other, HERE) == pytest.approx(0.25)
        newer = HERE.model_copy(update={"tools": "harness 1, torch 2.14, compiler g++ 13"})
        assert discount(newer, HERE) == pytest.approx(0.8)
        assert differs(newer, HERE)
        assert not differs(HERE.model_copy(update={"proposer": "templates"}), HERE)

    def test_a_compiler_with_a_comma_in_its_name(self):
        tools = "harness 1, torch 2.13, compiler g++ (Debian 12, patched) 12.2"
        parts = Environment(tools=tools).parts()
        assert parts["compiler"] == "g++ (Debian 12, patched) 12.2"

    def test_rewards_from_elsewhere_weigh_less(self, tmp_path):
        def value(here: Environment) -> Value:
            with Memory.open(config(tmp_path, policy="hybrid")) as memory:
                memory.recall(query(f"ask {here.device}", environment=here, run="asker"))
                return memory.value(id, Stage.DRAFT)

        with Memory.open(config(tmp_path, policy="hybrid", probe=0, null=0)) as memory:
            (id,) = keep(memory, lesson("a"))
            for n in range(4):
                memory.recall(query(f"{n}", Stage.DRAFT, environment=HERE))
                memory.reinforce(f"new/{n}", Stage.DRAFT, GOOD)
        home, away = value(HERE), value(HERE.model_copy(update={"device": "B"}))
        assert (home.evidence, away.evidence) == (4, 2)
        assert home.visits == away.visits == 4

    def test_what_was_measured_elsewhere_can_be_hidden(self):
        there = Measurement(speedup=Interval(value=2, low=2, high=2), device="B")
        with Memory.open(config(stale="hide")) as memory:
            ids = keep(memory, edit("a", measurement=there), lesson("b"))
            memory.set_status(ids[0], ACTIVE, "confirmed")
            assert set(shows(memory, "0")) == set(ids)
            assert shows(memory, "1", environment=HERE) == (ids[1],)
            assert "measured on another device" in memory.explain("new/1").reasons[ids[0]]


class TestPromises:
    def made(self, memory: Memory, name: str, technique: str, ratio: float, **changes) -> str:
        """A start point, and an edit of it that brought a technique in."""
        start = experience(f"start-{name}", kind="kernel", techniques=(), **changes)
        measured = Measurement(speedup=Interval(value=ratio, low=ratio, high=ratio))
        child = experience(name, kind="kernel", techniques=(technique,), **changes)
        change = experience(
            name,
            kind="edit",
            techniques=(technique,),
            measurement=measured,
            parents=(start.origin.candidate,),
            **changes,
        )
        memory.add([start], start.origin.step, graph())
        return memory.add([child, change], child.origin.step, graph())[1]

    def promised(self, memory: Memory, step: str, **changes) -> dict[str, float]:
        """What is promised of each technique's edits, to a step of their own run."""
        pool = memory.recall(query(step, run="old", **changes)).pool
        edits = [(memory.get(item.id).experience, item.prior) for item in pool]
        return {e.techniques[0]: prior for e, prior in edits if e.kind == "edit"}

    def test_a_good_technique_promises_more_where_it_was_good(self):
        with Memory.open(config(pool_factor=32)) as memory:
            for n in range(6):
                self.made(memory, f"g{n}", "good", 1.5)
                self.made(memory, f"b{n}", "bad", 0.7)
            here = self.promised(memory, "0")
            elsewhere = self.promised(memory, "1", family="reduction")
        assert here["good"] > 0.5
        assert here["bad"] < -0.5
        assert 0.1 < elsewhere["good"] < here["good"]

    def test_a_failure_warns(self):
        with Memory.open(config(pool_factor=32)) as memory:
            for n in range(6):
                self.made(memory, f"b{n}", "bad", 0.7)
                self.made(memory, f"g{n}", "good", 1.5)
            (warning,) = keep(memory, lesson("c", techniques=("bad",)))
            pool = {item.id: item.prior for item in memory.recall(query("0")).pool}
        assert pool[warning] > 0.5

    def test_what_was_withdrawn_promises_nothing(self):
        with Memory.open(config(pool_factor=32)) as memory:
            ids = [self.made(memory, f"g{n}", "good", 2.0) for n in range(3)]
            ids += [self.made(memory, f"b{n}", "bad", 0.5) for n in range(3)]
            before = self.promised(memory, "0")
            for id in ids[:2]:
                memory.set_status(id, ExperienceStatus.TOMBSTONE, "a cheat")
            after = self.promised(memory, "1")
        assert 0 < after["good"] < before["good"]

    def test_it_is_the_prior_of_what_was_never_shown(self):
        settings = {"policy": "hybrid", "probe": 0, "null": 0, "pool_factor": 8}
        with Memory.open(config(**settings)) as memory:
            ids = [self.made(memory, f"g{n}", "good", 1.5) for n in range(6)]
            ids += [self.made(memory, f"b{n}", "bad", 0.7) for n in range(6)]
            for id in ids:
                memory.set_status(id, ACTIVE, "confirmed")
            pool = memory.recall(query("1")).pool
            assert {item.n for item in pool} == {0}
            worth = {memory.get(item.id).experience.techniques[0]: item.q for item in pool}
        assert worth["good"] > 0.3
        assert worth["bad"] < -0.3

    def test_what_is_held_out_says_nothing(self):
        with Memory.open(config(holdout=("held",), pool_factor=32)) as memory:
            for n in range(4):
                self.made(memory, f"g{n}", "good", 2.0, fingerprint="held")
                self.made(memory, f"b{n}", "bad", 0.5, fingerprint="held")
            self.made(memory, "one", "good", 1.0)
            assert abs(self.promised(memory, "0")["good"]) < 1e-9


def test_a_memory_of_the_version_before_opens_and_keeps_everything(tmp_path):
    with Memory.open(config(tmp_path)) as memory:
        ids = keep(memory, lesson("a"), lesson("b"), edit("c"))
        shows(memory, "1", stage=Stage.DRAFT)
        memory.reinforce("new/1", Stage.DRAFT, GOOD)
        memory.record_start("new", "new/1", "sha", 1.0)
        memory.reward_start("new", "new/2", "sha", GOOD)
        recorded = memory.recall(query("1", stage=Stage.DRAFT))
        before = {id: memory.value(id, Stage.DRAFT) for id in ids}
        entries = memory.list()
    with sqlite3.connect(tmp_path / FILE) as connection:
        for table in ("traits", "decisions"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("ALTER TABLE start_rewards DROP COLUMN advance")
        connection.execute("UPDATE meta SET value = '2' WHERE name = 'schema'")
    connection.close()
    for _ in range(2):
        with Memory.open(config(tmp_path)) as memory:
            assert memory.list() == entries
            assert {id: memory.value(id, Stage.DRAFT) for id in ids} == before
            again = memory.recall(query("1", stage=Stage.DRAFT))
            assert (again.ids, again.pool) == (recorded.ids, recorded.pool)
            assert memory.refit().changes == ()
            assert memory.start_points("new")[0].advance == pytest.approx(GOOD.gain)
            memory.reward_start("new", "new/3", "sha", BAD)
            assert shows(memory, "2", stage=Stage.DRAFT)
