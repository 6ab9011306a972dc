"""Niches and the choice between them, the shape of a search, and the rules that end it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evokernel.attempt import Attempt, Candidate, Fault, Proposal, Stage
from evokernel.bench.device import TOO_LOW
from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.evaluation import Status
from evokernel.graphs import niches, stop_rules
from evokernel.memory.start_points import StartPoint
from evokernel.memory.store import Memory
from evokernel.optimize import RunResult, RunStopped, optimize, resume
from evokernel.proposers import Request
from evokernel.record import RunRecord
from evokernel.report.page import page
from evokernel.report.story import Story
from evokernel.testing import (
    CallLog,
    FakeEvaluator,
    ScriptedProposer,
    fake_evaluation,
    fake_graph,
    fake_kernel,
    fake_task,
)

TASK = fake_task()


@pytest.fixture
def memory():
    with Memory.open(MemoryConfig(epsilon=0.0)) as memory:
        yield memory


def config(tmp_path: Path, attempts: int = 99, **search: object) -> RunConfig:
    return RunConfig(
        task=TASK.name,
        runs=tmp_path / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig.model_validate({"width": 1, "recombine": 0.0, **search}),
    )


def run(
    given: RunConfig,
    memory: Memory,
    script: Callable[[Request], str | Fault | None],
    **more: object,
) -> tuple[RunResult, ScriptedProposer]:
    proposer = ScriptedProposer(script)
    services = {"evaluator": FakeEvaluator(TASK), "graph": fake_graph(), **more}
    return optimize(TASK, given, proposer=proposer, memory=memory, **services), proposer


def series(*answers: str | Fault) -> Callable[[Request], str | Fault | None]:
    given = iter(answers)
    return lambda request: next(given, None)


def stopping(result: RunResult) -> dict:
    (event,) = (e for e in RunRecord.open(result.path).events() if e["kind"] == "stopping")
    return event


# -- niches ----------------------------------------------------------------------------------------


def attempt(source: str = "", techniques: tuple[str, ...] = (), **contract: object) -> Attempt:
    candidate = Candidate(source=fake_kernel(note=source), backend="cpp")
    verdict = fake_evaluation(candidate, TASK)
    assert verdict.contract is not None
    verdict = verdict.model_copy(
        update={"contract": verdict.contract.model_copy(update=contract)}, deep=True
    )
    return Attempt(
        number=1,
        step="run/1",
        trajectory=0,
        proposal=Proposal(candidate=candidate, stage=Stage.DRAFT, techniques=techniques),
        evaluation=verdict,
    )


@pytest.mark.parametrize(
    ("given", "niche"),
    [
        (attempt(), "plain"),
        (attempt(techniques=("loop-unrolling", "nontemporal-stores")), "plain"),
        (attempt(techniques=("row-caching", "loop-unrolling", "online-softmax")), None),
        (attempt("_mm256_add_ps(a, b)"), "vectors"),
        (attempt("#pragma omp parallel for simd"), "vectors"),
        (attempt("acc += tl.dot(a, b)"), "tensor-cores"),
        (attempt("__shared__ float tile[32]"), "shared-memory"),
        (attempt(own_kernels=("a", "b")), "plain, 2 kernels"),
        (attempt(own_kernels=("a",), library_calls=("aten.mm",)), "plain, library"),
    ],
)
def test_niche_is_the_algorithm_and_not_its_tuning(given, niche):
    assert niches.niche(given) == (niche or "online-softmax+row-caching")


def point(name: str, ms: float, niche: str, children: int = 0, failing: int = 0) -> StartPoint:
    known = {"children": children, "failing": failing}
    return StartPoint(candidate=name, median_ms=ms, niche=niche, gain=0.0, **known)


def test_best_of_the_least_worked_niche_is_neglected():
    points = (
        point("a", 1.0, "x", children=4),
        point("b", 3.0, "y", children=1),
        point("c", 2.0, "y"),
        point("d", 9.0, "z", children=3, failing=3),
    )
    assert niches.neglected(points).candidate == "c"
    assert niches.neglected(points[:1]) is None
    assert niches.neglected((points[0], points[3])) is None


def test_search_returns_to_an_algorithm_that_it_turned_away_from(tmp_path, memory):
    """The slower algorithm is never of the highest value; exploring gives it its share."""
    fresh = iter(range(99))

    def script(request: Request) -> str:
        algorithm = request.parents[0].proposal.techniques if request.parents else ()
        if not request.parents:
            algorithm = ("online-softmax",) if request.tried else ("row-caching",)
        slow = "online-softmax" in algorithm
        return fake_kernel(8.0 if slow else 2.0, techniques=algorithm, note=str(next(fresh)))

    def worked_on(explore: float) -> list[str]:
        given = config(tmp_path / str(explore), 14, width=2, explore=explore, seed=3)
        result, _ = run(given, memory, script)
        steps = [e for e in RunRecord.open(result.path).events() if e["kind"] == "step"]
        assert stopping(result)["niches"] == {"row-caching": 1, "online-softmax": 2}
        return [step["niche"] for step in steps if step["stage"] == "refine"]

    assert set(worked_on(0.0)) == {"row-caching"}
    explored = worked_on(0.5)
    assert explored.count("online-softmax") >= 3
    assert explored.count("row-caching") >= 3


def test_events_name_trajectory_and_niche(tmp_path, memory):
    script = series(fake_kernel(5.0, techniques=("row-caching",)), fake_kernel(4.0))
    result, _ = run(config(tmp_path, attempts=2, width=2), memory, script)
    told = [e for e in RunRecord.open(result.path).events() if e["kind"] == "attempt"]
    assert [(e["trajectory"], e["niche"]) for e in told] == [(0, "row-caching"), (1, "plain")]


def test_report_names_trajectories_and_niches(tmp_path, memory):
    script = series(fake_kernel(5.0, techniques=("row-caching",)), fake_kernel(4.0))
    result, _ = run(config(tmp_path, attempts=2, width=2), memory, script)
    told = page(Story(RunRecord.open(result.path)), ())
    assert "| 1 | 2 | 1 | attempt 2, 4.000 ms |" in told
    assert "| row-caching | 1 | attempt 1, 5.000 ms |" in told


# -- the shape -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("search", "budget", "shape"),
    [
        ({}, {}, (4, 32)),
        ({"depth": 5}, {}, (4, 20)),
        ({"width": 2}, {}, (2, 16)),
        ({"start": ["a.py"]}, {}, (4, 33)),
        ({}, {"attempts": 16}, (2, 16)),
        ({}, {"attempts": 3}, (1, 3)),
        ({"width": 3}, {"attempts": 3}, (3, 3)),
        ({}, {"attempts": 100}, (4, 100)),
    ],
)
def test_models_get_a_few_serial_trajectories(search, budget, shape):
    given = RunConfig(task="x", proposer="openai/any", search=search, budget=budget)
    assert (given.search.width, given.budget.attempts) == shape
    assert (given.search.patience, given.search.roofline, given.search.explore) == (3, 0.95, 0.2)
    assert RunConfig.model_validate_json(given.model_dump_json()) == given


@pytest.mark.parametrize("proposer", ["templates", "external"])
def test_others_keep_what_is_configured(proposer):
    given = RunConfig(task="x", proposer=proposer)
    assert (given.search, given.budget) == (SearchConfig(), Budget())


def test_working_kernel_of_the_user_takes_the_place_of_a_draft(tmp_path, memory):
    files = []
    for name, source in (("good", fake_kernel(4.0)), ("bad", fake_kernel(status=Status.CRASHED))):
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(source)
    script = series(*(fake_kernel(3.0 - n / 10) for n in range(4)))
    _, proposer = run(config(tmp_path, 6, width=2, start=files), memory, script)
    asked = [(r.stage.value, [a.number for a in r.parents]) for r in proposer.requests]
    assert asked[:2] == [("refine", [1]), ("draft", [])]


# -- what ends it ----------------------------------------------------------------------------------


def test_run_without_a_gain_ends(tmp_path, memory):
    times = (5.0, 4.0, 3.99, 3.98, 3.97, 3.96, 2.0)
    script = series(*(fake_kernel(ms) for ms in times))
    result, _ = run(config(tmp_path, width=2, patience=2), memory, script)
    assert result.attempts == 6
    assert result.reason == "no gain of 2% in 2 rounds (4 attempts; `--patience`)"
    assert stopping(result)["rule"] == "patience"


def test_gain_that_a_second_look_refuted_is_none(tmp_path, memory):
    script = series(fake_kernel(5.0), fake_kernel(1.0, promotes="no"), fake_kernel(4.99))
    result, _ = run(config(tmp_path, patience=2), memory, script)
    assert (result.attempts, result.best.number) == (3, 3)


def test_patience_waits_for_a_first_kernel(tmp_path, memory):
    broken = [fake_kernel(status=Status.CRASHED, note=str(n)) for n in range(5)]
    result, _ = run(config(tmp_path, patience=1), memory, series(*broken))
    assert stopping(result)["rule"] == "exhausted"
    assert result.attempts == 5


def test_kernel_at_the_roofline_is_good_enough_once_it_held(tmp_path, memory):
    """The fake's profile says 0.5 for every kernel."""
    script = series(fake_kernel(1.0, promotes="no"), fake_kernel(2.0), fake_kernel(1.5))
    result, _ = run(config(tmp_path, roofline=0.5), memory, script)
    assert (result.attempts, result.best.number) == (2, 2)
    assert result.second_look.holds
    assert result.reason.startswith("the best kernel (attempt 2) reaches 50% of the roofline")
    assert stopping(result)["rule"] == "roofline"
    record = RunRecord.open(result.path)
    record.add_environment({"peaks": f"16 GB/s from memory ({TOO_LOW})"})
    assert stop_rules.ended(record) is None


