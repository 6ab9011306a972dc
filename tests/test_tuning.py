"""Values that a candidate declares: read without running, searched, frozen, never tried twice."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from evokernel import jit
from evokernel.attempt import Candidate
from evokernel.bench.evaluator import LocalEvaluator
from evokernel.cli import main, options
from evokernel.cli.run import conduct
from evokernel.compilers.cpp import FLAGS
from evokernel.config import BenchConfig, RunConfig, TuneConfig, home
from evokernel.evaluation import Interval, Status
from evokernel.export.building import BuildError
from evokernel.export.kernels import Kernels, Signature, source_key
from evokernel.optimize import RunResult, RunStopped, optimize, resume
from evokernel.record import RunRecord
from evokernel.task import Task
from evokernel.testing import (
    FakeEvaluator,
    ScriptedProposer,
    fake_graph,
    fake_kernel,
    fake_task,
)
from evokernel.tuning import Space, Try, Tuning

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 2 * x + 1


def get_inputs():
    return [torch.randn(64, 512)]
"""

KERNEL = '''
import torch
from torch import nn

from evokernel import jit

ROUNDS = 300
OFFSET = 1
TUNE = {"ROUNDS": [300, 1, -1], "OFFSET": [1, 2]}

KERNEL = jit.cpp_module(
    r"""
#include <cstdint>

extern "C" void affine(const float* x, float* y, int64_t n) {
  volatile float* out = y;
#if ROUNDS < 0
  out = nullptr;
#endif
  for (int round = 0; round < (ROUNDS < 0 ? 1 : ROUNDS); ++round)
    for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i] + OFFSET;
}
""",
    defines={"ROUNDS": ROUNDS, "OFFSET": OFFSET},
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        KERNEL.affine(x, y, x.numel())
        return y
'''
"""`ROUNDS` 1 does in one sweep what 300 do in as many, -1 crashes; `OFFSET` 2 is wrong."""

BEST = {"ROUNDS": 1, "OFFSET": 1}


# -- what is declared ------------------------------------------------------------------------------


def declared(declaration: str, constants: str = "BLOCK = 64\nWAY = 'static'\n") -> Space:
    space = Space.declared(f"{constants}TUNE = {declaration}\n")
    assert space is not None
    return space


def test_the_value_in_the_source_comes_first():
    space = declared("{'BLOCK': [16, 64, 256], 'WAY': ('static', 'dynamic')}")
    assert space.parameters == {"BLOCK": (64, 16, 256), "WAY": ("static", "dynamic")}
    assert space.first == {"BLOCK": 64, "WAY": "static"}
    assert (space.size, space.is_open, space.notes) == (6, True, ())


def test_a_value_that_is_not_listed_is_tried_all_the_same():
    assert declared("{'BLOCK': [128, 256]}").parameters == {"BLOCK": (64, 128, 256)}


@pytest.mark.parametrize(
    ("source", "space"),
    [("BLOCK = 64", None), ("def (", None), ("def tune():\n    TUNE = {}", None)],
)
def test_most_candidates_declare_nothing(source, space):
    assert Space.declared(source) is space


@pytest.mark.parametrize(
    ("declaration", "note"),
    [
        ("make()", "one literal dictionary"),
        ("[64, 128]", "one literal dictionary"),
        ("{'WIDTH': [1, 2]}", "no constant of that name"),
        ("{'MADE': [1, 2]}", "no constant of that name"),
        ("{'TWICE': [1, 2]}", "no constant of that name"),
        ("{3: [1, 2]}", "one literal dictionary"),
        ("{'TUNE': [1, 2]}", "one literal dictionary"),
        ("{'BLOCK': [(1, 2)]}", "no number or text"),
        ("{'BLOCK': [1e999]}", "no number or text"),
    ],
)
def test_what_cannot_be_used_is_said(declaration, note):
    constants = "BLOCK = 64\nMADE = make()\nTWICE = 1\nTWICE = 2\n"
    space = declared(declaration, constants)
    assert not space.is_open
    assert note in space.notes[0]


def test_values_beyond_the_most_are_named():
    space = declared(f"{{'BLOCK': {list(range(100))}}}")
    assert len(space.parameters["BLOCK"]) == 64
    assert "gives `BLOCK` 100 values; only the first 64" in space.notes[0]


