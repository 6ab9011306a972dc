"""Why something was shown, and what techniques are worth, from the command line."""

import json

import pytest

from evokernel.attempt import Stage
from evokernel.evaluation import Interval, Promotion
from evokernel.memory.experience import ExperienceStatus, Measurement
from evokernel.memory.explanation import uncertainty
from evokernel.memory.store import Memory
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
)


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "220")
    return lambda *words: command_line(capsys, *words, "--memory", tmp_path)


TWIN = {"techniques": ("tiling",), "payload": {"source": "the same"}}
FIRST, SECOND, THIRD = (lesson(name, **TWIN) for name in ("a", "b", "c"))
OTHER, WITHDRAWN, HELD, EXCLUDED = (lesson(name) for name in ("d", "e", "f", "g"))
ELSEWHERE = edit("h")
SUSPECT = edit("i")
CUDA = lesson("j", backend="cuda")
HELD_OUT = HELD.model_copy(update={"fingerprint": "held"})
UNLIKE = lesson("k", family="elementwise", fingerprint="elementwise")
MORE = [lesson(f"more-{number}") for number in range(3)]


@pytest.fixture
def told(tmp_path):
    """A memory in which one step has met every reason there is."""
    with Memory.open(config(tmp_path, holdout=("held",), pool_factor=8)) as memory:
        keep(memory, FIRST, SECOND, THIRD, OTHER, WITHDRAWN, HELD_OUT, EXCLUDED)
        keep(memory, ELSEWHERE, SUSPECT, CUDA, *MORE)
        memory.add([UNLIKE], UNLIKE.origin.step)
        memory.set_status(WITHDRAWN.id, ExperienceStatus.TOMBSTONE, "wrong")
        no = Promotion(claim="edit", candidate="sha-i", parent=None, holds=False, processes=3)
        memory.promote("old", [no], "old/p")
        shown = [m.id for m in (*MORE, OTHER, EXCLUDED, SECOND, THIRD)]
        memory.recall(query("0", exclude=tuple(shown)))
        memory.reinforce("new/0", Stage.REFINE, GOOD)
        memory.recall(query("1", exclude=(EXCLUDED.id,)))
        memory.reinforce("new/1", Stage.REFINE, BAD)
        memory.set_status(OTHER.id, ExperienceStatus.TOMBSTONE, "later than the step")
    return tmp_path


class TestExplain:
    def test_every_item_of_the_pool_has_its_numbers(self, said, told):
        _, out = said("explain", "new/1", "--json")
        explained = json.loads(out)
        pool = {considered["item"]["id"]: considered for considered in explained["pool"]}
        first = pool[FIRST.id]
        assert (first["slot"], first["propensity"], first["item"]["fate"]) == (1, 1.0, "chosen")
        assert (first["showings"], first["rewards"]) == (1, [GOOD.value])
        assert first["item"]["n"] == 1
        assert first["uncertainty"] == pytest.approx(0.2)  # one reward of weight alpha
        assert pool[SECOND.id]["item"]["fate"] == f"the same content as `{FIRST.id}`"
        assert pool[OTHER.id]["uncertainty"] is None
        assert explained["reward"] == BAD.value
        assert explained["asked"]["exclude"] == [EXCLUDED.id]

    def test_what_is_not_in_the_pool_has_its_reason(self, said, told):
        reasons = {}
        for one in (WITHDRAWN, HELD_OUT, EXCLUDED, ELSEWHERE, SUSPECT, CUDA, UNLIKE, OTHER):
            _, out = said("explain", "new/1", "--json", "--experience", one.id)
            reasons[one.origin.candidate[-1]] = json.loads(out)["experience"]["reason"]
        assert reasons == {
            "e": "withdrawn",
            "f": "its task was held out",
            "g": "excluded: it is the start point itself",
            "h": "in quarantine, from another run",
            "i": "suspect: not confirmed, or made from what was withdrawn",
            "j": "not for the backend `cpp`",
            "k": "below the gate: similarity under 0.0312",
            "d": reasons["d"],
        }
        assert reasons["d"].startswith(("not drawn", "chosen"))  # withdrawn after the step

    def test_people_read_it(self, said, told):
        code, out = said("explain", "new/1")
        assert code == 0
        assert "refine of softmax" in out
        assert "chosen for slot 1, by a chance of 1.00" in out
        assert "shown 1 time, mean reward +0.60 of 1" in out
        assert f"not in the pool: 1 ({HELD_OUT.id}): its task was held out" in out
        assert said("explain", "new/1", "--experience", HELD_OUT.id)[1].endswith(
            "its task was held out\n"
        )

    def test_what_is_pinned_does_not_stand_for_the_full_pool(self, said, tmp_path):
        like = {"techniques": ("vectorized-math",)}
        with Memory.open(config(tmp_path, pool_factor=1)) as memory:
            keep(memory, *(lesson(f"{number}", **like) for number in range(3)))
            (far,) = keep(memory, lesson("far", techniques=("unrolling",)))
            memory.pin(far)
            pool = memory.recall(query("1", **like)).pool
        assert [item.id for item in pool][2:] == [far]
        explained = json.loads(said("explain", "new/1", "--json")[1])
        (outside,) = explained["outside"]
        down_to = f"goes down to {pool[1].similarity:.2f}"
        assert outside["reason"] == f"less similar than the 2 of the full pool, which {down_to}"

    def test_a_step_that_asks_for_nothing_is_explained(self, said, tmp_path):
        with Memory.open(config(tmp_path, shown_refine=0)) as memory:
            keep(memory, lesson("one"))
            memory.recall(query("1"))
        explained = json.loads(said("explain", "new/1", "--json")[1])
        assert [o["reason"] for o in explained["outside"]] == ["nothing was asked for"]

    def test_a_full_pool_is_told_from_the_gate(self, said, tmp_path):
        with Memory.open(config(tmp_path, pool_factor=1)) as memory:
            keep(memory, *(lesson(f"{number}") for number in range(5)))
            memory.recall(query("1"))
        explained = json.loads(said("explain", "new/1", "--json")[1])
        (outside,) = explained["outside"]
        assert outside["count"] == 3
        assert outside["reason"].startswith("less similar than the 2 of the full pool")

    def test_a_kind_that_has_had_its_share(self, said, tmp_path):
        kernels = [experience(f"k{n}", kind="kernel") for n in range(2)]
        with Memory.open(config(tmp_path)) as memory:
            keep(memory, *(lesson(f"{n}") for n in range(3)), *kernels)
            for kernel in kernels:
                memory.set_status(kernel.id, ExperienceStatus.ACTIVE, "for the test")
            memory.recall(query("1"))
        explained = json.loads(said("explain", "new/1", "--json")[1])
        fates = [considered["item"]["fate"] for considered in explained["pool"]]
        assert fates.count("chosen") == 2
        assert any(fate.startswith("enough of kind") for fate in fates)

    def test_a_step_that_never_was_suggests_the_nearest(self, said, told):
        code, message = said("explain", "new/11")
        assert code == 2
        assert "no retrieval for the step `new/11`" in message
        assert "the nearest is `new/1`" in message

    def test_uncertainty_is_the_spread_of_a_weighted_mean(self):
        assert uncertainty(0.5, 1) == pytest.approx(0.5)
        assert uncertainty(0.5, 2) == pytest.approx((0.5**2 + 0.25**2) ** 0.5)
        assert uncertainty(0.2, 10_000) == pytest.approx((0.2 / 1.8) ** 0.5)


