"""Rewards, returns and groups by their formulas; rows of runs; files that others can read."""

import io
import json
import math
from pathlib import Path

import pytest

from evokernel.attempt import Stage
from evokernel.cli import main
from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.errors import ConfigError
from evokernel.evaluation import Status
from evokernel.optimize import optimize
from evokernel.record import RunRecord
from evokernel.task import Task
from evokernel.testing import (
    COMPILE_MS,
    EAGER_MS,
    FakeEvaluator,
    ScriptedProposer,
    fake_graph,
    fake_kernel,
    fake_task,
)
from evokernel.training import parquet, rewards, table
from evokernel.training.contrast import Contrast, Group, contrasts
from evokernel.training.environment import Environment, EnvironmentConfig
from evokernel.training.lines import converse
from evokernel.training.returns import leave_one_out, returns, smoothed, speed_weights
from evokernel.training.turns import SCHEMA, Settings, Turn, turns

TASK = fake_task()


def facts(**known: object) -> rewards.Facts:
    usual = {
        "stage": Stage.DRAFT,
        "is_right": True,
        "eager": 2.0,
        "compile": 1.5,
        "coverage": 0.9,
        "best_ms": None,
        "median_ms": 5.0,
    }
    return rewards.Facts(**{**usual, **known})  # type: ignore[arg-type]


WRONG = facts(is_right=False, eager=None, compile=None, coverage=None, median_ms=None)


# -- formulas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("evokernel", WRONG, -1.0),
        ("evokernel", facts(), 1.0),
        ("evokernel", facts(stage=Stage.REFINE, best_ms=10.0), math.tanh(math.log(2))),
        ("kevin", WRONG, 0.0),
        ("kevin", facts(), 2.3),
        ("milestone", WRONG, -1.0),
        ("milestone", facts(eager=1.04, compile=2.0), 1.0),
        ("milestone", facts(eager=1.2, compile=1.04), 2.0),
        ("milestone", facts(eager=1.2, compile=1.06), 3.0),
        ("milestone", facts(eager=1.2, compile=None), 2.0),
        ("sigmoid", WRONG, 0.0),
        ("sigmoid", facts(compile=1.0), 1 / (1 + math.exp(-0.2))),
        ("cuda-l1", WRONG, 0.0),
        ("cuda-l1", facts(), 2.0),
        ("dr-kernel", WRONG, 0.0),
        ("dr-kernel", facts(eager=9.0), 1.0 + 3.0 + 0.9),
        ("kevin", facts(eager=None), None),
    ],
)
def test_reward_is_that_of_its_source(name, given, expected):
    found = rewards.reward_of(name)(given)
    assert found == (None if expected is None else pytest.approx(expected))


def test_unknown_reward_suggests_a_known_one():
    with pytest.raises(ConfigError, match="Did you mean `kevin`"):
        rewards.reward_of("kevn")


@pytest.mark.parametrize(
    ("form", "gamma", "expected"),
    [
        ("sum", 0.4, (0.0 + 0.4 * 1.0 + 0.16 * 0.0 + 0.064 * 2.0, 1.0 + 0.16 * 2.0, 0.8, 2.0)),
        ("max", 0.8, (0.8**3 * 2.0, 0.8**2 * 2.0, 0.8 * 2.0, 2.0)),
        ("sum", 1.0, (3.0, 3.0, 2.0, 2.0)),
        ("sum", 0.0, (0.0, 1.0, 0.0, 2.0)),
    ],
)
def test_return_of_a_turn_counts_what_it_led_to(form, gamma, expected):
    assert returns((0.0, 1.0, 0.0, 2.0), gamma, form) == pytest.approx(expected)


def test_return_of_a_bad_end_is_its_own():
    assert returns((-1.0, -1.0), 0.8, "max") == pytest.approx((-0.8, -1.0))
    assert returns((), 0.4) == ()


def test_leave_one_out_keeps_each_out_of_its_own_baseline():
    values = (1.0, 2.0, 6.0)
    mean = sum(values) / 3
    expected = [3 / 2 * (value - mean) for value in values]
    assert leave_one_out(values) == pytest.approx(expected)
    assert leave_one_out((1.0,)) is None


def test_smoothing_lets_no_outlier_steer():
    found = smoothed((1.0,) * 9 + (100.0,))
    assert found[-1] == 1.5
    assert smoothed((2.0, 2.0)) == (0.0, 0.0)


