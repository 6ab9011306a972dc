"""A model's candidates through the real litellm, from a scripted server on this machine.

Importing litellm takes seconds, so that everything that needs it stands in this one file.
"""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from evokernel.attempt import Stage
from evokernel.cli import main
from evokernel.cli.run import conduct
from evokernel.config import (
    Budget,
    MemoryConfig,
    ModelConfig,
    RunConfig,
    SearchConfig,
    StageModel,
)
from evokernel.errors import (
    ConfigError,
    ContentRefused,
    KeyRefused,
    ModelError,
    NoSuchModel,
    PromptTooLong,
    RateLimited,
    RecordingEnded,
    ReplyTimeout,
    Unreachable,
)
from evokernel.evaluation import Status
from evokernel.memory.store import Memory
from evokernel.optimize import RunResult, RunStopped, optimize, resume
from evokernel.prompts import Texts
from evokernel.proposers import Request
from evokernel.proposers.llm import ModelProposer
from evokernel.proposers.llm.access import Access
from evokernel.proposers.llm.endpoint import library
from evokernel.proposers.llm.endpoint import sent as sent_messages
from evokernel.proposers.llm.facts import facts
from evokernel.proposers.llm.messages import Message, Tool
from evokernel.proposers.llm.providers import PROVIDERS
from evokernel.proposers.llm.replay import SHIPPED, Recording, shipped
from evokernel.proposers.llm.scrubbing import scrubbed
from evokernel.record import RunRecord
from evokernel.record.spending import spending
from evokernel.testing import (
    CallLog,
    ChatAnswer,
    ChatServer,
    FakeEvaluator,
    fake_graph,
    fake_kernel,
    fake_task,
)
from evokernel.testing.replay import ReplayEvaluator

TASK = fake_task()
KEY = "secret-key-0123456789"


def reply(source: str, techniques: str = "none", plan: str = "It is faster") -> str:
    lines = f"Plan: {plan}\nTechniques: {techniques}\nUsed: none\n"
    # Fakes differ in comments only, which makes no other program.
    return f"{lines}\n```python\nimport torch\n{source}MARK = {source!r}\n```\n"


DRAFT = reply(fake_kernel(6.0), "vectorized-math")
FASTER = reply(fake_kernel(3.0), "vectorized-math, row-caching, magic")
FASTEST = reply(fake_kernel(2.0), "row-caching")