def test_one_unusable_parameter_leaves_the_others():
    space = declared("{'BLOCK': [64, None, 128], 'WIDTH': [1, 2]}")
    assert space.parameters == {"BLOCK": (64, 128)}
    assert len(space.notes) == 2


def test_the_nearest_combinations_come_first():
    space = declared("{'BLOCK': [64, 128], 'WAY': ['static', 'dynamic']}")
    order = [tuple(values.values()) for values in space.near({"BLOCK": 128, "WAY": "static"})]
    assert order == [(128, "static"), (64, "static"), (128, "dynamic"), (64, "dynamic")]


def test_frozen_source_is_plain_and_keeps_its_lines():
    source = (
        "é = 'ü'; BLOCK = 64  # stays\nWAY = 'static'\n"
        "TUNE = {\n    'BLOCK': [64, 128],\n    'WAY': ['static', 'dynamic'],\n}\nlast = BLOCK\n"
    )
    space = Space.declared(source)
    assert space is not None
    frozen = space.frozen({"BLOCK": 128, "WAY": "dynamic"})
    assert frozen.splitlines()[0] == "é = 'ü'; BLOCK = 128  # stays"
    assert frozen.splitlines()[6] == "last = BLOCK"
    again = Space.declared(frozen)
    assert again is not None
    assert (again.first, again.is_open) == ({"BLOCK": 128, "WAY": "dynamic"}, False)
    assert again.frozen(again.first) == frozen
    names: dict[str, object] = {}
    exec(frozen, names)
    assert (names["last"], names["WAY"]) == (128, "dynamic")


def test_the_gain_is_over_the_first_feasible_one():
    def tried(status: Status, ratio: float | None, is_best: bool) -> Try:
        measured = ratio and Interval(value=ratio, low=ratio, high=ratio)
        return Try(
            values={"A": 1}, candidate="a", status=status, ratio=measured or None, is_best=is_best
        )

    def tuning(*tries: Try) -> Tuning:
        return Tuning(
            source="",
            parameters={"A": (1, 2)},
            chosen={"A": 2},
            tries=tries,
            combinations=9,
            stopped="all tries are spent",
        )

    crashed = tried(Status.CRASHED, None, is_best=False)
    won = tuning(
        crashed,
        tried(Status.PASSED, None, is_best=True),
        tried(Status.PASSED, 2.0, is_best=True),
        tried(Status.PASSED, 0.5, is_best=False),
        tried(Status.PASSED, 1.5, is_best=True),
    )
    assert won.gain == 3.0
    assert won.in_words() == "A=2 (5 of 9 tried, 1 failed; 3.00x as fast as the first)"
    assert tuning(crashed).gain is None
    assert tuning(crashed).in_words() == "A=2 (1 of 9 tried, 1 failed; none is feasible)"


# -- the search ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.from_source(TASK, "affine")


@pytest.fixture(scope="module")
def config(warm_cache) -> BenchConfig:
    return BenchConfig(measurement="quick", baselines=("eager",), threads=1, cache=warm_cache)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def evaluator(task, config, said, servers) -> Iterator[LocalEvaluator]:
    with LocalEvaluator(task, config, say=said.append, servers=servers) as ready:
        yield ready


@pytest.fixture(scope="module")
def tuning(evaluator) -> Tuning:
    found = evaluator.tune(Candidate(source=KERNEL, backend="cpp"))
    assert found is not None
    return found


def test_the_fast_right_values_win(tuning):
    assert tuning.chosen == BEST
    assert tuning.gain > 3
    assert tuning.stopped == "every combination was tried"
    assert len(tuning.tries) == tuning.combinations == 6
    assert "ROUNDS = 1\nOFFSET = 1\n" in tuning.frozen


def test_failing_combinations_are_noted_and_never_timed(tuning):
    by_values = {tuple(t.values.values()): t for t in tuning.tries}
    assert by_values[300, 1].status is Status.PASSED
    assert by_values[1, 2].status is Status.WRONG_VALUES
    assert "elements" in by_values[1, 2].reason
    assert by_values[-1, 1].status is Status.CRASHED
    assert all(t.ratio is None for t in tuning.tries if not t.status.is_feasible)
    assert not any(t.is_best for t in tuning.tries if not t.status.is_feasible)