def test_speed_is_ranked_among_the_right_only():
    weights = speed_weights((None, 1.0, 2.0), temperature=1.0)
    assert weights == (None, pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert speed_weights((None, None)) == (None, None)


# -- rows ------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two trajectories: a wrong draft and its repair, kernels of several speeds."""
    sources = iter(
        [
            fake_kernel(status=Status.WRONG_VALUES, note="a"),
            fake_kernel(5.0, techniques=("fusion",)),
            fake_kernel(8.0),
            fake_kernel(2.5, note="b"),
            fake_kernel(12.0, note="c"),
            fake_kernel(1.25, promotes="no"),
        ]
    )
    config = RunConfig(
        task=TASK.name,
        runs=tmp_path / "runs",
        budget=Budget(attempts=6),
        search=SearchConfig(width=2, recombine=0.0),
        memory=MemoryConfig(policy="none"),
    )
    result = optimize(
        TASK,
        config,
        evaluator=FakeEvaluator(TASK),
        proposer=ScriptedProposer(lambda request: next(sources)),
        graph=fake_graph(),
    )
    return result.path


def rows_of(run: Path, **settings: object) -> tuple[Turn, ...]:
    return turns([RunRecord.open(run)], Settings.model_validate(settings))


def test_rows_follow_the_trajectories_with_returns_and_groups(run):
    rows = rows_of(run, form="max", gamma=0.5)
    assert [(row.trajectory[-2:], row.turn) for row in rows] == [
        *(("t0", turn) for turn in range(3)),
        *(("t1", turn) for turn in range(3)),
    ]
    first = rows[0]
    assert (first.status, first.reward, first.is_right) == ("wrong_values", 0.0, False)
    assert first.value == pytest.approx(0.5 * (0.3 + EAGER_MS / 8.0))
    assert {row.group_size for row in rows} == {2}
    by_turn = [row for row in rows if row.turn == 1]
    assert sum(row.advantage or 0.0 for row in by_turn) == pytest.approx(0.0)
    assert len({row.group for row in rows}) == 3
    assert len({row.group for row in rows_of(run, group="task")}) == 1


def test_row_carries_every_reward_and_what_fresh_processes_said(run):
    fastest = min(rows_of(run), key=lambda row: row.median_ms or math.inf)
    assert fastest.eager == pytest.approx(EAGER_MS / 1.25)
    assert fastest.compile == pytest.approx(COMPILE_MS / 1.25)
    assert fastest.reward_kevin == pytest.approx(8.3)
    assert fastest.reward_milestone == 3.0
    assert fastest.confirmed is False
    assert fastest.reference == TASK.source
    assert fastest.schema_version == SCHEMA


def test_contrast_takes_each_variant_from_another_level_of_speed(run):
    rows = rows_of(run)
    groups = contrasts(rows, Contrast(groups=20))
    assert groups
    for group in groups:
        slow, fast = group.variants
        assert slow.bucket < fast.bucket
        assert group.ratio == pytest.approx(fast.eager / slow.eager)
        assert "promotes: no" not in slow.source + fast.source  # refuted in fresh processes
    assert groups == contrasts(rows, Contrast(groups=20))
    assert contrasts(rows[:1], Contrast()) == ()
    with pytest.raises(ConfigError, match="cannot be drawn"):
        contrasts(rows, Contrast(variants=1))


def test_same_rows_in_both_formats(run, tmp_path, capsys):
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    lines, columns = tmp_path / "turns.jsonl", tmp_path / "turns.parquet"
    for file in (lines, columns):
        assert main(["env", "export", str(run), "--to", str(file), "--form", "max"]) == 0
    assert "6 turns" in capsys.readouterr().out
    plain = [json.loads(line) for line in lines.read_text().splitlines()]
    read = pyarrow_parquet.read_table(columns)
    assert read.to_pylist() == plain
    assert read.schema.metadata[b"evokernel.schema"] == SCHEMA.encode()
    assert read.column_names == list(Turn.model_fields)


def test_files_load_with_datasets(run, tmp_path):
    datasets = pytest.importorskip("datasets")
    for suffix, kind in (("jsonl", "json"), ("parquet", "parquet")):
        file = tmp_path / f"rows.{suffix}"
        main(["env", "export", str(run), "--to", str(file)])
        loaded = datasets.load_dataset(
            kind, data_files=str(file), split="train", cache_dir=str(tmp_path / suffix)
        )
        assert loaded.num_rows == 6
        assert loaded[1]["status"] in {"passed", "wrong_values"}


@pytest.mark.parametrize("kind", [Turn, Group])
def test_table_without_rows_keeps_its_columns(kind, tmp_path):
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "none.parquet"
    table.write((), file, kind)
    assert pyarrow_parquet.read_table(file).schema.names == list(kind.model_fields)
    assert parquet.schema_of(kind).field("schema_version").nullable is False


def test_contrast_is_exported_with_its_variants(run, tmp_path):
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "groups.parquet"
    command = ["env", "export", str(run), "--to", str(file), "--rows", "contrast"]
    assert main(command) == 0
    (first, *_) = pyarrow_parquet.read_table(file).to_pylist()
    assert len(first["variants"]) == 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--to", "rows.csv"], "`.jsonl` or `.parquet`"),
        (["--to", "rows.jsonl", "--reward", "kevn"], "Did you mean `kevin`"),
        (["--to", "no/such/folder/rows.jsonl"], "cannot be written"),
    ],
)
def test_export_that_cannot_be_is_refused_in_words(arguments, word, run, capsys):
    assert main(["env", "export", str(run), *arguments]) == 2
    assert word in " ".join(capsys.readouterr().err.split())


