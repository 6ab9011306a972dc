"""The Python door: awaiting a run, stopping it, and events as typed records."""

import asyncio
import json

import pytest

import evokernel
from evokernel.config import Budget, RunConfig, SearchConfig
from evokernel.graphs.stop import Stop
from evokernel.optimize import events
from evokernel.optimize.events import KINDS, RunEvent, typed
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_task

TASK = fake_task()


def given(folder, attempts: int = 4, **more: object) -> dict[str, object]:
    config = RunConfig(
        task=TASK.name,
        runs=folder / "runs",
        budget=Budget(attempts=attempts),
        search=SearchConfig(width=1),
    )
    return {
        "task": TASK,
        "config": config,
        "evaluator": FakeEvaluator(TASK),
        "proposer": ScriptedProposer(),
        "graph": fake_graph(),
        **more,
    }


def test_awaited_run_is_a_run(tmp_path):
    result = asyncio.run(evokernel.aoptimize(**given(tmp_path)))
    assert result.attempts == 4
    assert result.best is not None


def test_cancelled_run_is_kept_and_can_be_resumed(tmp_path):
    async def work() -> None:
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def listen(event: dict) -> None:
            if event["kind"] == "attempt":
                loop.call_soon_threadsafe(begun.set)

        task = asyncio.create_task(
            evokernel.aoptimize(**given(tmp_path, attempts=200, on_event=listen))
        )
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    (path,) = (tmp_path / "runs").iterdir()
    lines = (path / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["kind"] == "stopped"
    done = sum(json.loads(line)["kind"] == "attempt" for line in lines)
    assert 1 <= done < 200
    proposer = ScriptedProposer(lambda request: None)
    again = evokernel.resume(path, evaluator=FakeEvaluator(TASK), proposer=proposer)
    assert again.attempts >= done


def test_stop_from_outside_ends_a_run(tmp_path):
    stop = Stop()

    def listen(event: dict) -> None:
        if event["kind"] == "attempt" and event["number"] == 2:
            stop.request()

    with pytest.raises(evokernel.RunStopped, match="evokernel resume") as caught:
        evokernel.optimize(**given(tmp_path, on_event=listen, stop=stop))
    assert caught.value.path.is_dir()
    with pytest.raises(evokernel.RunStopped):
        asyncio.run(evokernel.aoptimize(**given(tmp_path, stop=stop)))


def test_every_event_of_a_run_is_typed(tmp_path):
    heard: list[RunEvent] = []
    evokernel.optimize(**given(tmp_path, on_event=lambda event: heard.append(typed(event))))
    kinds = {type(event) for event in heard}
    assert RunEvent not in kinds
    assert kinds >= {events.Began, events.Baselines, events.Step, events.Proposed, events.Ended}
    assert all(KINDS[event.kind] is type(event) for event in heard)
    closed = [event for event in heard if isinstance(event, events.AttemptClosed)]
    assert [event.number for event in closed] == [1, 2, 3, 4]


def test_events_of_a_later_version_are_understood():
    known = {"kind": "note", "at": 1.0, "elapsed": 0.5, "text": "a", "colour": "blue"}
    assert typed(known) == events.Note(kind="note", at=1.0, elapsed=0.5, text="a")
    assert type(typed({"kind": "sang", "at": 1.0, "elapsed": 0.5})) is RunEvent