class Pauses(list[float]):
    """Waits for nothing, and notes how long it should have been."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def proposer(server: ChatServer, name: str = "scripted", **more) -> ModelProposer:
    given = {"timeout_s": 5.0, "retries": 3, "followups": 0, **more.pop("settings", {})}
    settings = ModelConfig(base_url=server.url, **given)
    return ModelProposer(name, settings, pause=more.pop("pause", Pauses()), **more)


def request(stage: Stage = Stage.DRAFT, step: str = "r/1", **more) -> Request:
    given = {"task": TASK, "graph": fake_graph(), "backend": "cpp", "seed": 1}
    return Request.model_validate({**given, "stage": stage, "step": step, **more})


@pytest.fixture
def run(tmp_path) -> Callable[..., RunResult]:
    """Return a function that carries a run out whose model is a scripted server."""

    def carry_out(server: ChatServer, listen=None, **more) -> RunResult:
        return optimize(
            TASK,
            config(tmp_path, server, **more.pop("budget", {}), **more),
            evaluator=FakeEvaluator(TASK, before=more.pop("before", None)),
            graph=fake_graph(),
            on_event=listen,
        )

    return carry_out


def config(folder: Path, server: ChatServer, **more: object) -> RunConfig:
    """A run of three attempts; fields of the budget stand for themselves."""
    known = {"timeout_s": 5, "retries": 0, "followups": 0} | dict(more.get("model", {}))
    budget = {name: more[name] for name in Budget.model_fields if name in more}
    return RunConfig(
        task=TASK.name,
        proposer=more.get("proposer", "scripted"),
        model=ModelConfig(base_url=server.url, **known),
        record=more.get("record"),
        runs=folder / "runs",
        budget=Budget.model_validate({"attempts": 3, **budget}),
        search=SearchConfig(**{"width": 1, "recombine": 0.0} | dict(more.get("search", {}))),
    )


# -- one call --------------------------------------------------------------------------------------


def test_proposal_from_a_reply(monkeypatch):
    monkeypatch.setenv("TEAM_KEY", KEY)
    with ChatServer(FASTER) as server:
        asked = proposer(server, settings={"api_key_env": "TEAM_KEY"})
        asked.check(TASK, fake_graph(), "cpp")
        made = asked.propose(request())
    assert made.fault is None
    assert made.candidate.source.startswith("import torch\n# median_ms: 3.0")
    assert made.techniques == ("vectorized-math", "row-caching")
    assert made.rationale == "It is faster"
    assert made.texts == Texts.load().digest
    assert made.reply == FASTER
    assert made.usage.tokens_in > 1000
    assert made.usage.tokens_out == len(FASTER) // 4
    assert made.usage.usd is None
    assert not made.usage.is_estimated
    assert server.keys == [KEY]
    assert server.requests[0]["model"] == "scripted"
    assert not {"temperature", "max_tokens"} & set(server.requests[0])
    sent = "\n\n---\n\n".join(m["content"] for m in server.requests[0]["messages"])
    assert made.prompt == sent
    assert KEY not in made.model_dump_json()


def test_local_server_needs_no_key_and_one_reply_is_one_request():
    with ChatServer(DRAFT) as server:
        assert proposer(server).propose(request()).fault is None
        assert server.keys == ["none"]
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (ChatAnswer(text="I cannot."), "no_candidate", "no code block"),
        (ChatAnswer(text=DRAFT[:-60], finish="length"), "cut_off", "length limit"),
        (ChatAnswer(text=None, reasoning="hm " * 99, finish="length"), "empty", "on reasoning"),
        (ChatAnswer(text="", finish="content_filter"), "filtered", "content filter"),
    ],
)
def test_paid_reply_without_candidate_is_a_proposal_with_a_fault(answer, kind, words):
    with ChatServer(*[answer] * 4) as server:
        asked = proposer(server, settings={"continuations": 0})
        made, again = asked.propose(request()), asked.propose(request(step="r/2"))
    assert made.fault.kind == kind
    assert words in made.fault.reason
    assert made.candidate.source.startswith("# no candidate: ")
    assert made.candidate.sha != again.candidate.sha
    assert made.usage.tokens_in > 0


def test_tokens_are_estimated_where_the_server_does_not_count_them():
    with ChatServer(ChatAnswer(text=DRAFT, counts_tokens=False)) as server:
        usage = proposer(server).propose(request()).usage
    assert usage.is_estimated
    assert usage.tokens_out == -(-len(DRAFT) // 4)
    assert usage.tokens_in == pytest.approx(
        sum(map(len, server.prompt(0).split("\0"))) / 4, rel=0.01
    )


def test_known_price_is_counted(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer(DRAFT, ChatAnswer(text=DRAFT, counts_tokens=False)) as server:
        asked = proposer(server, "openai/gpt-4o", budget=Budget(usd=5))
        asked.check(TASK, None, "cpp")
        usages = [asked.propose(request()).usage for _ in range(2)]
    for usage in usages:  # 2.5 and 10 dollars for a million tokens
        assert usage.usd == pytest.approx(2.5e-6 * usage.tokens_in + 1e-5 * usage.tokens_out)


@pytest.fixture
def odd_price():
    """Name of a model whose listed price is no number, so that computing with it raises."""
    entry = {"input_cost_per_token": "much", "output_cost_per_token": "more", "mode": "chat"}
    listed = library().model_cost
    listed["odd-price"] = {**entry, "litellm_provider": "openai"}
    yield "openai/odd-price"
    del listed["odd-price"]


@pytest.mark.parametrize("counts_tokens", [True, False])
def test_paid_reply_is_kept_where_its_price_cannot_be_computed(counts_tokens, odd_price):
    with ChatServer(ChatAnswer(text=DRAFT, counts_tokens=counts_tokens)) as server:
        with pytest.raises(ConfigError, match="`usd_per_million_in`"):
            proposer(server, odd_price, budget=Budget(usd=5)).check(TASK, None, "cpp")
        made = proposer(server, odd_price).propose(request())
        assert len(server.requests) == 1
    assert made.reply == DRAFT
    assert made.usage.usd is None
    assert made.usage.tokens_in > 0


def test_own_server_of_a_local_provider_costs_nothing():
    with ChatServer(DRAFT) as server:
        asked = proposer(server, "hosted_vllm/qwen", budget=Budget(usd=5))
        asked.check(TASK, None, "cpp")
        assert asked.propose(request()).usage.usd == 0.0


# -- what goes wrong -------------------------------------------------------------------------------

TOO_LONG = "This model's maximum context length is 8192 tokens"
ERRORS = {
    "key": (ChatAnswer(status=401, text=f"Incorrect API key: {KEY}"), KeyRefused, "TEAM_KEY"),
    "forbidden": (ChatAnswer(status=403, text="no access"), KeyRefused, "no access"),
    "model": (ChatAnswer(status=404, text="no model `x`"), NoSuchModel, "`/v1`"),
    "long": (ChatAnswer(status=400, text=TOO_LONG), PromptTooLong, "larger context"),
    "filter": (
        ChatAnswer(status=400, text="rejected by our safety system"),
        ContentRefused,
        "Rephrase",
    ),
    "parameter": (ChatAnswer(status=400, text="Unsupported"), ModelError, "Unsupported"),
    "unpaid": (ChatAnswer(status=402, text="pay first"), RateLimited, "payment"),
    "quota": (
        ChatAnswer(status=429, text="You exceeded your current quota"),
        RateLimited,
        "quota is spent",
    ),
    "hang": (ChatAnswer(hangs=True), ReplyTimeout, "`--timeout`"),
}


@pytest.mark.parametrize(("answer", "kind", "words"), ERRORS.values(), ids=ERRORS)
def test_error_is_typed_told_in_a_paragraph_and_not_asked_again(answer, kind, words, monkeypatch):
    monkeypatch.setenv("TEAM_KEY", KEY)
    settings = {"api_key_env": "TEAM_KEY", "timeout_s": 0.3}
    with ChatServer(*[answer] * 9) as server, pytest.raises(ModelError) as raised:
        proposer(server, settings=settings).propose(request())
    said = str(raised.value)
    assert type(raised.value) is kind
    assert words in said
    assert "`openai/scripted` at http://127.0.0.1:" in said
    assert "\n" not in said
    assert KEY not in said
    assert raised.value.__cause__ is None
    assert len(server.requests) == (4 if kind is PromptTooLong else 1)


def test_long_prompt_is_shortened_before_it_is_an_error():
    with ChatServer(ChatAnswer(status=400, text=TOO_LONG), DRAFT) as server:
        long = fake_task().model_copy(update={"source": TASK.source + "# x\n" * 9000})
        made = proposer(server).propose(request(task=long))
        assert made.fault is None
        assert len(server.prompt(1)) < len(server.prompt(0))
        assert made.prompt.endswith(server.requests[1]["messages"][1]["content"])


FAULTY = {
    "rate limit": ChatAnswer(status=429, text="slow down"),
    "broken": ChatAnswer(status=500, text="oops"),
    "unavailable": ChatAnswer(status=503, text="starting"),
    "half a line": ChatAnswer(body='{"choices": [{"mess'),
    "a page": ChatAnswer(body="<html>hello</html>", headers={"Content-Type": "text/html"}),
    "nothing in it": ChatAnswer(
        body='{"id": "", "object": "chat.completion", "created": 0, "model": "", "choices": []}'
    ),
}


@pytest.mark.parametrize("answer", FAULTY.values(), ids=FAULTY)
def test_passing_fault_is_waited_out(answer):
    pauses, said = Pauses(), []
    with ChatServer(answer, answer, DRAFT) as server:
        made = proposer(server, pause=pauses, say=said.append).propose(request())
    assert made.fault is None
    assert pauses == [2.0, 4.0]
    assert "again in 2 s" in said[1]


def test_retries_are_bounded_and_the_wait_that_is_asked_for_is_kept():
    pauses = Pauses()
    slow = ChatAnswer(status=429, text="slow down", headers={"retry-after": "7"})
    with ChatServer(*[slow] * 9) as server:
        with pytest.raises(RateLimited, match="It was asked 4 times"):
            proposer(server, pause=pauses).propose(request())
        assert len(server.requests) == 4
    assert pauses == [7.0, 7.0, 7.0]


def test_wait_beyond_the_limit_is_not_waited():
    pauses = Pauses()
    slow = ChatAnswer(status=429, text="tomorrow", headers={"retry-after": "86400"})
    with ChatServer(slow) as server, pytest.raises(RateLimited):
        proposer(server, pause=pauses).propose(request())
    assert pauses == []


def test_server_that_went_away():
    with ChatServer() as server:
        asked = proposer(server, settings={"retries": 1})
    with pytest.raises(Unreachable, match="Check its address"):
        asked.propose(request())
    with pytest.raises(ConfigError, match="nobody answers at `http://127"):
        asked.check(TASK, None, "cpp")


def test_dollars_need_a_price():
    with ChatServer() as server, pytest.raises(ConfigError, match="`--tokens` in place of `--usd`"):
        proposer(server, budget=Budget(usd=5)).check(TASK, None, "cpp")


def price(model: str):
    access = Access(model=model, provider=model.partition("/")[0])
    return facts(library(), access, ModelConfig()).price


def test_listed_model_without_a_price_is_not_free():
    assert "github_copilot/gpt-4o" in library().model_cost
    assert price("github_copilot/gpt-4o") is None


@pytest.mark.parametrize("model", ["openai/gpt-4o", "dashscope/qwen3-coder-flash"])
def test_price_and_tiers_of_prices_are_known(model):
    assert price(model).token_out > price(model).token_in > 0


@pytest.mark.parametrize("backend", ["cpp", "cuda", "triton"])
def test_every_language_is_served(backend):
    with ChatServer() as server:
        proposer(server).check(TASK, None, backend)


def test_providers_are_those_of_litellm():
    assert {provider.value for provider in library().LlmProviders} - PROVIDERS == set()


def test_key_in_a_reply_is_not_kept(monkeypatch):
    monkeypatch.setenv("TEAM_KEY", KEY)
    with ChatServer(f"your key is {KEY}") as server:
        asked = proposer(server, settings={"api_key_env": "TEAM_KEY"})
        got = asked.calls(Stage.DRAFT).ask([Message.user("what is my key?")])
    assert got.text == "your key is [key]"


# -- whole runs ------------------------------------------------------------------------------------


def test_run_from_draft_over_repair_to_refinement(run, capsys):
    answers = ("no code", reply(fake_kernel(status=Status.COMPILE_ERROR)), DRAFT, FASTER, FASTEST)
    with ChatServer(*answers) as server:
        result = conduct(lambda listen: run(server, listen, budget={"attempts": 5}), as_json=False)
        stages = [server.prompt(n).partition("# Your step: ")[2].split("\n")[0] for n in range(5)]
    assert [stage.split()[0] for stage in stages] == ["write", "repair", "repair", "make", "make"]
    record = RunRecord.open(result.path)
    statuses = [attempt.evaluation.status.value for attempt in record.attempts()]
    assert statuses == ["invalid_source", "compile_error", "passed", "passed", "passed"]
    assert "no code block" in record.attempts()[0].evaluation.reason
    assert result.best.median_ms == 2.0
    assert result.best.proposal.changed == ("vectorized-math",)
    assert (
        record.attempts()[3].proposal.prompt == (result.path / "attempts/004/prompt.md").read_text()
    )
    assert "6.000 ms a call" in record.attempts()[3].proposal.prompt
    assert "Traffic to memory" in server.prompt(0)
    told = capsys.readouterr().out
    assert "model      scripted: 5 replies," in told
    assert "price unknown" in told
    assert result.spending == spending(record)
    assert result.spending.calls == result.spending.unpriced == 5


def test_reply_without_code_leaves_no_lesson(run):
    with ChatServer("no code", DRAFT) as server:
        result = run(server, budget={"attempts": 2})
    with Memory.open(MemoryConfig(path=result.path / "memory")) as memory:
        kinds = {entry.experience.kind for entry in memory.list()}
    assert kinds == {"kernel", "fix"}


def test_tokens_stop_the_run_before_the_next_call(run):
    with ChatServer(DRAFT, FASTER, FASTEST) as server:
        first = run(server, budget={"attempts": 1}).spending
    limit = 2 * first.tokens + 1400
    with ChatServer(DRAFT, FASTER, FASTEST) as server:
        result = run(server, budget={"tokens": limit})
        assert 1 <= len(server.requests) < 3
        for sent in server.requests:  # no reply may take more than is left
            assert sent["max_tokens"] < limit
    assert f"of {limit:,} tokens are spent; " in result.reason
    assert result.spending.tokens <= limit
    assert result.best.median_ms <= 6.0


def test_dollars_stop_the_run_before_the_next_call(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer(DRAFT, FASTER, FASTEST) as server:
        priced = config(tmp_path, server, usd=0.03).model_copy(update={"proposer": "openai/gpt-4o"})
        result = optimize(TASK, priced, evaluator=FakeEvaluator(TASK), graph=fake_graph())
        assert 1 <= len(server.requests) < 3
    assert "of $0.0300 are spent" in result.reason
    assert 0 < result.spending.usd <= 0.03
    assert KEY not in "".join(
        file.read_text(errors="replace") for file in result.path.rglob("*") if file.is_file()
    )


@pytest.mark.parametrize("at", ["compile", "verify", "profile"])
def test_resumed_run_pays_for_no_reply_twice_and_counts_on(run, at):
    calls = CallLog()

    def interrupt(call: str) -> None:
        calls.add(call)
        if call == at and calls.number(at) == 2:
            raise KeyboardInterrupt

    with ChatServer(DRAFT, FASTER, FASTEST) as server:
        with pytest.raises(RunStopped) as stopped:
            run(server, before=interrupt)
        assert len(server.requests) == 2
        assert spending(RunRecord.open(stopped.value.path)).calls == 2
        result = resume(stopped.value.path, evaluator=FakeEvaluator(TASK))
        assert len(server.requests) == 3
    assert result.spending.calls == 3
    assert [a.proposal.reply for a in RunRecord.open(result.path).attempts()] == [
        DRAFT,
        FASTER,
        FASTEST,
    ]


def test_run_whose_model_fails_is_kept_and_goes_on(run):
    with ChatServer(DRAFT, ChatAnswer(status=401, text="expired"), FASTER, FASTEST) as server:
        with pytest.raises(KeyRefused, match="nowhere: the environment has none") as raised:
            run(server)
        assert raised.value.exit_code == 1
        (path,) = (Path(note.split("`")[1].split()[-1]) for note in raised.value.__notes__)
        result = resume(path, evaluator=FakeEvaluator(TASK))
        assert len(server.requests) == 4
    assert result.best.median_ms == 2.0
    assert result.spending.calls == 3


# -- a recorded conversation -----------------------------------------------------------------------

RECORDED = RunRecord.open(Path(__file__).parent / "data" / "conversation")
"""A real run, less what it would not need: a language model wrote the replies, the kernels were
compiled, checked and timed. Here a server gives the replies again, and the workflow goes over them
with the recorded verdicts."""


@pytest.fixture(scope="module")
def replayed(tmp_path_factory) -> tuple[RunResult, ChatServer]:
    """The run carried out again, and the server that it talked to."""
    given = RECORDED.config
    with ChatServer(*(attempt.proposal.reply for attempt in RECORDED.attempts())) as server:
        config = RunConfig(
            task="rms_norm",
            proposer=given.proposer,
            model=ModelConfig(base_url=server.url),
            runs=tmp_path_factory.mktemp("runs"),
            budget=given.budget,
            search=given.search.model_copy(update={"patience": 0, "roofline": 0.0}),
            memory=given.memory,
        )
        result = optimize(
            RECORDED.task(), config, evaluator=ReplayEvaluator(RECORDED), graph=RECORDED.graph()
        )
    return result, server


def test_its_recording_comes_along_and_leads_there_too(replayed, tmp_path):
    config = RunRecord.open(replayed[0].path).config
    again = {"proposer": "replay:rms_norm", "model": ModelConfig(), "runs": tmp_path}
    result = optimize(
        RECORDED.task(),
        config.model_copy(update=again),
        evaluator=ReplayEvaluator(RECORDED),
        graph=RECORDED.graph(),
    )
    assert result.best.proposal.candidate == RECORDED.best().proposal.candidate


def test_conversation_leads_to_the_same_kernel_again(replayed):
    result, server = replayed
    assert len(server.requests) == len(RECORDED.attempts())
    best = RECORDED.best()
    assert result.best.proposal.candidate == best.proposal.candidate
    assert result.best.median_ms == best.median_ms
    assert result.second_look.holds
    assert result.second_look.ratio.low > 1.01
    assert result.speedup("eager").low > 1.01


def test_every_step_is_what_it_was(replayed):
    again = RunRecord.open(replayed[0].path)
    for now, then in zip(again.attempts(), RECORDED.attempts(), strict=True):
        assert now.proposal.candidate == then.proposal.candidate
        assert now.proposal.fault == then.proposal.fault
        assert now.proposal.techniques == then.proposal.techniques
        assert now.proposal.stage == then.proposal.stage
        assert now.evaluation == then.evaluation


def test_prompts_hold_what_the_steps_before_them_found(replayed):
    result, server = replayed
    attempts = RunRecord.open(result.path).attempts()
    by_sha = {attempt.proposal.candidate.sha: attempt for attempt in attempts}
    for index, attempt in enumerate(attempts):
        prompt = server.prompt(index)
        assert RECORDED.task().source.partition("EVOKERNEL = ")[0].strip() in prompt
        for parent in (by_sha[sha] for sha in attempt.proposal.parents):
            assert parent.proposal.candidate.source.strip() in prompt
            assert f"takes {parent.median_ms:.3f} ms a call" in prompt


def test_record_shows_the_model_and_its_cost(replayed):
    spent = replayed[0].spending
    assert spent.calls == len(RECORDED.attempts())
    assert spent.unpriced == spent.calls
    assert spent.in_words().endswith("price unknown")


def test_recording_names_no_place_of_the_machine_it_was_made_on():
    for file in RECORDED.path.rglob("*"):
        if file.is_file():
            assert not {"/root", "/work", "/tmp", "/home"} & set(file.read_text().split('"'))
            assert "/tmp/" not in file.read_text()


# -- a server that misbehaves ----------------------------------------------------------------------

PAGE = {"Content-Type": "text/html"}
NOTHING = '{"id": "", "object": "chat.completion", "created": 0, "model": "", "choices": []}'
MISBEHAVIOURS = {
    "429 with seconds": (ChatAnswer(status=429, text="slow", headers={"retry-after": "9"}),),
    "429 with a date": (
        ChatAnswer(status=429, headers={"retry-after": "Fri, 15 Jan 2021 08:00:00 GMT"}),
    ),
    "429 in words": (ChatAnswer(status=429, text="Please try again in 1m30s."),),
    "500 twice": (ChatAnswer(status=500, text="oops"), ChatAnswer(status=503, text="oops")),
    "529": (ChatAnswer(status=529, text="overloaded"),),
    "HTML with 200": (ChatAnswer(body="<html>hello</html>", headers=PAGE),),
    "HTML with 502": (ChatAnswer(status=502, body="<html>bad gateway</html>", headers=PAGE),),
    "no JSON": (ChatAnswer(body='{"choices": [{"mess'),),
    "empty choices": (ChatAnswer(body=NOTHING),),
    "connection lost": (ChatAnswer(drops=True),),
    "None with reasoning": (ChatAnswer(text=None, reasoning="hm " * 99, finish="length"),),
    "nothing at all": (ChatAnswer(text="", counts_tokens=False),),
    "truncated": (ChatAnswer(text=DRAFT[:-60], finish="length"), DRAFT[-60:]),
    "no code": ("I would need more time.",),
    "a difference": ("```diff\n@@ -1,2 +1,2 @@\n-x\n+y\n```",),
    "tokens not counted": (ChatAnswer(text=DRAFT, counts_tokens=False),),
}
PAID = {"None with reasoning", "truncated", "no code", "a difference"}


def wayward(tmp_path, server: ChatServer, **more) -> tuple[RunResult, Pauses, list[str]]:
    """A run of two attempts within 60,000 tokens."""
    pauses, said = Pauses(), []
    settings = ModelConfig(base_url=server.url, timeout_s=5, retries=3, **more)
    budget = Budget(attempts=2, tokens=60_000)
    asked = ModelProposer("scripted", settings, budget=budget, say=said.append, pause=pauses)
    conf = config(tmp_path, server, **budget.model_dump(include={"attempts", "tokens"}))
    evaluator = FakeEvaluator(TASK)
    result = optimize(TASK, conf, evaluator=evaluator, graph=fake_graph(), proposer=asked)
    return result, pauses, said


@pytest.mark.parametrize("script", MISBEHAVIOURS.values(), ids=MISBEHAVIOURS)
def test_run_ends_well_with_a_server_that(script, tmp_path):
    with ChatServer(*script, DRAFT, FASTER, FASTEST) as server:
        result, _, _ = wayward(tmp_path, server)
        assert server.paid == pytest.approx(result.spending.tokens, rel=0.01)
        assert all(sent["max_tokens"] < 60_000 for sent in server.requests)
    assert result.reason == "all 2 attempts are spent"
    assert result.best is not None
    statuses = [a.evaluation.status for a in RunRecord.open(result.path).attempts()]
    assert statuses == [Status.PASSED, Status.PASSED]
    assert result.spending.unpriced == result.spending.calls
    assert result.spending.tokens <= 60_000


def test_waits_that_are_asked_for_are_kept(tmp_path):
    slow = ChatAnswer(status=429, text="slow", headers={"retry-after": "9"})
    with ChatServer(
        slow, ChatAnswer(status=429, text="try again in 1m30s."), DRAFT, FASTER
    ) as server:
        _, pauses, said = wayward(tmp_path, server, followups=0)
    assert pauses[:2] == [9.0, 90.0]
    assert any("again in 9 s" in text for text in said)


def test_deadline_ends_the_repeating():
    pauses = Pauses()
    with ChatServer(*[ChatAnswer(status=500)] * 9) as server:
        asked = proposer(server, pause=pauses, settings={"retries": 9, "deadline_s": 5})
        with pytest.raises(Unreachable):
            asked.propose(request())
    assert pauses == [2.0, 4.0]  # the next one would have been 8 seconds


def test_reply_that_drips_is_not_waited_for_without_end():
    with ChatServer(ChatAnswer(text=DRAFT, drips=True)) as server, pytest.raises(ReplyTimeout):
        proposer(server, settings={"timeout_s": 0.5}).propose(request())


def test_refused_parameters_are_left_out_and_said_once():
    said = []
    refusing = ("temperature", "reasoning_effort")
    settings = {"temperature": 0.2, "reasoning_effort": "low", "parameters": {"top_p": 0.9}}
    with ChatServer(DRAFT, FASTER, refuses=refusing) as server:
        asked = proposer(server, settings=settings, say=said.append)
        for _ in range(2):
            assert asked.propose(request()).fault is None
        assert len(server.requests) == 4
        assert "temperature" in server.requests[0]
        assert not {"temperature", "reasoning_effort"} & {*server.requests[3]}
        assert server.requests[3]["top_p"] == 0.9
        assert asked.calls(Stage.DRAFT).refused == refusing
    assert [text for text in said if "refuses" in text] == [
        f"openai/scripted refuses `{name}`; it is left out from here on" for name in refusing
    ]


def test_parameter_that_litellm_refuses_is_left_out_too(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer(DRAFT) as server:
        asked = proposer(server, "openai/gpt-5", settings={"temperature": 0.2})
        assert asked.propose(request()).fault is None
        assert asked.calls(Stage.DRAFT).refused == ("temperature",)
        assert len(server.requests) == 1


def test_context_that_nobody_knew_of_lowers_the_limit_of_the_reply(tmp_path):
    with ChatServer(DRAFT, FASTER, context=9_000) as server:
        result, _, said = wayward(tmp_path, server)
        assert server.paid == result.spending.tokens
    assert result.best is not None
    assert any("refuses replies of" in text for text in said)


def test_budget_that_no_limit_keeps_ends_the_run(tmp_path):
    refusing = ("max_tokens", "max_completion_tokens")
    with ChatServer(DRAFT, refuses=refusing) as server:
        result, _, _ = wayward(tmp_path, server)
        assert server.paid == 0
    assert "takes no limit for its replies" in result.reason


def test_prompt_that_a_known_context_cannot_hold_is_not_sent():
    with ChatServer(DRAFT, models={"scripted": {"max_model_len": 1_500}}) as server:
        asked = proposer(server)
        asked.check(TASK, None, "cpp")
        with pytest.raises(PromptTooLong, match="Nothing was sent"):
            asked.propose(request())
        assert server.requests == []


# -- a reply made whole ----------------------------------------------------------------------------


def test_reply_spent_on_thinking_is_asked_for_once_more_with_a_larger_limit():
    thought = ChatAnswer(text=None, reasoning="hm " * 99, finish="length")
    with ChatServer(thought, DRAFT) as server:
        made = proposer(server).propose(request())
        assert [sent.get("max_tokens") for sent in server.requests] == [None, 8_192]
        assert made.usage.tokens_in + made.usage.tokens_out == server.paid
    assert (made.fault, made.usage.calls, made.reply) == (None, 2, DRAFT)


def test_limit_of_the_user_is_kept_and_named():
    thought = ChatAnswer(text=None, reasoning="hm " * 99, finish="length")
    with ChatServer(thought) as server:
        fault = proposer(server, settings={"reply_tokens": 100}).propose(request()).fault
        assert len(server.requests) == 1
    assert "its limit is 100 (`--reply-tokens`)" in fault.reason


def test_reply_that_was_cut_off_goes_on():
    half, rest = DRAFT[:-60], DRAFT[-60:]
    with ChatServer(ChatAnswer(text=half, finish="length"), rest) as server:
        made = proposer(server).propose(request())
        spoken = server.requests[1]["messages"][2:]
    assert made.reply == DRAFT
    assert [m["role"] for m in spoken] == ["assistant", "user"]
    assert spoken[0]["content"] == half
    assert "Go on exactly where it stops" in spoken[1]["content"]


def test_half_a_kernel_is_never_judged():
    cut = ChatAnswer(text=DRAFT[:-60], finish="length")
    with ChatServer(cut, ChatAnswer(text="more", finish="length"), "more") as server:
        made = proposer(server).propose(request())
    assert made.fault.kind == "cut_off"
    assert made.usage.calls == 3


ASKED_BACK = {
    "no code": ("I cannot.", "holds no code block"),
    "a difference": ("```diff\n@@ -1,2 +1,2 @@\n-x\n+y\n```", "every line of it"),
    "only C++": ("```cpp\nint f();\n```", "of the reply's code blocks (cpp)"),
}


@pytest.mark.parametrize(("text", "words"), ASKED_BACK.values(), ids=ASKED_BACK)
def test_reply_without_candidate_is_asked_back_in_a_line(text, words):
    with ChatServer(text, DRAFT) as server:
        made = proposer(server, settings={"followups": 1}).propose(request())
        question = server.requests[1]["messages"][3]["content"]
    assert made.fault is None
    assert words in question
    assert len(question) < 300
    assert made.reply == f"{text}\n\n---\n\n{question}\n\n---\n\n{DRAFT}"


def test_unchanged_code_is_asked_back(run):
    with ChatServer(DRAFT, DRAFT, FASTER) as server:
        result = run(server, budget={"attempts": 2}, model={"followups": 1})
        assert "Make the change that you planned" in server.prompt(2)
    assert result.best.median_ms == 3.0


def test_refusal_is_told_apart():
    with ChatServer(ChatAnswer(text="", refusal="I will not.")) as server:
        fault = proposer(server).propose(request()).fault
    assert fault.kind == "filtered"
    assert "I will not." in fault.reason


# -- calls -----------------------------------------------------------------------------------------


def test_conversation_with_tools():
    tool = Tool(
        name="evaluate",
        description="Judges a kernel.",
        parameters={"type": "object", "properties": {"code": {"type": "string"}}},
    )
    wish = ChatAnswer(
        text=None,
        tool_calls=(("evaluate", '{"code": "x"}'), ("evaluate", "{")),
        finish="tool_calls",
    )
    with ChatServer(wish, "done") as server:
        calls = proposer(server).calls(Stage.REFINE)
        asked = (Message.system("be quick"), Message.user("go"))
        reply = calls.ask(asked, tools=(tool,), step="r/1", stage=Stage.REFINE)
        values = [call.values() for call in reply.tool_calls]
        answers = (Message.answer(call, "fine") for call in reply.tool_calls)
        end = calls.ask((*asked, reply.message, *answers), tools=(tool,), step="r/1")
        sent = server.requests
    assert values == [{"code": "x"}, None]
    assert (reply.text, end.text) == ("", "done")
    assert sent[0]["tools"][0]["function"]["name"] == "evaluate"
    assert [m["role"] for m in sent[1]["messages"][2:]] == ["assistant", "tool", "tool"]
    assert sent[1]["messages"][3]["tool_call_id"] == "call-0"


def test_kept_part_of_a_prompt_is_counted_and_cheaper(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer(ChatAnswer(text=DRAFT, cached_tokens=1000)) as server:
        usage = proposer(server, "openai/gpt-4o").propose(request()).usage
    assert usage.tokens_cached == 1000
    dearer = 2.5e-6 * usage.tokens_in + 1e-5 * usage.tokens_out
    assert usage.usd == pytest.approx(dearer - 1.25e-6 * 1000)


def test_what_is_to_be_kept_is_marked_for_those_who_want_marks():
    messages = (Message.system("rules"), Message.user("question"))
    marked = sent_messages(messages, marks=True)
    assert [m["content"][0]["cache_control"]["type"] for m in marked] == ["ephemeral"] * 2
    assert sent_messages(messages, marks=False)[0] == {"role": "system", "content": "rules"}
    for model, wants in (("anthropic/claude-x", True), ("openai/claude-x", False)):
        access = Access(model=model, provider=model.partition("/")[0])
        assert access.keeps_marked is wants


def test_price_that_the_user_gives_counts():
    price = {"usd_per_million_in": 2.0, "usd_per_million_out": 10.0}
    with ChatServer(DRAFT) as server:
        asked = proposer(server, settings=price, budget=Budget(usd=1))
        asked.check(TASK, None, "cpp")
        usage = asked.propose(request()).usage
    assert usage.usd == pytest.approx(2e-6 * usage.tokens_in + 1e-5 * usage.tokens_out)


def test_each_stage_may_have_a_model_of_its_own(run):
    with ChatServer(DRAFT) as drafts, ChatServer(FASTER, FASTEST) as refinements:
        own = StageModel(name=f"drafter@{drafts.url}")
        result = run(refinements, model={"draft": own})
        assert (len(drafts.requests), len(refinements.requests)) == (1, 2)
        assert drafts.requests[0]["model"] == "drafter"
    authors = [a.proposal.author for a in RunRecord.open(result.path).attempts()]
    assert authors == ["drafter", "scripted", "scripted"]


def test_ctrl_c_ends_a_call_at_once(run):
    said = threading.Event()

    def listen(event) -> None:
        if event["kind"] == "phase" and "waiting for" in event["text"] and not said.is_set():
            said.set()
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    with ChatServer(ChatAnswer(hangs=True), DRAFT, FASTER, FASTEST) as server:
        with pytest.raises(RunStopped) as stopped:
            run(server, listen, model={"timeout_s": 120})
        result = resume(stopped.value.path, evaluator=FakeEvaluator(TASK))
    assert result.best.median_ms == 2.0


def test_first_reply_of_an_interrupted_step_is_not_paid_again(run):
    expired = ChatAnswer(status=401, text="expired")
    with ChatServer("no code", expired, DRAFT, FASTER, FASTEST) as server:
        with pytest.raises(KeyRefused) as raised:
            run(server, model={"followups": 1})
        path = Path(raised.value.__notes__[0].split("`")[1].split()[-1])
        assert spending(RunRecord.open(path)).calls == 1
        result = resume(path, evaluator=FakeEvaluator(TASK))
        assert len(server.requests) == 5
        assert server.paid == result.spending.tokens
    assert result.spending.calls == 4
    assert RunRecord.open(path).attempts()[0].proposal.reply.startswith("no code\n\n---")


def test_answer_of_a_tool_is_stored(tmp_path):
    with ChatServer() as server:
        calls = proposer(server).calls(Stage.DRAFT)
    assert calls.once("r/1", "evaluate 1", lambda: "1.25 ms") == "1.25 ms"
    assert calls.once("r/1", "evaluate 1", lambda: "another") == "1.25 ms"


# -- recordings ------------------------------------------------------------------------------------


@pytest.fixture
def recorded(run, tmp_path) -> tuple[Path, RunResult]:
    """A recording of three replies, and the run that it was made in."""
    path = tmp_path / "talk.jsonl"
    with ChatServer(DRAFT, FASTER, FASTEST) as server:
        return path, run(server, record=path)


def test_recording_has_a_title_and_a_line_for_each_call(recorded):
    path, result = recorded
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["recording", "call", "call", "call"]
    assert lines[0]["task"] == TASK.name
    assert lines[1]["reply"]["text"] == DRAFT
    assert path.read_text() == (result.path / "calls.jsonl").read_text()


@pytest.mark.parametrize("place", ["file", "folder"])
def test_replay_repeats_the_run(place, recorded, run):
    path, first = recorded
    with ChatServer() as server:
        again = run(server, proposer=f"replay:{path if place == 'file' else first.path}")
        assert server.requests == []
    assert again.best.proposal.candidate == first.best.proposal.candidate
    assert again.spending.tokens == first.spending.tokens
    assert again.spending.usd == again.spending.unpriced == 0


def test_replay_that_ends_is_typed_and_a_prompt_that_differs_is_said(recorded, run):
    path, _ = recorded
    told = []
    with ChatServer() as server, pytest.raises(RecordingEnded, match="its 3 replies are given"):
        run(server, told.append, proposer=f"replay:{path}", budget={"attempts": 4})
    with ChatServer() as server:
        run(server, told.append, proposer=f"replay:{path}", search={"seed": 3, "width": 3})
    assert any("the prompt differs" in event.get("text", "") for event in told)


def test_recording_that_is_there_already_is_not_overwritten(recorded, run):
    with ChatServer() as server, pytest.raises(ConfigError, match="such a file already"):
        run(server, record=recorded[0])


def test_no_such_recording_names_those_that_come_along():
    with pytest.raises(ConfigError, match="`replay:rms_norm`"):
        ModelProposer("replay:nothing")


@pytest.mark.parametrize("name", shipped())
def test_shipped_recordings_hold_replies_and_no_secrets(name):
    text = (SHIPPED / f"{name}.jsonl").read_text()
    assert scrubbed(text, ()) == text
    assert not {"/root", "/work", "/home"} & set(text.split('"'))
    assert len(Recording(f"replay:{name}")) >= 3


# -- doctor ----------------------------------------------------------------------------------------


def test_doctor_asks_a_model_one_word(capsys):
    listed = {"scripted": {"max_model_len": 32_768}, "other": {}}
    with ChatServer("ready", models=listed, refuses=("temperature",)) as server:
        line = ["--model", "scripted", "--base-url", server.url, "--param", "temperature=0.2"]
        assert main(["doctor", *line, "--json"]) == 0
        assert [len(sent["messages"]) for sent in server.requests] == [1, 1]
    found = {f["name"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert found["model"]["facts"]["reply"] == "ready"
    assert found["model"]["facts"]["latency_s"] >= 0
    assert found["price"]["facts"] == dict.fromkeys(
        ("usd_per_million_in", "usd_per_million_out"), None
    ) | {"is_known": False}
    assert found["context"]["facts"]["context_tokens"] == 32_768
    assert found["parameters"]["facts"]["refused"] == ["temperature"]
    assert found["parameters"]["facts"]["also_served"] == ["other", "scripted"]


def test_guide_to_local_models_leads_where_it_says(reader):
    """docs/howto/local-model.md, from the first word to a replay."""
    reply = "```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n```"
    with ChatServer(*[reply] * 20, models={"qwen3-coder": {}}) as server:
        reader.url = server.url
        reader.through(Path(__file__).parent.parent / "docs" / "howto" / "local-model.md")


def test_doctor_says_why_a_model_cannot_be_asked(capsys):
    with ChatServer(ChatAnswer(status=401, text="expired")) as server:
        assert main(["doctor", "--model", "scripted", "--base-url", server.url]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "the server refused the key" in told
    assert "The model cannot be asked." in told