# -- the environment -------------------------------------------------------------------------------


def reply(source: str) -> str:
    return f"Plan: try it\nTechniques: fusion\nUsed: none\n\n```python\n{source}```\n"


@pytest.fixture
def environment(tmp_path):
    opened: list[FakeEvaluator] = []

    def judges(task: Task) -> FakeEvaluator:
        opened.append(FakeEvaluator(task))
        return opened[-1]

    config = EnvironmentConfig(turns=3, runs=tmp_path / "runs")
    with Environment(config, judges) as environment:
        yield environment
    assert not any(evaluator.is_open for evaluator in opened)


def test_episode_goes_from_prompt_to_reward_to_returns(environment, tmp_path):
    seen = environment.reset(TASK)
    assert [text.role for text in seen.messages] == ["system", "user"]
    assert "x + 1" in seen.messages[1].content
    seen = environment.step(reply(fake_kernel(status=Status.WRONG_VALUES)))
    assert (seen.turn, seen.reward, seen.done) == (1, 0.0, False)
    assert "wrong_values" in seen.feedback
    assert "wrong_values" in seen.messages[1].content
    seen = environment.step("I would rather not.")
    assert (seen.status, seen.reward) == (Status.INVALID_SOURCE, 0.0)
    seen = environment.step(reply(fake_kernel(5.0)))
    assert seen.done
    assert seen.messages == ()
    assert seen.reward == pytest.approx(2.3)
    assert seen.returns == pytest.approx((0.16 * 2.3, 0.4 * 2.3, 2.3))
    assert seen.best == pytest.approx(2.0)
    rows = rows_of(tmp_path / "runs" / seen.episode)
    assert [row.reward for row in rows] == pytest.approx([0.0, 0.0, 2.3])
    assert rows[1].reply == "I would rather not."
    assert "x + 1" in rows[0].prompt
    with pytest.raises(ConfigError, match="is done"):
        environment.step("more")


def test_episodes_of_one_task_share_what_judges_it(environment):
    first = environment.reset(TASK)
    second = environment.reset(TASK)
    assert first.episode != second.episode
    one = environment.step(reply(fake_kernel(5.0)), first.episode)
    two = environment.step(reply(fake_kernel(2.0)), second.episode)
    assert (one.best, two.best) == (pytest.approx(2.0), pytest.approx(5.0))
    environment.leave(first.episode)
    with pytest.raises(ConfigError, match="is done"):
        environment.step("more", first.episode)


def test_lines_answer_in_order_and_survive_bad_ones(environment):
    lines = [
        {"op": "reset", "id": 1, "task": TASK.source},
        {"op": "step", "id": 2, "reply": reply(fake_kernel(5.0))},
        {"op": "stop", "id": 3},
        {"op": "reset", "id": 4, "task": "softmx"},
        {"op": "leave", "id": 5},
    ]
    asked = [*map(json.dumps, lines[:3]), "no JSON", "", *map(json.dumps, lines[3:])]
    told = io.StringIO()
    converse(asked, told, environment)
    answers = [json.loads(line) for line in told.getvalue().splitlines()]
    assert [answer.get("id") for answer in answers] == [1, 2, 3, None, 4, 5]
    assert answers[1]["reward"] == pytest.approx(2.3)
    assert answers[2]["error"]["kind"] == "BadLine"
    assert "softmax" in answers[4]["error"]["message"]
    assert answers[5]["done"]


def test_machine_that_spoils_a_turn_asks_for_it_again(environment):
    environment.reset(TASK)
    spoiled = json.dumps({"op": "step", "reply": reply(fake_kernel(5.0, spoiled=4))})
    told = io.StringIO()
    converse([spoiled, spoiled], told, environment)
    first, second = (json.loads(line) for line in told.getvalue().splitlines())
    assert first["error"]["again"]
    assert second["turn"] == 1
