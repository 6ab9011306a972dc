"""Ask and tell: a run whose candidates the caller writes."""

from pathlib import Path

import pytest

import evokernel
from evokernel.attempt import Fault, Stage
from evokernel.cli.summary import Summary
from evokernel.config import Budget, MemoryConfig, RunConfig, SearchConfig
from evokernel.errors import ConfigError, RecordError, SessionError, WorkerError
from evokernel.evaluation import Status
from evokernel.memory.store import Memory
from evokernel.optimize import optimize, resume
from evokernel.optimize.session import Session
from evokernel.record import RunRecord
from evokernel.testing import CallLog, FakeEvaluator, ScriptedProposer, fake_graph, fake_kernel
from evokernel.testing import fake_task as task_of

TASK = task_of()


def config(folder: Path, attempts: int = 4, **more: object) -> RunConfig:
    return RunConfig(
        task=TASK.name,
        runs=folder / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig(width=1, recombine=0.0),
        **more,
    )


def begun(folder: Path, attempts: int = 4, log: CallLog | None = None, **more: object) -> Session:
    settings = config(folder, attempts, **more)
    return evokernel.open(TASK, settings, evaluator=FakeEvaluator(TASK, log), graph=fake_graph())


def again(session: Session, log: CallLog | None = None) -> Session:
    return evokernel.reopen(session.path, evaluator=FakeEvaluator(TASK, log))


def test_told_candidates_are_judged_and_counted(tmp_path):
    log = CallLog()
    with begun(tmp_path, attempts=3, log=log) as session:
        first = session.ask()
        assert first is not None
        assert first.stage is Stage.DRAFT
        assert first.baselines == {"eager": 10.0, "compile": 8.0}
        assert session.ask() is first
        assert session.tell(first, fake_kernel(5.0)).status is Status.PASSED
        second = session.ask()
        assert second.stage is Stage.REFINE
        assert second.parents[0].median_ms == 5.0
        assert session.tell(second.step, fake_kernel(4.0)).timing.median_ms == 4.0
        assert session.tell(session.ask(), fake_kernel(2.0, Status.WRONG_VALUES)).reason
        assert session.ask() is None
        result = session.result()
    assert result.reason == "all 3 attempts are spent"
    assert (result.attempts, result.best.median_ms) == (3, 4.0)
    assert result.kernel.read_text() == fake_kernel(4.0)
    assert log.number("verify") == 3
    assert log.number("promote") >= 2


def test_it_follows_the_rules_of_a_run(tmp_path):
    """The same kernels through a proposer of one's own make the same run."""
    sources = [fake_kernel(5.0), fake_kernel(4.0, techniques=("unrolling",)), fake_kernel(4.5)]

    def shape(path: Path) -> list[tuple]:
        return [
            (a.number, a.proposal.stage, a.proposal.parents, a.evaluation.status, a.reward)
            for a in RunRecord.open(path).attempts()
        ]

    with begun(tmp_path / "told", attempts=3) as session:
        for source in sources:
            techniques = ("unrolling",) if "unrolling" in source else ()
            session.tell(session.ask(), source, techniques=techniques)
        assert session.ask() is None
        told = session.path
    given = iter(sources)
    settings = config(tmp_path / "run", attempts=3)
    author = ScriptedProposer(lambda request: next(given))
    ran = optimize(
        TASK, settings, evaluator=FakeEvaluator(TASK), proposer=author, graph=fake_graph()
    )
    assert shape(told) == shape(ran.path)


def test_memory_learns_and_recalls(tmp_path):
    with Memory.open(MemoryConfig(path=tmp_path / "memory")) as memory:
        settings = config(tmp_path)
        judge = FakeEvaluator(TASK)
        with evokernel.open(
            TASK, settings, evaluator=judge, memory=memory, graph=fake_graph()
        ) as session:
            assert session.memory is memory
            session.tell(session.ask(), fake_kernel(5.0))
            request = session.ask()
            session.tell(request, fake_kernel(3.0), used=tuple(e.id for e in request.shown))
            assert session.attempts[-1].reward is not None
            session.finish()
        assert memory.stats().experiences > 0


def test_candidate_that_was_told_is_judged_after_a_crash(tmp_path):
    def spoil(call: str) -> None:
        if call == "verify":
            raise WorkerError("the power went")

    judge = FakeEvaluator(TASK, before=spoil)
    session = evokernel.open(TASK, config(tmp_path), evaluator=judge, graph=fake_graph())
    with session, pytest.raises(WorkerError) as caught:
        session.tell(session.ask(), fake_kernel(5.0))
    assert "evokernel.reopen" in caught.value.__notes__[0]
    assert session.attempts == ()
    with again(session) as second:
        request = second.ask()
        assert [a.median_ms for a in second.attempts] == [5.0]
        assert request.step.endswith("/2")


