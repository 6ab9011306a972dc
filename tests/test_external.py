"""A run whose candidates come from outside: parents, memory, repeats, what was cut short."""

from pathlib import Path

import pytest

from evokernel.attempt import Fault, Stage
from evokernel.config import MemoryConfig, RunConfig
from evokernel.errors import ConfigError, WorkerError
from evokernel.evaluation import Status
from evokernel.external import ExternalRun, Submission, most_alike
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.store import Memory
from evokernel.testing import CallLog, FakeEvaluator, fake_graph, fake_kernel, fake_task

TASK = fake_task()


@pytest.fixture
def memory():
    with Memory.open(MemoryConfig()) as memory:
        yield memory


def begin(tmp_path: Path, memory: Memory, log: CallLog | None = None) -> ExternalRun:
    config = RunConfig(task=TASK.name, proposer="external", runs=tmp_path / "runs")
    return ExternalRun.begin(
        TASK,
        config,
        "external/tester",
        evaluator=FakeEvaluator(TASK, log),
        memory=memory,
        graph=fake_graph(),
        is_examined=True,
    )


def slow(note: str = "") -> Submission:
    return Submission(source=fake_kernel(5.0, note=note), parent=0, rationale="a first one")


def test_passed_attempt_waits_in_quarantine_until_confirmed(tmp_path, memory):
    with begin(tmp_path, memory) as run:
        judged = run.judge(slow())
        assert judged.is_best
        (kernel,) = memory.list(kind="kernel")
        assert kernel.status is ExperienceStatus.QUARANTINE
        assert kernel.experience.origin.proposer == "external/tester"
        (answer,) = run.confirm()
        assert answer.holds
        assert memory.get(kernel.experience.id).status is ExperienceStatus.ACTIVE
        assert (run.record.path / "best" / "kernel.py").read_text() == slow().source


def test_what_fresh_processes_refute_is_not_believed(tmp_path, memory):
    with begin(tmp_path, memory) as run:
        run.judge(Submission(source=fake_kernel(1.0, promotes="no"), parent=0))
        run.judge(slow())
        run.confirm()
        statuses = {e.experience.origin.step: e.status for e in memory.list(kind="kernel")}
        assert statuses[f"{run.record.id}/1"] is ExperienceStatus.SUSPECT
        assert statuses[f"{run.record.id}/2"] is ExperienceStatus.ACTIVE
        best = run.record.best()
        assert best is not None
        assert best.number == 2


def test_edit_of_a_named_parent_is_learnt_as_one(tmp_path, memory):
    with begin(tmp_path, memory) as run:
        run.judge(slow())
        judged = run.judge(
            Submission(source=fake_kernel(2.0), parent=1, techniques=("vectorized-math",))
        )
        assert judged.attempt.proposal.stage is Stage.REFINE
        assert judged.attempt.proposal.changed == ("vectorized-math",)
        (edit,) = memory.list(kind="edit")
        speedup = edit.experience.measurement.speedup
        assert speedup is not None
        assert speedup.value == pytest.approx(2.5)


def test_repair_of_a_failure_is_learnt_as_a_fix(tmp_path, memory):
    with begin(tmp_path, memory) as run:
        run.judge(Submission(source=fake_kernel(status=Status.WRONG_VALUES), parent=0))
        run.judge(Submission(source=fake_kernel(4.0), parent=1))
        assert [e.experience.kind for e in memory.list()] == ["fix", "kernel", "lesson"]


def test_parent_that_nobody_names_is_the_most_similar_attempt(tmp_path, memory):
    body = "\n".join(f"# line {n}" for n in range(20))
    with begin(tmp_path, memory) as run:
        run.judge(Submission(source=fake_kernel(5.0) + body))
        run.judge(Submission(source=fake_kernel(4.0, note="quite another one")))
        judged = run.judge(Submission(source=fake_kernel(3.0) + body))
        first = run.attempts()[0].proposal.candidate
        assert judged.attempt.proposal.parents == (first.sha,)
        assert most_alike("nothing in common", run.attempts()) is None


