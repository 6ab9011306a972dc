"""A model that works with tools: a scripted server on this machine calls them, through litellm."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evokernel.attempt import Candidate
from evokernel.cli import main
from evokernel.config import AgentConfig, Budget, MemoryConfig, ModelConfig, RunConfig, SearchConfig
from evokernel.errors import ConfigError, ToolsRefused
from evokernel.evaluation import Status
from evokernel.memory.store import Memory
from evokernel.optimize import RunResult, RunStopped, optimize, resume
from evokernel.proposers.llm.agentic import AgenticProposer
from evokernel.proposers.llm.skills import Skills
from evokernel.record import RunRecord
from evokernel.record.spending import spending
from evokernel.report.page import page
from evokernel.report.story import Story
from evokernel.testing import (
    CallLog,
    ChatAnswer,
    ChatServer,
    FakeEvaluator,
    fake_graph,
    fake_kernel,
    fake_task,
)

TASK = fake_task()


def kernel(median_ms: float, status: Status = Status.PASSED) -> str:
    """Fakes differ in comments only, which makes no other program."""
    source = fake_kernel(median_ms, status)
    return f"{source}MARK = {source!r}\n"


def use(tool: str, **arguments: object) -> ChatAnswer:
    return ChatAnswer(
        text=f"I expect a gain from {tool}.", tool_calls=((tool, json.dumps(arguments)),)
    )


def hand_in(body: str) -> str:
    lines = "Plan: as measured\nPredicted speedup: 2\nTechniques: row-caching\nUsed: none\n"
    return f"{lines}\n{body}\n"


def block(source: str) -> str:
    return hand_in(f"```python\n{source}```")


def config(tmp_path: Path, server: ChatServer, attempts: int = 1, **agent: object) -> RunConfig:
    return RunConfig(
        task=TASK.name,
        proposer="scripted",
        model=ModelConfig(base_url=server.url, retries=0),
        agent=AgentConfig.model_validate(agent),
        runs=tmp_path / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig(width=1, recombine=0.0),
        memory=MemoryConfig(path=tmp_path / "memory"),
    )


@pytest.fixture
def run(tmp_path) -> Callable[..., tuple[RunResult, CallLog]]:
    def begin(server: ChatServer, **more: object) -> tuple[RunResult, CallLog]:
        budget = more.pop("budget", None)
        given = config(tmp_path, server, **more)
        given = given.model_copy(update={"budget": budget}) if budget else given
        log = CallLog()
        judge = FakeEvaluator(TASK, log)
        return optimize(TASK, given, evaluator=judge, graph=fake_graph()), log

    return begin


def events(result: RunResult, kind: str) -> list[dict]:
    return [e for e in RunRecord.open(result.path).events() if e["kind"] == kind]


def told(server: ChatServer, index: int) -> str:
    """The last message of a request."""
    return str(server.requests[index]["messages"][-1]["content"])


def test_model_tries_looks_and_hands_in(run, tmp_path):
    slow, fast = kernel(4.0), kernel(2.0)
    script = (
        use("compile", source=kernel(1.0, Status.COMPILE_ERROR)),
        use("evaluate", source=kernel(1.0, Status.WRONG_VALUES)),
        use("evaluate", source=slow),
        use("recall", words="elementwise lesson"),
        use("evaluate", source=fast),
        block(fast),
    )
    with ChatServer(*script) as server:
        result, log = run(server)
        (attempt,) = RunRecord.open(result.path).attempts()
        assert "compile_error" in told(server, 1)
        assert "wrong_values" in told(server, 2)
        assert "takes 4.000 ms a call (measured roughly)" in told(server, 3)
        assert told(server, 4) == "Nothing was found."
        offered = [t["function"]["name"] for t in server.requests[0]["tools"]]
        assert offered == ["compile", "evaluate", "profile", "recall", "read_experience"]
        assert "Expect a factor here" in server.prompt(0)
    assert attempt.proposal.candidate.source == fast
    assert (attempt.proposal.techniques, attempt.proposal.predicted) == (("row-caching",), 2.0)
    assert (result.best.number, spending(RunRecord.open(result.path)).calls) == (1, 6)
    assert attempt.proposal.usage.calls == 6
    tools = [use.tool for use in attempt.proposal.tools]
    assert tools == ["compile", "evaluate", "evaluate", "recall", "evaluate"]
    assert [e["tool"] for e in events(result, "tool")] == tools
    assert log.number("verify") == 4  # three tries, and the verdict
    told_of = page(Story(RunRecord.open(result.path)), ())
    assert "| `evaluate` | 3 | 0 |" in told_of


def test_profile_and_id_of_a_candidate(run):
    source = kernel(2.0)
    sha = _sha(source)
    script = (
        use("evaluate", source=source),
        use("profile", candidate=sha),
        use("profile", candidate="0123456789abcdef"),
        hand_in(f"Candidate: `{sha}`"),
    )
    with ChatServer(*script) as server:
        result, _ = run(server)
        assert "Bound by memory" in told(server, 2)
        assert f"was not evaluated in this step; known: `{sha}`" in told(server, 3)
    assert result.best.proposal.candidate.sha == sha
    assert result.best.proposal.remark == ""


def _sha(source: str) -> str:
    return Candidate(source=source, backend="cpp").sha


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (("evaluate", '{"source": "class Mod'), "are no JSON object"),
        (("evaluate", "[1]"), "are no JSON object"),
        (("evaluate", '{"code": "x"}'), "`evaluate`: `source` cannot be"),
        (("evaluate", '{"source": 3}'), "`source` cannot be 3: Input should be a valid string"),
        (("evaluate", '{"source": "x", "quick": true}'), "`quick` cannot be true: Extra inputs"),
        (("submit", "{}"), "there is no tool `submit`; expected one of `compile`, `evaluate`"),
        (("read_experience", '{"id": "kernel-0"}'), "there is no experience `kernel-0`"),
    ],
)
def test_wrong_call_is_an_answer_and_costs_a_call(run, call, answer):
    with ChatServer(ChatAnswer(tool_calls=(call,)), block(kernel(2.0))) as server:
        result, _ = run(server)
        assert answer in told(server, 1)
    (use_,) = result.best.proposal.tools
    assert use_.is_error


def test_calls_are_bounded_and_the_best_is_taken(run):
    tries = [use("evaluate", source=kernel(ms)) for ms in (4.0, 2.0, 3.0, 1.0)]
    with ChatServer(*tries, *tries) as server:
        result, log = run(server, calls=3)
        assert len(server.requests) == 4
        assert told(server, 3).startswith("This was your last call of a tool. Hand in now")
    assert result.best.proposal.candidate.source == kernel(2.0)
    assert "the fastest of 3 evaluated candidates was taken" in result.best.proposal.remark
    assert log.number("verify") == 4


def test_replies_and_tokens_are_bounded(run):
    tries = [use("recall", words="x") for _ in range(9)]
    with ChatServer(*tries) as server:
        result, _ = run(server, replies=3)
        assert len(server.requests) == 3
    (attempt,) = RunRecord.open(result.path).attempts()
    assert attempt.evaluation.status is Status.INVALID_SOURCE
    assert "nothing was handed in after 3 calls of tools" in attempt.evaluation.reason
    with ChatServer(*tries) as server:
        run(server, tokens=1)
        assert len(server.requests) == 2


def test_spent_budget_takes_the_best_so_far(run):
    with ChatServer(block(kernel(5.0))) as server:
        run(server)
        asked = len(json.dumps(server.requests[0])) // 3
    script = (use("evaluate", source=kernel(2.0)), use("evaluate", source=kernel(1.0)))
    room = asked + 1_500  # for one call and the shortest reply, but not for two
    with ChatServer(*script, block(kernel(1.0))) as server:
        result, _ = run(server, budget=Budget(attempts=5, tokens=room))
        assert len(server.requests) == 1
    assert result.best.proposal.candidate.source == kernel(2.0)
    assert "tokens are spent" in result.best.proposal.remark
    assert spending(RunRecord.open(result.path)).tokens <= room


def test_reply_without_a_candidate_is_asked_back(run):
    with ChatServer("I would vectorise it.", block(kernel(2.0))) as server:
        result, _ = run(server)
        assert "Hand in the complete file in one block" in told(server, 1)
    assert result.best.median_ms == 2.0


def test_start_point_that_was_only_evaluated_is_not_handed_in_again(run):
    first, second = kernel(4.0), kernel(3.0)
    script = (
        block(first),
        use("evaluate", source=first),
        use("evaluate", source=second),
        "No idea.",
        "None at all.",
    )
    with ChatServer(*script) as server:
        result, _ = run(server, attempts=2)
    assert [a.median_ms for a in RunRecord.open(result.path).attempts()] == [4.0, 3.0]


@pytest.mark.parametrize("at", [2, 3, 4])
def test_killed_step_pays_and_measures_nothing_twice(tmp_path, at):
    """Stopped before the n-th judgement, of which the first three belong to tools."""
    script = [
        *(use("evaluate", source=kernel(ms)) for ms in (4.0, 3.0, 2.0)),
        hand_in(f"Candidate: {_sha(kernel(2.0))}"),
    ]
    log = CallLog(tmp_path / "calls.txt")

    def stop(call: str) -> None:
        if call == "verify" and log.number("verify") == at - 1:
            raise KeyboardInterrupt

    with ChatServer(*script) as server:
        given = config(tmp_path, server)
        judge = FakeEvaluator(TASK, log, before=stop)
        with pytest.raises(RunStopped) as stopped:
            optimize(TASK, given, evaluator=judge, graph=fake_graph())
        result = resume(stopped.value.path, evaluator=FakeEvaluator(TASK, log))
        assert len(server.requests) == 4
    assert result.best.median_ms == 2.0
    assert log.number("verify") == 4
    assert len(events(result, "tool")) == 3
    assert spending(RunRecord.open(result.path)).calls == 4


def test_tools_show_only_what_retrieval_might_show(run, tmp_path):
    with ChatServer(block(kernel(3.0)), block(kernel(2.0))) as server:
        run(server, attempts=2)
    with Memory.open(MemoryConfig(path=tmp_path / "memory")) as memory:
        entries = {entry.experience.id: entry for entry in memory.list()}
        (hidden,) = [i for i, e in entries.items() if e.experience.kind == "edit"]
        memory.forget(memory.withdrawal([hidden]), "for this test")
        (shown, *_) = [
            entry.experience.id
            for entry in memory.list()
            if entry.experience.kind == "kernel" and entry.status == "active"
        ]
    script = (
        use("recall", words="kernel edit"),
        use("read_experience", id=shown),
        use("read_experience", id=hidden),
        block(kernel(1.0)),
    )
    with ChatServer(*script) as server:
        result, _ = run(server)
        assert shown in told(server, 1)
        assert hidden not in told(server, 1)
        assert "Source:" in told(server, 2)
        assert f"there is no experience `{hidden}`" in told(server, 3)
    assert result.best.median_ms == 1.0


def test_values_of_a_models_kernel_are_searched_after_it_was_handed_in(run):
    lines = ["# median_ms: 5.0", "# median_ms at BLOCK=64: 2.0", "BLOCK = 8"]
    source = "\n".join([*lines, 'TUNE = {"BLOCK": [8, 64]}', "class ModelNew:", "    pass", ""])
    script = (use("evaluate", source=source), block(source), block(kernel(1.5)))
    with ChatServer(*script) as server:
        result, _ = run(server, attempts=2)
        assert "takes 5.000 ms" in told(server, 1)
        assert "BLOCK = 64" in server.prompt(2)
    first, _ = RunRecord.open(result.path).attempts()
    assert first.proposal.tuning is not None
    assert (first.proposal.tuning.chosen, first.median_ms) == ({"BLOCK": 64}, 2.0)


# -- models without tools --------------------------------------------------------------------------

REFUSED = ChatAnswer(status=400, text="this model does not support tools")


def test_server_that_takes_no_tools_is_a_clear_error(run):
    with ChatServer(REFUSED) as server, pytest.raises(ToolsRefused) as caught:
        run(server)
    assert "does not support tools" in str(caught.value)
    assert "--or-plain" in str(caught.value)


def test_server_that_takes_no_tools_is_asked_without_where_that_is_wanted(run):
    with ChatServer(REFUSED, block(kernel(2.0)), block(kernel(1.0))) as server:
        result, _ = run(server, attempts=2, or_plain=True)
        assert ["tools" in request for request in server.requests] == [True, False, False]
        assert "How you work in this step" not in server.prompt(1)
    assert result.best.median_ms == 1.0


def test_model_that_is_known_to_call_no_tools_is_refused_before_the_first_call(monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "none-at-all")
    name = "deepseek/deepseek-reasoner"
    with pytest.raises(ConfigError, match="cannot call tools.*`--or-plain`"):
        AgenticProposer(name).check(TASK, fake_graph(), "cpp")
    AgenticProposer(name, agent=AgentConfig(or_plain=True)).check(TASK, fake_graph(), "cpp")


# -- skills ----------------------------------------------------------------------------------------


def test_skills_of_the_user_come_beside_ours_and_in_their_place(tmp_path):
    (tmp_path / "2-algorithm.md").write_text("# My way\nUse $calls calls.")
    (tmp_path / "9-mine.cuda.md").write_text("# Only for CUDA")
    (tmp_path / "8-long.md").write_text("# Long\n" + "x" * 20_000)
    agent = AgentConfig(skills=tmp_path, calls=7)
    skills = Skills.load(agent, "cpp")
    text = skills.written(agent)
    assert "Use 7 calls." in text
    assert "Expect a factor here" not in text
    assert "Only for CUDA" not in text
    assert "Only for CUDA" in Skills.load(agent, "cuda").written(agent)
    assert "- `8-long`: Long" in text
    assert [skill.name for skill in skills.listed] == ["8-long"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (None, "", "holds no skill"),
        ("a.rust.md", "x", "names no language"),
        ("a.md", "x" * 60_001, "at most 60,000"),
    ],
)
def test_skills_that_cannot_be_used_are_named(tmp_path, name, content, words):
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=words):
        Skills.load(AgentConfig(skills=tmp_path), "cpp")


def test_listed_skill_is_read_through_a_tool(run, tmp_path):
    folder = tmp_path / "skills"
    folder.mkdir()
    (folder / "8-long.md").write_text("# Long\n" + "x" * 20_000)
    script = (use("read_skill", name="8-long"), use("read_skill", name="9"), block(kernel(2.0)))
    with ChatServer(*script) as server:
        run(server, skills=folder)
        assert told(server, 1).startswith("# Long")
        assert "listed are 8-long" in told(server, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--agentic"], "`--agentic` is about a model"),
        (["--model", "openai/x", "--or-plain"], "`--or-plain` is about `--agentic`"),
        (["--model", "openai/x", "--agentic", "--skills", "nowhere"], "no such folder"),
    ],
)
def test_options_that_mean_nothing_are_refused(given, words, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none-at-all")
    assert main(["run", "softmax", *given]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_the_recording_with_tools_that_comes_along_goes_through_them_again(tmp_path):
    given = RunConfig(
        task=TASK.name,
        proposer="replay:swiglu",
        agent=AgentConfig(),
        runs=tmp_path / "runs",
        budget=Budget(attempts=4),
        search=SearchConfig(width=2, depth=2),
        memory=MemoryConfig(path=None, policy="none"),
    )
    judge = FakeEvaluator(TASK, CallLog())
    result = optimize(TASK, given, evaluator=judge, graph=fake_graph())
    attempts = RunRecord.open(result.path).attempts()
    assert [len(attempt.proposal.tools) for attempt in attempts] == [3, 2, 1, 1]
    assert all("jit.cpp_module" in attempt.proposal.candidate.source for attempt in attempts)
    assert spending(RunRecord.open(result.path)).usd == 0
