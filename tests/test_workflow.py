"""Each node alone, the choice of the next step, and whole runs with fakes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from langgraph.runtime import Runtime

from evokernel.attempt import Stage
from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.errors import ConfigError, EvoKernelError, RecordError, WorkerError
from evokernel.evaluation import Status
from evokernel.graphs import claims, nodes
from evokernel.graphs.budget import node_limit
from evokernel.graphs.selection import Plan
from evokernel.graphs.state import Services, State, plain, require_plain
from evokernel.graphs.workflow import build
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.retrieval import Query
from evokernel.memory.store import Memory
from evokernel.optimize import RunResult, optimize, resume
from evokernel.proposers import Request
from evokernel.record import RunRecord
from evokernel.testing import (
    CallLog,
    FakeClock,
    FakeEvaluator,
    ScriptedProposer,
    fake_graph,
    fake_kernel,
    fake_task,
)

TASK = fake_task()
STEPS = (nodes.retrieve, nodes.draft, nodes.compile, nodes.verify, nodes.profile, nodes.learn)


@pytest.fixture
def memory():
    with Memory.open(MemoryConfig()) as memory:
        yield memory


def config(tmp_path: Path, attempts: int = 4, **search: object) -> RunConfig:
    return RunConfig(
        task=TASK.name,
        runs=tmp_path / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig.model_validate({"width": 1, "recombine": 0.0, **search}),
    )


def series(*sources: str | None) -> Callable[[Request], str | None]:
    """A script that answers step after step, and has nothing new to propose after the last one."""
    given = iter(sources)
    return lambda request: next(given, None)


def services(tmp_path: Path, memory: Memory, *sources: str | None, **search: object) -> Services:
    log = CallLog()
    return Services(
        record=RunRecord.create(config(tmp_path, **search), TASK, fake_graph()),
        task=TASK,
        graph=fake_graph(),
        evaluator=FakeEvaluator(TASK, log),
        proposer=ScriptedProposer(series(*sources), log),
        memory=memory,
    )


def calls(given: Services) -> CallLog:
    assert isinstance(given.evaluator, FakeEvaluator)
    return given.evaluator.log


def step(given: Services, *path: Callable[[State, Runtime[Services]], State]) -> State:
    """Run nodes one after the other, as the workflow would; each twice, as a resumed run might."""
    state: State = {}
    for node in path:
        once = node(state, Runtime(context=given))
        number = calls(given).lines()
        again = node({**state, **once}, Runtime(context=given))
        assert calls(given).lines() == number
        assert again == once
        state = {**state, **once}
    return state


# -- the state -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": (1, 2)}, "state.a"),
        ({"a": [1, {"b": 2**63}]}, "state.a[1].b"),
        ({"a": float("nan")}, "state.a"),
        ({"a": Status.PASSED}, "state.a"),
        ({"a": "\ud800"}, "state.a"),
        ({1: "a"}, "state.1"),
        ({"a": [TASK]}, "state.a[0]"),
    ],
)
def test_value_that_a_checkpoint_would_spoil_is_named(value, place):
    with pytest.raises(EvoKernelError, match="plain JSON values only") as caught:
        require_plain(value, "state")
    assert f"`{place}`" in str(caught.value)


def test_numpy_number_is_named_before_the_checkpoint_breaks(tmp_path, memory):
    numpy = pytest.importorskip("numpy")

    def verify(state: State, runtime: Runtime[Services]) -> State:
        return {"number": numpy.int64(3)}

    with pytest.raises(EvoKernelError, match=r"node `verify` returned\.number` is .*int64"):
        plain(verify)({}, Runtime(context=services(tmp_path, memory)))


def test_plain_values_pass():
    require_plain({"a": [1, 2.5, "ü", None, True, {"b": -(2**63)}]}, "state")


# -- each node alone -------------------------------------------------------------------------------


def test_prepare_times_the_baselines_once(tmp_path, memory):
    given = services(tmp_path, memory)
    step(given, nodes.prepare)
    assert given.record.baselines() == {"eager": 10.0, "compile": 8.0}
    assert RunRecord.open(given.record.path).header.environment["device"] == "fake"
    assert calls(given).lines() == ["baselines"]


def test_retrieve_plans_a_step_and_repeats_itself(tmp_path, memory):
    given = services(tmp_path, memory)
    state = step(given, nodes.retrieve)
    assert state == {"number": 1, "stage": "draft", "status": "", "is_best": False}
    plan = given.record.load(1, "plan", Plan)
    assert (plan.trajectory, plan.stage, plan.step) == (0, Stage.DRAFT, f"{given.record.id}/1")
    assert [event["kind"] for event in given.record.events()] == ["step"]


def test_proposal_is_paid_for_once(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(techniques=("a",)), fake_kernel(2.0))
    step(given, nodes.retrieve, nodes.draft)
    assert calls(given).lines() == ["propose 1"]
    assert given.record.proposal(1).techniques == ("a",)
    assert given.record.proposal(1).usage.seconds > 0


def test_proposer_without_an_idea_closes_the_step(tmp_path, memory):
    given = services(tmp_path, memory)
    state: State = nodes.retrieve({}, Runtime(context=given))
    assert nodes.draft(state, Runtime(context=given)) == {"status": nodes.SKIPPED}
    assert given.record.skipped() == ("draft",)
    assert given.record.next_number() == 2
    assert nodes.retrieve({}, Runtime(context=given))["reason"].startswith(
        "the proposer has nothing"
    )


def test_candidate_that_does_not_compile_is_judged_by_that(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(status=Status.COMPILE_ERROR))
    state = step(given, *STEPS[:3])
    assert state["status"] == "compile_error"
    assert given.record.evaluation(1).status is Status.COMPILE_ERROR


def test_kernel_is_built_and_measured_once(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(2.5, bound_by="compute"))
    state = step(given, *STEPS)
    sha = given.record.proposal(1).candidate.sha
    assert calls(given).counts() == {
        "propose 1": 1,
        f"compile {sha}": 1,
        f"verify {sha}": 1,
        f"profile {sha}": 1,
    }
    assert state["status"] == ""
    assert given.record.evaluation(1).timing.median_ms == 2.5
    assert given.record.evaluation(1).profile.bound_by == "compute"


def test_disturbed_measurement_is_repeated_and_not_charged(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(spoiled=3))
    step(given, *STEPS)
    (attempt,) = given.record.attempts()
    assert attempt.evaluation.status is Status.PASSED
    assert calls(given).number("spoiled") == 3


def test_machine_that_stays_disturbed_stops_the_run(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(spoiled=5))
    state = step(given, *STEPS[:3])
    with pytest.raises(WorkerError, match="spoiled it 4 times, the last time because the machine"):
        nodes.verify(state, Runtime(context=given))
    assert not given.record.has(1, "evaluation")
    assert nodes.verify(state, Runtime(context=given)) == {"status": ""}


def test_learning_rewards_and_keeps_once(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(2.5))
    state = step(given, *STEPS)
    (attempt,) = given.record.attempts()
    assert attempt.reward == 1.0
    assert state["is_best"] is False  # there was none before it
    assert (given.record.path / "best" / "kernel.py").read_text() == fake_kernel(2.5)
    assert [entry.experience.kind for entry in memory.list()] == ["kernel"]
    assert [point.candidate for point in memory.start_points(given.record.id)] == [
        attempt.proposal.candidate.sha
    ]


def test_failure_is_a_lesson_at_once(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(status=Status.WRONG_VALUES))
    step(given, *STEPS[:4], nodes.learn)
    (entry,) = memory.list()
    assert (entry.experience.kind, entry.status) == ("lesson", ExperienceStatus.ACTIVE)
    assert given.record.attempts()[0].reward == -1.0
    assert given.record.best() is None


def test_promotion_looks_at_a_claim_once(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(3.0), fake_kernel(2.0, promotes="no"))
    step(given, *STEPS)
    step(given, *STEPS)
    first, second = (a.proposal.candidate.sha for a in given.record.attempts())
    step(given, lambda state, runtime: {"reason": "enough"}, nodes.promote)
    assert [line for line in calls(given).lines() if line.startswith("promote")] == [
        f"promote kernel {first}",
        f"promote kernel {second}",
        f"promote edit {second}",
    ]
    assert given.record.best().number == 1
    assert (given.record.path / "best" / "kernel.py").read_text() == fake_kernel(3.0)
    statuses = {(e.experience.kind, e.experience.origin.candidate): e.status for e in memory.list()}
    assert statuses["kernel", first] is ExperienceStatus.ACTIVE
    assert statuses["kernel", second] is ExperienceStatus.SUSPECT


def test_new_best_is_promoted_alone(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(3.0), fake_kernel(2.0))
    step(given, *STEPS)
    state = step(given, *STEPS)
    assert state["is_best"] is True
    step(given, lambda _, runtime: state, nodes.promote)
    second = given.record.attempts()[1].proposal.candidate.sha
    promoted = [line for line in calls(given).lines() if line.startswith("promote")]
    assert promoted == [f"promote kernel {second}", f"promote edit {second}"]


def test_claim_that_the_machine_spoiled_stays_open(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(3.0, promotes="spoiled"), fake_kernel(2.0))
    step(given, *STEPS)
    step(given, *STEPS)
    step(given, lambda state, runtime: {"reason": "enough"}, nodes.promote)
    assert len(claims.pending(given.record)) == 1
    statuses = [entry.status for entry in memory.list(kind="kernel")]
    assert sorted(statuses) == [ExperienceStatus.ACTIVE, ExperienceStatus.QUARANTINE]


def test_repeated_candidate_is_not_judged_again(tmp_path, memory):
    given = services(tmp_path, memory, fake_kernel(3.0), fake_kernel(3.0))
    step(given, *STEPS)
    step(given, *STEPS)
    first, second = given.record.attempts()
    assert second.evaluation == first.evaluation
    assert second.reward is None
    assert calls(given).number("verify") == 1
    assert len(memory.list()) == 1


# -- whole runs ------------------------------------------------------------------------------------


def run(
    tmp_path: Path,
    memory: Memory,
    script: Callable[[Request], str | None] | None = None,
    given: RunConfig | None = None,
    **more: object,
) -> tuple[RunResult, ScriptedProposer, FakeEvaluator]:
    proposer, evaluator = ScriptedProposer(script), FakeEvaluator(TASK)
    chosen = {"evaluator": evaluator, "graph": fake_graph(), **more}
    result = optimize(TASK, given or config(tmp_path), proposer=proposer, memory=memory, **chosen)
    return result, proposer, evaluator


def attempts_of(result: RunResult) -> list[tuple[int, int, str, int]]:
    """Number, trajectory, stage and number of parents of every attempt."""
    return [
        (a.number, a.trajectory, a.proposal.stage.value, len(a.proposal.parents))
        for a in RunRecord.open(result.path).attempts()
    ]


def test_run_drafts_then_refines(tmp_path, memory):
    script = series(*(fake_kernel(ms) for ms in (5.0, 4.0, 6.0, 3.0)))
    result, proposer, evaluator = run(tmp_path, memory, script)
    assert attempts_of(result) == [(1, 0, "draft", 0)] + [(n, 0, "refine", 1) for n in (2, 3, 4)]
    assert result.reason == "all 4 attempts are spent"
    assert result.best.number == 4
    assert result.kernel.read_text() == fake_kernel(3.0)
    assert result.speedup("eager").value == pytest.approx(10 / 3)
    assert result.second_look.holds
    assert not evaluator.is_open
    assert len(proposer.requests[3].tried) == 3


def test_run_in_another_precision_keeps_it(tmp_path, memory):
    given = config(tmp_path, attempts=1).model_copy(update={"precision": "bf16"})
    result, *_ = run(tmp_path, memory, given=given)
    task = RunRecord.open(result.path).task()
    assert (task.options.precision, TASK.options.precision) == ("bf16", "fp32")
    assert task.sha != TASK.sha


def test_rewards_are_those_of_the_paper(tmp_path, memory):
    script = series(fake_kernel(4.0), fake_kernel(2.0), fake_kernel(status=Status.CRASHED))
    result, *_ = run(tmp_path, memory, script, config(tmp_path, attempts=3))
    rewards = [a.reward for a in RunRecord.open(result.path).attempts()]
    assert rewards == [1.0, pytest.approx(0.6), -1.0]  # tanh(ln 2) is 3/5
    stages = {stats.stage: stats.rewards for stats in memory.stats().stages}
    assert sum(stages.values()) == 3


def test_trajectories_take_turns_and_begin_with_drafts_of_their_own(tmp_path, memory):
    result, proposer, _ = run(tmp_path, memory, given=config(tmp_path, attempts=7, width=3, seed=5))
    assert [trajectory for _, trajectory, *_ in attempts_of(result)] == [0, 1, 2, 0, 1, 2, 0]
    assert [request.stage for request in proposer.requests[:3]] == [Stage.DRAFT] * 3
    assert len(proposer.requests[2].tried) == 2


def test_failed_draft_is_repaired_a_few_times(tmp_path, memory):
    broken = [fake_kernel(status=Status.COMPILE_ERROR, note=str(n)) for n in range(4)]
    script = series(*broken, fake_kernel(3.0), fake_kernel(2.0))
    given = config(tmp_path, attempts=6, repairs=2)
    result, proposer, _ = run(tmp_path, memory, script, given)
    parents = [[a.number for a in request.parents] for request in proposer.requests]
    assert parents == [[], [1], [2], [], [4], [5]]
    assert [r.stage.value for r in proposer.requests] == 5 * ["draft"] + ["refine"]
    kinds = {entry.experience.kind for entry in memory.list(run=result.run)}
    assert kinds == {"lesson", "kernel", "fix", "edit"}


def test_trajectory_that_cannot_draft_refines_the_others(tmp_path, memory):
    broken = [fake_kernel(status=Status.CRASHED, note=str(n)) for n in range(3)]
    script = series(fake_kernel(5.0), broken[0], fake_kernel(4.0), broken[1], fake_kernel(3.0))
    given = config(tmp_path, attempts=5, width=2, repairs=0)
    _, proposer, _ = run(tmp_path, memory, script, given)
    assert [r.stage.value for r in proposer.requests] == ["draft", "draft", *3 * ["refine"]]


def test_recombination_gets_two_start_points(tmp_path, memory):
    given = config(tmp_path, attempts=6, width=2, recombine=1.0)
    result, proposer, _ = run(tmp_path, memory, given=given)
    refinements = [r for r in proposer.requests if r.stage is Stage.REFINE]
    assert max(len(r.parents) for r in refinements) == 2
    assert any("recombine attempt" in event.get("why", "") for event in events(result))


def events(result: RunResult) -> list[dict]:
    return list(RunRecord.open(result.path).events())


def test_start_points_that_cannot_be_combined_leave_one_to_edit(tmp_path, memory):
    fresh = iter(range(100))

    def script(request: Request) -> str | None:
        return None if len(request.parents) == 2 else fake_kernel(5.0, note=str(next(fresh)))

    given = config(tmp_path, attempts=5, width=2, recombine=1.0)
    result, proposer, _ = run(tmp_path, memory, script, given)
    assert len(RunRecord.open(result.path).attempts()) == 5
    assert 2 in [len(request.parents) for request in proposer.requests]
    assert {parents for *_, parents in attempts_of(result)} == {0, 1}


def test_users_own_kernels_come_first_and_are_refined(tmp_path, memory):
    files = []
    for ms in (2.0, 9.0):
        files.append(tmp_path / f"mine-{ms}.py")
        files[-1].write_text(fake_kernel(ms))
    script = series(fake_kernel(8.0), fake_kernel(1.0))
    given = config(tmp_path, attempts=4, start=tuple(files))
    result, proposer, _ = run(tmp_path, memory, script, given)
    recorded = RunRecord.open(result.path).attempts()
    assert [a.median_ms for a in recorded] == [2.0, 9.0, 8.0, 1.0]
    assert [a.reward is None for a in recorded] == [True, True, False, False]
    assert proposer.requests[1].parents
    assert {e.experience.origin.proposer for e in memory.list()} == {"user", "scripted"}


def test_more_start_kernels_than_attempts_are_refused(tmp_path, memory):
    given = config(tmp_path, attempts=1, start=(Path("a.py"), Path("b.py")))
    with pytest.raises(ConfigError, match="names 2 kernels.*raise `--attempts`"):
        run(tmp_path, memory, given=given)
    assert not (tmp_path / "runs").exists()


def test_minutes_end_a_run(tmp_path, memory):
    clock = FakeClock()
    given = config(tmp_path, attempts=99)
    given = given.model_copy(update={"budget": Budget(attempts=99, minutes=1)})
    evaluator = FakeEvaluator(TASK, clock=clock, seconds=25)
    result, *_ = run(tmp_path, memory, given=given, evaluator=evaluator, clock=clock)
    assert (result.attempts, result.reason) == (3, "all 1 minutes are spent")


def test_depth_ends_a_run(tmp_path, memory):
    given = config(tmp_path, attempts=99, width=2, depth=2)
    result, *_ = run(tmp_path, memory, given=given)
    assert (result.attempts, result.reason) == (4, "all 2 turns of each of 2 trajectories are made")


def test_exhausted_proposer_ends_a_run_normally(tmp_path, memory):
    script = series(fake_kernel(5.0), fake_kernel(4.0))
    result, proposer, _ = run(tmp_path, memory, script, config(tmp_path, attempts=99))
    assert result.reason == "the proposer has nothing new to propose"
    assert result.attempts == 2
    assert result.best.number == 2
    assert result.second_look
    # Each start point was asked for, then a draft; nothing twice.
    asked = [(r.stage, [a.number for a in r.parents]) for r in proposer.requests[2:]]
    assert len(asked) == len({str(option) for option in asked}) == 3


def test_hopeless_run_ends_normally(tmp_path, memory):
    script = series(*(fake_kernel(status=Status.CRASHED, note=str(n)) for n in range(4)))
    result, *_ = run(tmp_path, memory, script)
    assert (result.best, result.kernel, result.attempts) == (None, None, 4)


def test_refuted_kernel_is_not_the_best(tmp_path, memory):
    script = series(fake_kernel(5.0), fake_kernel(1.0, promotes="no"), fake_kernel(4.0))
    result, *_ = run(tmp_path, memory, script, config(tmp_path, attempts=3))
    assert result.best.number == 3
    assert result.kernel.read_text() == fake_kernel(4.0)


def test_same_seed_gives_the_same_kernels(tmp_path):
    def sources(where: str) -> list[str]:
        with Memory.open(MemoryConfig(epsilon=0.0)) as memory:
            given = config(tmp_path / where, attempts=5, width=2, seed=11)
            result, *_ = run(tmp_path / where, memory, given=given)
        return [a.proposal.candidate.sha for a in RunRecord.open(result.path).attempts()]

    assert sources("one") == sources("two")


def test_shown_experiences_reach_the_proposer(tmp_path, memory):
    _, proposer, _ = run(tmp_path, memory, given=config(tmp_path, attempts=6, seed=2))
    shown = [experience.id for request in proposer.requests for experience in request.shown]
    assert set(shown) & {entry.experience.id for entry in memory.list()}
    for request in proposer.requests:
        made = {attempt.proposal.candidate.sha for attempt in request.parents}
        kernels = {e.origin.candidate for e in request.shown if e.kind == "kernel"}
        assert not made & kernels  # the start point itself is in the request already


def test_next_task_can_retrieve_most_of_a_run(tmp_path, memory):
    result, *_ = run(tmp_path, memory, given=config(tmp_path, attempts=12, width=2, seed=4))
    active = memory.list(status=ExperienceStatus.ACTIVE, run=result.run)
    assert len({entry.experience.origin.step for entry in active}) >= 6
    for stage in Stage:
        query = Query(
            task="another",
            graph=fake_graph(rows=64),
            stage=stage,
            backend="cpp",
            family="elementwise",
            fingerprint="another",
            run="another-run",
            step=f"another-run/{stage}",
            seed=0,
        )
        assert memory.recall(query).ids


def test_events_tell_the_whole_story(tmp_path, memory):
    seen = []
    script = series(fake_kernel(5.0), fake_kernel(4.0))
    result, *_ = run(tmp_path, memory, script, config(tmp_path, attempts=2), on_event=seen.append)
    attempt = ["step", "proposed", "compiled", "evaluated", "profiled", "attempt"]
    promotion = ["promoting", "promoted"]
    first, last = [*attempt, *attempt, *promotion], ["stopping", *promotion, "ended"]
    told = ["began", "baselines", *first, *last]
    assert [event["kind"] for event in seen] == told
    assert seen == events(result)
    json.dumps(seen)


def test_run_stays_within_its_node_limit(tmp_path, memory):
    script = series(*(fake_kernel(9.0 - n / 10) for n in range(12)))
    result, *_ = run(tmp_path, memory, script, config(tmp_path, attempts=12, width=3))
    record = RunRecord.open(result.path)
    passed = sum(event["kind"] != "began" for event in record.events())
    assert passed <= node_limit(record)


def test_graph_is_drawn_as_described():
    drawn = build().compile().get_graph()
    edges = {(edge.source, edge.target) for edge in drawn.edges}
    assert {("verify", "learn"), ("compile", "learn"), ("learn", "promote")} <= edges
    assert ("promote", "__end__") in edges
    assert [s for s, t in edges if t == "__end__"] == ["promote"]


def test_nothing_is_traced_or_sent(tmp_path):
    """A tracer switched on in the user's environment would send every state away."""
    code = """
import socket, sys
from pathlib import Path
from evokernel.config import Budget, MemoryConfig, RunConfig
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_task
def refuse(event, given):
    if event in ("socket.connect", "socket.getaddrinfo"):
        print("connects to", given, flush=True)
sys.addaudithook(refuse)
from evokernel.optimize import optimize
task = fake_task()
config = RunConfig(task="x", runs=Path(sys.argv[1]), budget=Budget(attempts=2))
given = {"evaluator": FakeEvaluator(task), "proposer": ScriptedProposer(), "graph": fake_graph()}
optimize(task, config, **given)
print("done")
"""
    told = {
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_API_KEY": "none",
        "LANGSMITH_ENDPOINT": "http://127.0.0.1:9",
        "ANONYMIZED_TELEMETRY": "True",
    }
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, **told}, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "done\n", done.stderr


# -- what is broken --------------------------------------------------------------------------------


def test_run_that_cannot_be_written_begins_nothing(tmp_path, memory):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(RecordError, match="cannot be written") as caught:
        run(tmp_path, memory)
    assert caught.value.exit_code == 2


def test_failure_under_way_leaves_a_run_to_resume(tmp_path, memory):
    script = series(fake_kernel(5.0), fake_kernel(4.0, spoiled=4), fake_kernel(3.0))
    evaluator = FakeEvaluator(TASK)
    with pytest.raises(WorkerError) as caught:
        run(tmp_path, memory, script, config(tmp_path, attempts=3), evaluator=evaluator)
    assert caught.value.exit_code == 1
    assert "evokernel resume" in caught.value.__notes__[0]
    (path,) = (tmp_path / "runs").iterdir()
    assert list(RunRecord.open(path).events())[-1]["kind"] == "failed"
    proposer = ScriptedProposer(series(fake_kernel(3.0)))
    result = resume(path, evaluator=evaluator, proposer=proposer, memory=memory)
    assert [a.median_ms for a in RunRecord.open(path).attempts()] == [5.0, 4.0, 3.0]
    assert result.reason == "all 3 attempts are spent"