def test_unknown_parent_is_refused_with_what_there_is(tmp_path, memory):
    with begin(tmp_path, memory) as run, pytest.raises(ConfigError, match="no attempt 7"):
        run.judge(Submission(source=fake_kernel(), parent=7))


def test_recalled_experience_earns_the_reward_of_the_next_attempt(tmp_path, memory):
    with begin(tmp_path, memory) as run:
        run.judge(slow())
        run.confirm()
        (shown,) = run.recall(0).experiences
        run.judge(Submission(source=fake_kernel(6.0, note="another"), parent=0, used=(shown.id,)))
        attempt = run.attempts()[-1]
        assert attempt.shown == (shown.id,)
        assert attempt.proposal.used == (shown.id,)
        assert memory.value(shown.id, Stage.DRAFT).visits == 1


def test_same_source_again_is_not_measured_again(tmp_path, memory):
    log = CallLog()
    with begin(tmp_path, memory, log) as run:
        run.judge(slow())
        judged = run.judge(slow())
        assert judged.repeats == 1
        assert judged.attempt.reward is None
    assert log.number("verify") == 1


def test_submission_without_a_candidate_is_an_attempt_that_teaches_nothing(tmp_path, memory):
    fault = Fault(kind="no_candidate", reason="no code block")
    with begin(tmp_path, memory) as run:
        judged = run.judge(Submission(source="# nothing", fault=fault))
        assert judged.attempt.evaluation.status is Status.INVALID_SOURCE
        assert judged.attempt.reward == -1.0
    assert memory.list() == ()


def test_run_goes_on_where_it_was_left(tmp_path, memory):
    with begin(tmp_path, memory) as run:
        run.judge(slow())
        path = run.record.path
    again = ExternalRun.resume(path, evaluator=FakeEvaluator(TASK), memory=memory)
    with again as run:
        assert run.judge(Submission(source=fake_kernel(2.0), parent=1)).number == 2
        assert run.graph == fake_graph()


class Interrupted(Exception):
    pass


def test_candidate_that_was_cut_short_does_not_stand_in_for_the_next_one(tmp_path, memory):
    calls: list[str] = []

    def before(call: str) -> None:
        calls.append(call)
        if calls.count("verify") == 1 and call == "verify":
            raise Interrupted

    config = RunConfig(task=TASK.name, proposer="external", runs=tmp_path / "runs")
    evaluator = FakeEvaluator(TASK, before=before)
    given = {"evaluator": evaluator, "memory": memory, "graph": fake_graph(), "is_examined": True}
    with ExternalRun.begin(TASK, config, **given) as run:
        with pytest.raises(Interrupted):
            run.judge(slow("cut short"))
        judged = run.judge(Submission(source=fake_kernel(2.0), parent=0))
        assert judged.number == 2
        assert judged.attempt.proposal.candidate.source == fake_kernel(2.0)
        assert run.record.skipped() == ("cut short",)


def test_candidate_that_comes_back_after_it_was_cut_short_keeps_its_number(tmp_path, memory):
    config = RunConfig(task=TASK.name, proposer="external", runs=tmp_path / "runs")
    given = {
        "evaluator": FakeEvaluator(TASK),
        "memory": memory,
        "graph": fake_graph(),
        "is_examined": True,
    }
    spoiled = Submission(source=fake_kernel(2.0, spoiled=4), parent=0)
    with ExternalRun.begin(TASK, config, **given) as run:
        with pytest.raises(WorkerError, match="spoiled"):
            run.judge(spoiled)
        assert run.attempts() == ()
        assert run.judge(spoiled).number == 1


def test_step_is_told_in_the_words_that_a_model_gets(tmp_path, memory):
    with begin(tmp_path, memory) as run:
        run.judge(Submission(source=fake_kernel(status=Status.WRONG_VALUES), parent=0))
        retrieval = run.recall(1)
        prompt = run.prompt(run.request(1, retrieval))
        assert prompt is not None
        assert "wrong_values" in prompt.user
        assert "ModelNew" in prompt.system