CUT_OFF = Fault(kind="cut_off", reason="the reply reached its limit")
NOTHING = Fault(kind="no_candidate", reason="the reply holds no code block")


def test_replies_without_a_candidate_in_a_row_end_a_run(tmp_path, memory):
    answers = [fake_kernel(5.0), NOTHING, CUT_OFF, CUT_OFF, CUT_OFF, fake_kernel(1.0)]
    result, _ = run(config(tmp_path), memory, series(*answers))
    assert (result.attempts, result.best.number) == (5, 1)
    assert stopping(result)["rule"] == "replies"
    assert result.reason == (
        "4 of the last 4 replies held no candidate (3 cut_off, 1 no_candidate), so no more are "
        "paid for; the last one, attempt 5: the reply reached its limit. Allow longer replies, or "
        "choose a model that answers in fewer words"
    )


def test_rising_share_of_empty_replies_ends_a_run(tmp_path, memory):
    answers = [
        *(fake_kernel(5.0, note=str(n)) for n in range(5)),
        *(NOTHING, NOTHING, NOTHING, fake_kernel(4.9), NOTHING, NOTHING),
        *(fake_kernel(4.8), NOTHING, fake_kernel(1.0)),
    ]
    result, _ = run(config(tmp_path), memory, series(*answers))
    assert result.reason.startswith("6 of the last 8 replies held no candidate (6 no_candidate)")