def kernel(name, techniques, **changes):
    fields = {"kind": "kernel", "techniques": techniques, "bottleneck": "memory", **changes}
    return experience(name, **fields)


def step(name, parent, changed, ratio, **changes):
    speedup = Interval(value=ratio, low=ratio, high=ratio)
    measured = Measurement(median_ms=1.0, speedup=speedup)
    fields = {"techniques": changed, "measurement": measured, "parents": (f"sha-{parent}",)}
    return edit(name, **fields, **changes)


@pytest.fixture
def bench(tmp_path):
    """`fusion` brought in twice for 1.1x and 1.3x, taken out once; and it failed once."""
    with Memory.open(config(tmp_path)) as memory:
        keep(memory, kernel("a", ()), lesson("z", techniques=("fusion",)))
        for child, parent, techniques, ratio in (
            ("b", "a", ("fusion",), 1.1),
            ("c", "a", ("fusion", "tiling"), 1.3),
            ("d", "c", ("tiling",), 0.8),
            ("e", "c", ("fusion", "tiling"), 2.0),  # only a parameter of it
        ):
            made = kernel(child, techniques)
            memory.add([made, step(child, parent, ("fusion",), ratio)], f"old/{child}", graph())
        memory.recall(query("1"))
    return tmp_path


class TestTechniques:
    def test_gain_counts_edits_that_brought_it_in_or_took_it_out(self, said, bench):
        uses = {use["technique"]: use for use in json.loads(said("techniques", "--json")[1])}
        fusion = uses["fusion"]
        assert (fusion["attempts"], fusion["feasible"], fusion["share"]) == (4, 3, 0.75)
        assert fusion["edits"] == 3
        assert fusion["gain"]["value"] == pytest.approx((1.1 * 1.3 / 0.8) ** (1 / 3))
        assert fusion["gain"]["low"] < 1.0 < fusion["gain"]["value"] < fusion["gain"]["high"]
        assert uses["vectorized-math"]["attempts"] == 0  # of the catalogue, never tried

    def test_by_family_and_bottleneck_of_the_start_point(self, said, bench):
        uses = json.loads(said("techniques", "--json", "--by", "both")[1])
        groups = {(u["technique"], u["family"], u["bottleneck"]): u["edits"] for u in uses}
        assert groups["fusion", "softmax", "memory"] == 3
        assert json.loads(said("techniques", "--json", "--family", "scan")[1])[0]["attempts"] == 0
        one = json.loads(said("techniques", "--json", "--bottleneck", "compute")[1])
        assert all(use["edits"] == 0 for use in one)

    def test_people_read_it(self, said, bench):
        code, out = said("techniques", "--by", "family")
        assert code == 0
        line = next(line for line in out.splitlines() if line.split()[:1] == ["fusion"])
        assert "softmax" in line
        assert "75%" in line
        assert "1.21x [0.98, 1.51]" in line

    def test_a_misspelt_division_suggests_the_nearest(self, said, bench):
        code, message = said("techniques", "--by", "famly")
        assert code == 2
        assert "Did you mean `family`" in message