def test_nothing_is_tried_twice(evaluator, said, tuning):
    said.clear()
    again = evaluator.tune(Candidate(source=KERNEL, backend="cpp"))
    assert again is not None
    assert all(t.is_cached for t in again.tries)
    assert [t.values for t in again.tries] == [t.values for t in tuning.tries]
    assert again.chosen == tuning.chosen
    assert again.seconds == tuning.seconds
    assert not [text for text in said if text.startswith("tuning")]


def test_what_is_frozen_is_not_searched(evaluator, tuning):
    assert evaluator.tune(Candidate(source=tuning.frozen, backend="cpp")) is None


def test_without_tries_there_is_no_search(task, config, servers):
    none = config.model_copy(update={"tune": TuneConfig(tries=0)})
    with LocalEvaluator(task, none, servers=servers) as evaluator:
        assert evaluator.tune(Candidate(source=KERNEL, backend="cpp")) is None


def test_where_nothing_is_feasible_the_first_stays(evaluator):
    source = KERNEL.replace("[300, 1, -1]", "[-1, -2]").replace("ROUNDS = 300", "ROUNDS = -1")
    found = evaluator.tune(Candidate(source=source, backend="cpp"))
    assert found is not None
    frozen = Candidate(source=found.frozen, backend="cpp")
    verdict = evaluator.compile(frozen) or evaluator.verify(frozen)
    assert found.chosen == {"ROUNDS": -1, "OFFSET": 1}
    assert found.gain is None
    assert verdict.status is found.tries[0].status is Status.CRASHED


# -- in a run --------------------------------------------------------------------------------------


def settings(folder: Path, bench: BenchConfig) -> RunConfig:
    return RunConfig.model_validate(
        {"task": "affine", "runs": folder, "budget": {"attempts": 1}, "bench": bench}
    )


def without_tries(cache: Path, known: BenchConfig) -> None:
    """A cache in which the machine has been measured, and nothing else has been done."""
    (known.cache / "devices").mkdir(exist_ok=True)
    cache.mkdir()
    (cache / "devices").symlink_to(known.cache / "devices")


def test_a_run_stopped_in_the_search_tries_nothing_twice(task, config, tmp_path):
    bench = config.model_copy(update={"cache": tmp_path / "cache"})
    without_tries(bench.cache, config)
    kernel = KERNEL.replace(', "OFFSET": [1, 2]', "")
    before: list[bool] = []

    def stop_at_the_second(event):
        if event["kind"] == "try":
            before.append(event["is_cached"])
            if len(before) == 2:
                raise KeyboardInterrupt

    proposer = ScriptedProposer(lambda request: kernel)
    with pytest.raises(RunStopped) as stopped:
        optimize(
            task,
            settings(tmp_path / "runs", bench),
            proposer=proposer,
            graph=fake_graph(),
            on_event=stop_at_the_second,
        )
    later: list[dict] = []
    result = resume(stopped.value.path, proposer=proposer, on_event=later.append)
    tries = [event for event in later if event["kind"] == "try"]
    assert before == [False, False]
    assert [event["is_cached"] for event in tries] == [True, True, False]
    record = RunRecord.open(result.path)
    (attempt,) = record.attempts()
    assert attempt.proposal.tuning.chosen == {"ROUNDS": 1}
    assert attempt.proposal.tuning.source == kernel
    assert attempt.proposal.candidate.source == attempt.proposal.tuning.frozen
    assert result.kernel.read_text() == attempt.proposal.tuning.frozen
    summary = json.loads(result.kernel.with_name("summary.json").read_text())
    assert summary["tuned"] == {"ROUNDS": 1}
    (tuned,) = (event for event in later if event["kind"] == "tuned")
    assert tuned["chosen"] == {"ROUNDS": 1}
    assert tuned["candidate"] == attempt.proposal.candidate.sha


FAKE = fake_kernel(6.0, techniques=("fusion",)) + (
    "# median_ms at BLOCK=128: 2.0\n# status at BLOCK=8: crashed\n"
    "BLOCK = 64\nTUNE = {'BLOCK': [64, 8, 128]}\n"
)


def conducted(folder: Path, evaluator: FakeEvaluator, source: str) -> RunResult:
    """A run of one attempt, as the command shows it."""
    task = fake_task()
    config = RunConfig.model_validate(
        {"task": task.name, "runs": folder, "budget": {"attempts": 1}}
    )
    proposer = ScriptedProposer(lambda request: source)
    given = {"evaluator": evaluator, "proposer": proposer, "graph": fake_graph()}
    return conduct(lambda listen: optimize(task, config, on_event=listen, **given), as_json=False)


