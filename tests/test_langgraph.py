"""The workflow as a graph for others: their state, their checkpointer, streams and interrupts."""

import asyncio
import operator
from pathlib import Path
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

import evokernel
from evokernel.config import Budget, RunConfig, SearchConfig
from evokernel.errors import ConfigError, SessionError, TaskError
from evokernel.record import RunRecord
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_kernel, fake_task

SOURCE = fake_task().source


def config(folder: Path, attempts: int = 3, **more: object) -> RunConfig:
    return RunConfig(
        task="",
        runs=folder / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig(width=1, recombine=0.0),
        **more,
    )


def workflow(folder: Path, attempts: int = 3, checkpointer=None, approve=False, **more: object):
    proposer = None if more.get("proposer") == "external" else ScriptedProposer
    return evokernel.build_workflow(
        config(folder, attempts, **more),
        evaluator=FakeEvaluator,
        proposer=proposer,
        approve=approve,
        checkpointer=checkpointer,
    )


def thread(name: str = "one") -> dict:
    return {"configurable": {"thread_id": name}}


class Pipeline(TypedDict, total=False):
    """A state of somebody else's; it shares `task` and `kernel` with the workflow."""

    names: list[str]
    task: str
    kernel: str
    speedups: dict[str, float]
    log: Annotated[list[str], operator.add]


def pipeline(inner, saver):
    graph = StateGraph(Pipeline)
    graph.add_node("pick", lambda state: {"task": SOURCE, "log": ["picked"]})
    graph.add_node("optimise", inner)
    graph.add_node("use", lambda state: {"log": [f"{state['speedups']['eager'] > 1}"]})
    graph.add_edge(START, "pick")
    graph.add_edge("pick", "optimise")
    graph.add_edge("optimise", "use")
    graph.add_edge("use", END)
    return graph.compile(saver)


def test_alone_it_takes_a_task_and_gives_a_kernel(tmp_path):
    end = workflow(tmp_path).invoke({"task": SOURCE, "settings": {"budget": {"attempts": 2}}})
    assert end["reason"] == "all 2 attempts are spent"
    assert Path(end["kernel"]).read_text() == end["source"]
    assert end["speedups"]["eager"] > 1
    assert end["approved"] is None
    assert "number" not in end
    assert [e["kind"] for e in RunRecord.open(Path(end["run"])).events()][-1] == "ended"


def test_as_a_node_it_shares_state_and_checkpointer(tmp_path):
    saver = InMemorySaver()
    end = pipeline(workflow(tmp_path), saver).invoke({"names": ["a"]}, thread())
    assert end["log"] == ["picked", "True"]
    assert end["names"] == ["a"]
    assert Path(end["kernel"]).is_file()
    assert not list((tmp_path / "runs").glob("*/checkpoints.sqlite"))


def test_events_are_streamed_through_the_graph_around_it(tmp_path):
    graph = pipeline(workflow(tmp_path), InMemorySaver())
    heard = [event for _, event in graph.stream({}, thread(), stream_mode="custom", subgraphs=True)]
    kinds = [event["kind"] for event in heard]
    assert kinds[0] == "began"
    assert kinds[-1] == "ended"
    assert kinds.count("attempt") == 3


def test_it_is_awaited_as_well(tmp_path):
    async def work() -> list[str]:
        graph = workflow(tmp_path)
        return [e["kind"] async for e in graph.astream({"task": SOURCE}, stream_mode="custom")]

    assert asyncio.run(work()).count("attempt") == 3


def test_author_outside_is_waited_for(tmp_path):
    """Each answer comes to a new object, as it would in a new process."""
    place = str(tmp_path / "checkpoints.sqlite")
    answers = [
        fake_kernel(5.0),
        {"source": fake_kernel(4.0), "techniques": ["unrolling"], "rationale": "fewer branches"},
    ]
    given: dict | Command = {}
    for answer in answers:
        with SqliteSaver.from_conn_string(place) as saver:
            graph = pipeline(workflow(tmp_path, 2, proposer="external"), saver)
            graph.invoke(given, thread())
            (waiting,) = graph.get_state(thread()).interrupts
            assert waiting.value["kind"] == "candidate"
            assert "class Model(nn.Module)" in waiting.value["reference"]
            (run,) = (tmp_path / "runs").iterdir()
            RunRecord.resume(run).close()  # nobody holds its lock
        given = Command(resume=answer)
    assert waiting.value["parents"][0]["median_ms"] == 5.0
    with SqliteSaver.from_conn_string(place) as saver:
        end = pipeline(workflow(tmp_path, 2, proposer="external"), saver).invoke(given, thread())
    assert end["log"] == ["picked", "True"]
    attempts = RunRecord.open(run).attempts()
    assert [a.median_ms for a in attempts] == [5.0, 4.0]
    assert attempts[1].proposal.techniques == ("unrolling",)


@pytest.mark.parametrize("answer", [True, {"approved": False, "why": "too clever"}])
def test_kernel_is_handed_over_when_it_is_approved(tmp_path, answer):
    graph = workflow(tmp_path, checkpointer=InMemorySaver(), approve=True)
    graph.invoke({"task": SOURCE}, thread())
    (waiting,) = graph.get_state(thread()).interrupts
    assert waiting.value["kind"] == "approval"
    assert waiting.value["speedups"]["eager"] > 1
    end = graph.invoke(Command(resume=answer), thread())
    assert end["approved"] is (answer is True)
    assert (end["kernel"] is not None) is (answer is True)
    notes = [e for e in RunRecord.open(Path(end["run"])).events() if e["kind"] == "note"]
    assert "approved" in notes[-1]["text"]


def test_answers_that_are_none_are_refused_and_asked_again(tmp_path):
    graph = workflow(tmp_path, checkpointer=InMemorySaver(), proposer="external")
    graph.invoke({"task": SOURCE}, thread())
    with pytest.raises(SessionError, match="of the answer cannot be used"):
        graph.invoke(Command(resume={"sauce": "x"}), thread())


def test_faults_of_the_input_are_ours(tmp_path):
    with pytest.raises(TaskError, match="neither a built-in task nor a file"):
        workflow(tmp_path).invoke({"task": "softmaxx"})
    with pytest.raises(ConfigError, match=r"settings\.budget\.attempts"):
        workflow(tmp_path).invoke({"task": SOURCE, "settings": {"budget": {"attempts": 0}}})
    assert not (tmp_path / "runs").exists()