def test_reopened_session_asks_the_same(tmp_path):
    session = begun(tmp_path)
    with session:
        asked = session.ask()
    with again(session) as second:
        assert second.ask() == asked
        second.tell(asked, fake_kernel(5.0))
    with again(session) as third:
        assert [a.median_ms for a in third.attempts] == [5.0]


def test_declined_request_is_not_counted_and_not_repeated(tmp_path):
    with begun(tmp_path) as session:
        session.tell(session.ask(), fake_kernel(5.0))
        session.decline(session.ask())
        request = session.ask()
        assert request.step.endswith("/3")
        assert request.stage is Stage.DRAFT
        session.decline(request)
        assert session.ask() is None
        assert session.result().reason == "the proposer has nothing new to propose"
        assert len(session.attempts) == 1


def test_reply_without_a_kernel_is_an_attempt(tmp_path):
    with begun(tmp_path) as session:
        fault = Fault(kind="no_candidate", reason="the reply holds no code")
        evaluation = session.tell(session.ask(), "", fault=fault, reply="I cannot")
        assert evaluation.status is Status.INVALID_SOURCE
        assert session.attempts[0].proposal.reply == "I cannot"
        assert session.ask().parents[0].evaluation.reason == "the reply holds no code"


def test_finish_looks_again_at_what_is_open(tmp_path):
    log = CallLog()
    with begun(tmp_path, log=log) as session:
        session.tell(session.ask(), fake_kernel(5.0))
        assert log.number("promote") == 0
        session.ask()
        result = session.finish()
        assert result.reason == "its caller ended it"
        assert result.second_look.holds
        assert session.ask() is None
    with again(session) as ended:
        assert ended.ask() is None
        assert (ended.result().reason, ended.result().attempts) == (result.reason, 1)
        with pytest.raises(SessionError, match="has ended"):
            ended.tell(f"{session.run}/2", fake_kernel(1.0))


def test_session_that_never_asked_can_be_finished(tmp_path):
    with begun(tmp_path) as session:
        assert session.finish().best is None


def test_only_the_open_request_is_answered(tmp_path):
    with begun(tmp_path) as session:
        request = session.ask()
        session.tell(request, fake_kernel(5.0))
        with pytest.raises(SessionError, match="is not the open one"):
            session.tell(request, fake_kernel(4.0))
        now = session.ask()
        with pytest.raises(SessionError, match="holds no source"):
            session.tell(now, "")
        with pytest.raises(SessionError, match="UTF-8"):
            session.tell(now, "\ud800")
        assert session.ask() is now
    with pytest.raises(SessionError, match=r"is closed.*evokernel\.reopen"):
        session.tell(now, fake_kernel(4.0))


def test_prompt_is_what_a_model_reads(tmp_path):
    with begun(tmp_path) as session:
        request = session.ask()
        assert "class Model(nn.Module)" in session.prompt(request)
        assert request.task.source in session.prompt(request.step)


def test_runs_of_others_are_not_reopened(tmp_path):
    ran = optimize(
        TASK,
        config(tmp_path, attempts=1),
        evaluator=FakeEvaluator(TASK),
        proposer=ScriptedProposer(),
        graph=fake_graph(),
    )
    with pytest.raises(SessionError, match=r"come from `templates`.*evokernel resume"):
        evokernel.reopen(ran.path)
    with begun(tmp_path) as session:
        session.ask()
        with pytest.raises(RecordError, match="is being worked on"):
            again(session)
    with pytest.raises(ConfigError, match=r"come from its caller.*evokernel\.reopen"):
        resume(session.path, evaluator=FakeEvaluator(TASK))


def test_functions_stay_functions():
    """The import system binds a module to its name in the package, after each import of it."""
    import evokernel.optimize.session

    assert callable(evokernel.optimize)
    assert evokernel.optimize is optimize


def test_summary_names_no_model(tmp_path):
    with begun(tmp_path, attempts=1) as session:
        session.tell(session.ask(), fake_kernel(5.0))
        session.finish()
    text = Summary(session.record, "", "").text(None).plain
    assert "faster than eager and torch.compile" in text
    assert "model " not in text.partition("how to use it")[0]