def test_a_run_says_what_of_a_declaration_cannot_be_used(tmp_path, capsys):
    source = FAKE.replace("{'BLOCK': [64, 8, 128]}", "{'WIDTH': [1, 2]}")
    conducted(tmp_path, FakeEvaluator(fake_task()), source)
    shown = capsys.readouterr().out
    assert "attempt 1: `TUNE` names `WIDTH`, but the module has no constant of that name" in shown
    assert "tuned" not in shown


def test_the_search_shows_in_the_run(tmp_path, capsys):
    evaluator = FakeEvaluator(fake_task())
    result = conducted(tmp_path, evaluator, FAKE)
    shown = capsys.readouterr().out
    words = "BLOCK=128 (3 of 3 tried, 1 failed; 3.00x as fast as the first)"
    assert f"attempt 1 tuned: {words}" in shown
    assert f"  tuned      {words}" in shown
    assert evaluator.log.number("try") == 3
    assert evaluator.log.number("verify") == 1
    assert result.best.median_ms == 2.0
    kinds = [event["kind"] for event in RunRecord.open(result.path).events()]
    assert kinds.count("try") == 3
    assert kinds.index("proposed") < kinds.index("try") < kinds.index("tuned")
    assert kinds.index("tuned") < kinds.index("compiled")


# -- from the command line -------------------------------------------------------------------------


def test_evaluate_tells_every_try(tmp_path, config, evaluator, capsys):
    without_tries(home() / "cache", config)
    # None is right: preparing torch.compile for one that passes takes half a minute.
    (tmp_path / "affine.py").write_text(TASK)
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL.replace("OFFSET = 1", "OFFSET = 3").replace("[1, 2]", "[3, 2]"))
    command = ["evaluate", str(file), "--task", str(tmp_path / "affine.py"), "--quick"]
    assert main([*command, "--json", "--tune-budget", "3,20s", "--threads", "1"]) == 1
    report = json.loads(capsys.readouterr().out)
    statuses = [found["status"] for found in report["tuning"]["tries"]]
    assert statuses == ["wrong_values", "wrong_values", "crashed"]
    assert report["tuning"]["stopped"] == "all 3 tries are spent"
    assert report["evaluation"]["status"] == "wrong_values"


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("", TuneConfig()),
        ("24", TuneConfig(tries=24)),
        ("1.5s", TuneConfig(seconds=1.5)),
        ("24,90s", TuneConfig(tries=24, seconds=90)),
    ],
)
def test_a_budget_is_tries_or_seconds_or_both(text, budget):
    assert options.tune_budget(False, text) == budget
    assert options.tune_budget(True, text).tries == 0


@pytest.mark.parametrize("text", ["many", "0", "3,", "s", "0s", "-1", "3s,4"])
def test_a_budget_that_is_none_is_refused(text, tmp_path, capsys):
    command = ["evaluate", "kernel.py", "--task", "softmax", "--tune-budget", text]
    (tmp_path / "kernel.py").write_text(KERNEL)
    assert main(command) == 2
    assert "--tune-budget" in capsys.readouterr().err


def test_defines_reach_the_kernel():
    source = 'extern "C" double value() { return SCALE * (IS_ON ? COUNT : 0) + OTHER; }'
    built = jit.cpp_module(
        source, defines={"SCALE": 0.5, "IS_ON": True, "COUNT": 6, "OTHER": "(1 + 1)"}
    )
    assert built.value() == 5.0
    off = jit.cpp_module(
        source, defines={"SCALE": 0.5, "IS_ON": False, "COUNT": 6, "OTHER": "(1 + 1)"}
    )
    assert off.value() == 2.0


def test_defines_are_part_of_what_an_export_knows():
    source = 'extern "C" double value() { return COUNT; }'
    known = {source_key(source, ("-DCOUNT=6",)): (Signature("value", "float64", ()),)}
    kernels = Kernels(known, FLAGS)
    assert kernels.cpp_module(source, defines={"COUNT": 6}).value() == 6.0
    with pytest.raises(BuildError, match="not verified"):
        kernels.cpp_module(source, defines={"COUNT": 7})