def test_reply_without_a_candidate_is_no_failure_of_its_start_point(tmp_path, memory):
    answers = [fake_kernel(5.0), NOTHING, NOTHING, NOTHING, fake_kernel(4.0)]
    result, _ = run(config(tmp_path, attempts=5, alarm=0), memory, series(*answers))
    first = memory.start_points(result.run)[0]
    assert (first.children, first.failing) == (1, 0)


def test_run_killed_after_it_came_to_its_end_ends_the_same_way(tmp_path):
    def interrupted(call: str) -> None:
        if call == "promote":
            raise KeyboardInterrupt

    given = config(tmp_path, width=2, patience=1).model_copy(
        update={"memory": MemoryConfig(path=tmp_path / "memory")}
    )
    times = {1: 5.0, 2: 5.5, 3: 5.6, 4: 5.7}
    log = CallLog()

    def proposer() -> ScriptedProposer:
        return ScriptedProposer(
            lambda request: fake_kernel(times[int(request.step.rpartition("/")[2])]), log
        )

    judge = FakeEvaluator(TASK, log, before=interrupted)
    with pytest.raises(RunStopped) as stopped:
        optimize(TASK, given, evaluator=judge, proposer=proposer(), graph=fake_graph())
    path = stopped.value.path
    result = resume(path, evaluator=FakeEvaluator(TASK, log), proposer=proposer())
    assert result.reason == "no gain of 2% in 1 round (2 attempts; `--patience`)"
    assert stopping(result)["reason"] == result.reason
    assert log.number("propose") == 3
    assert log.number("verify") == 3
