"""The MCP server as its clients meet it: the SDK's own client, a real process, standard streams."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from anyio.abc import TaskGroup

from evokernel.config import MemoryConfig
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.store import Memory
from evokernel.record import RunRecord
from evokernel.serve.resources import matched
from evokernel.serve.running import stop

pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

ROOT = Path(__file__).parent.parent

TASK = '''"""Twice a number, from a file that is not silent."""

import os

import torch
from torch import nn

print("a task that prints")
os.write(1, b"and writes to the descriptor itself\\n")


class Model(nn.Module):
    def forward(self, x):
        return 2 * x + 1


def get_inputs():
    return [torch.randn(256, 512)]
'''

KERNEL = '''import torch
from torch import nn

from evokernel.jit import cpp_module

twice = cpp_module(r"""
#include <cstdint>
extern "C" void twice(const float* x, float* y, int64_t n) {
#pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) y[i] = 2.0f * x[i] + 1.0f;
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        twice.twice(x, y, x.numel())
        return y
'''

SLEEPER = """import time

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(600)
"""


class Place(NamedTuple):
    """Where one story plays; its cache is the session's, its memory its own."""

    folder: Path
    home: Path

    @property
    def server(self) -> StdioServerParameters:
        """As a client's configuration would start it."""
        places = ["--runs-dir", str(self.folder / "runs"), "--memory", str(self.folder / "memory")]
        return StdioServerParameters(
            command=sys.executable,
            args=["-m", "evokernel", "serve", "mcp", *places],
            env={"PYTHONPATH": str(ROOT), "EVOKERNEL_HOME": str(self.home)},
        )


def talk(place: Place, *scenes: Callable[[Client], Awaitable[None]]) -> None:
    """Let clients, each with a server of its own, play their scenes at the same time."""

    async def play(scene: Callable[[Client], Awaitable[None]]) -> None:
        with anyio.fail_after(250):
            async with Client(place.server) as client:
                await scene(client)

    async def all_scenes() -> None:
        async with anyio.create_task_group() as group:
            for scene in scenes:
                group.start_soon(play, scene)

    anyio.run(all_scenes)


async def done(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a call that is carried out answers; its schema is checked by the client."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
    found: dict[str, Any] = result.structured_content  # type: ignore[assignment]
    return found


async def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    found: dict[str, Any] = result.structured_content["error"]  # type: ignore[index]
    return found


async def page(client: Client, uri: str) -> str:
    result = await client.read_resource(uri, cache_mode="bypass")
    return result.contents[0].text  # type: ignore[union-attr]


# -- processes, seen from outside ------------------------------------------------------------------


def parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(folder.name)] = int(fields[1])
    return found


def below(pid: int) -> set[int]:
    """Every process that descends from one."""
    known = parents()
    found: set[int] = set()
    layer = {pid}
    while layer:
        layer = {child for child, parent in known.items() if parent in layer} - found
        found |= layer
    return found


def running(words: bytes, among: Iterable[int]) -> list[int]:
    """Which of these processes have the words in their command."""
    found = []
    for pid in among:
        with contextlib.suppress(OSError):  # it has just ended
            found += [pid] if words in Path(f"/proc/{pid}/cmdline").read_bytes() else []
    return found


def judging() -> set[int]:
    """The processes that judge for our servers, and what they have started."""
    desks = running(b"evokernel.serve.desk", below(os.getpid()))
    return set(desks).union(*map(below, desks))


async def gone(pids: set[int]) -> None:
    """Wait until none of these processes is left."""
    with anyio.fail_after(60):
        while pids & set(parents()):
            await anyio.sleep(0.05)


async def begun(client: Client, group: TaskGroup, **arguments: Any) -> anyio.CancelScope:
    """Have a kernel judged that takes for ever, as far as the first comparison."""
    under_way = anyio.Event()
    scope = anyio.CancelScope()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        if message == "checking the results":
            under_way.set()

    async def evaluate() -> None:
        # A client whose server is killed meanwhile says so; what is tested lies on the other side.
        with scope, contextlib.suppress(MCPError, anyio.BrokenResourceError):
            await client.call_tool(
                "evaluate", {"source": SLEEPER, **arguments}, progress_callback=hear
            )

    group.start_soon(evaluate)
    with anyio.fail_after(100):
        await under_way.wait()
    return scope


# -- a story ---------------------------------------------------------------------------------------


class Story:
    """What two clients did at the same time, and another one after them."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.said: dict[str, dict[str, Any]] = {}
        self.progress: list[str] = []
        self.pages: dict[str, str] = {}
        self.left: dict[str, int] = {}
        """Processes below a server before and after something ended them."""

    async def write_kernels(self, client: Client) -> None:
        """An agent that is the author: recalls, evaluates, thinks better of it, confirms."""

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append(message or "")

        said = self.said
        said["recall"] = await done(client, "recall", task=TASK, quick=True)
        arguments = {"task": TASK, "quick": True, "source": KERNEL, "note": "plain loop"}
        result = await client.call_tool("evaluate", arguments, progress_callback=hear)
        assert not result.is_error, result.content
        said["passed"] = result.structured_content  # type: ignore[assignment]
        broken = KERNEL.replace("+ 1.0f;", "+ 1.0f")
        said["broken"] = await done(client, "evaluate", task=TASK, quick=True, source=broken)
        run = said["passed"]["run"]
        await self._think_better_of_it(client, run)
        said["after"] = await done(client, "evaluate", task=TASK, quick=True, source="no Python")
        said["best"] = await done(client, "best", run=run, confirm=True)
        said["profile"] = await done(client, "profile", run=run, attempt=1)
        remark = "A plain loop is enough for this one."
        said["remark"] = await done(client, "remember", run=run, note=remark)
        for uri in (f"runs/{run}", f"runs/{run}/attempts/1", "experiences"):
            self.pages[uri] = await page(client, f"evokernel://{uri}")

    async def _think_better_of_it(self, client: Client, run: str) -> None:
        async with anyio.create_task_group() as group:
            scope = await begun(client, group, run=run)
            at_work = judging()
            scope.cancel()
            await gone(at_work)
        self.left["cancelled"] = len(at_work)

    async def start_a_run(self, client: Client) -> None:
        """Another one, that leaves at once."""
        self.said["started"] = await done(client, "start_run", task="gelu", attempts=50)

    async def come_back(self, client: Client) -> None:
        """A later one, whose server is killed in the middle of an evaluation."""
        run = self.said["started"]["run"]
        self.said["alive"] = await done(client, "run_status", run=run)
        self.said["not mine"] = await refused(client, "evaluate", run=run, source=KERNEL)
        self.said["stopped"] = await done(client, "stop_run", run=run)
        self.said["stopped again"] = await done(client, "stop_run", run=run)
        (server,) = running(b"serve\0mcp", below(os.getpid()))
        async with anyio.create_task_group() as group:
            await begun(client, group, run=self.said["passed"]["run"])
            at_work = judging()
            os.kill(server, signal.SIGKILL)
            await gone(at_work)
            self.left["orphaned"] = len(at_work)
            group.cancel_scope.cancel()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, warm_cache: Path) -> Story:
    """Played once: every process of a task imports torch."""
    folder = tmp_path_factory.mktemp("story")
    home = folder / "home"
    home.mkdir()
    (home / "cache").symlink_to(warm_cache)
    story = Story(Place(folder, home))
    try:
        talk(story.place, story.write_kernels, story.start_a_run)
        try:
            talk(story.place, story.come_back)
        except BaseExceptionGroup:  # what a client says whose server was killed is its own affair
            if "orphaned" not in story.left:
                raise
    finally:  # nothing goes on where the story broke off
        for file in (folder / "runs").glob("*/run.json"):
            stop(RunRecord.open(file.parent), 60)
    return story


def test_memory_is_asked_before_a_kernel_is_written(story):
    recalled = story.said["recall"]
    assert "return 2 * x + 1" in recalled["brief"]
    assert "ModelNew" in recalled["guide"]
    assert recalled["run"] == story.said["passed"]["run"]


def test_verdict_has_numbers_progress_and_what_was_learnt(story):
    judged = story.said["passed"]
    assert (judged["status"], judged["attempt"]) == ("passed", 1)
    assert judged["speedups"]["eager"]["low"] > 0
    assert [(k["kind"], k["status"]) for k in judged["learned"]] == [("kernel", "quarantine")]
    assert "checking the results" in story.progress


def test_failure_names_the_line_and_its_most_similar_parent(story):
    judged = story.said["broken"]
    assert judged["outcome"] == "compile failed"
    assert judged["parent"] == 1
    assert judged["diagnostics"][0]["line"]


def test_cancelled_evaluation_ends_its_processes_and_the_run_goes_on(story):
    assert story.left["cancelled"] >= 2
    assert story.said["after"]["attempt"] == 4  # the third was cut short
    assert story.said["after"]["run"] == story.said["passed"]["run"]


def test_confirmed_kernel_leaves_quarantine_and_a_remark_stays(story):
    found = story.said["best"]
    # On a machine that is busy a second look may refute it, or not come about.
    looked = {True: ExperienceStatus.ACTIVE, None: ExperienceStatus.QUARANTINE}
    expected = ExperienceStatus.SUSPECT
    if found["attempt"] is not None:
        expected = looked[found["confirmed"]]
        ratio = found["confirmed_speedup"]
        if ratio and ratio["low"] <= 1 <= ratio["high"]:  # measured quickly: no win
            expected = ExperienceStatus.QUARANTINE
        assert found["source"] == KERNEL
        assert Path(found["file"]).read_text() == KERNEL
    assert story.said["profile"]["median_ms"] > 0
    with Memory.open(MemoryConfig(path=story.place.folder / "memory"), create=False) as memory:
        (kernel,) = memory.list(kind="kernel")
        assert kernel.status is expected
        assert kernel.experience.origin.proposer.startswith("external")
        remark = memory.get(story.said["remark"]["kept"]["id"])
        assert remark.status is ExperienceStatus.QUARANTINE
        assert remark.experience.payload["note"].startswith("A plain loop")


def test_resources_show_runs_attempts_and_experiences(story):
    run = story.said["passed"]["run"]
    assert json.loads(story.pages[f"runs/{run}"])["attempts_made"] == 3
    attempt = json.loads(story.pages[f"runs/{run}/attempts/1"])
    assert attempt["proposal"]["rationale"] == "plain loop"
    assert {"kernel", "lesson"} <= {e["kind"] for e in json.loads(story.pages["experiences"])}


def test_started_run_survives_its_server_and_any_server_stops_it(story):
    assert story.said["started"]["state"] == "running"
    assert story.said["alive"]["state"] == "running"
    assert story.said["stopped"]["state"] == "stopped"
    assert story.said["stopped again"]["state"] == "stopped"


def test_run_of_another_author_takes_no_evaluations(story):
    error = story.said["not mine"]
    assert error["argument"] == "run"
    assert "not of evaluations" in error["message"]


def test_killed_server_leaves_no_process_and_a_run_that_can_be_gone_on_with(story):
    assert story.left["orphaned"] >= 2
    record = RunRecord.resume(story.place.folder / "runs" / story.said["passed"]["run"])
    assert [a.number for a in record.attempts()] == [1, 2, 4]
    record.close()


# -- bad input -------------------------------------------------------------------------------------


def test_bad_calls_say_what_is_wrong_expected_and_to_be_done(tmp_path):
    async def scene(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {
            *("recall", "evaluate", "best", "profile", "remember"),
            *("start_run", "run_status", "stop_run", "doctor"),
        }
        for tool in tools.values():
            assert tool.output_schema
            assert tool.output_schema["type"] == "object"
            described = tool.input_schema["properties"].values()
            assert all("description" in each for each in described), tool.name

        cases: list[tuple[str, dict[str, Any], str, str | None, str]] = [
            ("evaluat", {}, "UnknownTool", None, "Did you mean `evaluate`"),
            ("evaluate", {"task": "softmax"}, "BadArgument", "source", "missing"),
            ("evaluate", {"source": KERNEL}, "BadArgument", "task", "missing"),
            ("evaluate", {"task": "softmx", "source": ""}, "TaskError", "task", "`softmax`"),
            ("evaluate", {"task": "no\ntask", "source": ""}, "TaskError", "task", ""),
            ("evaluate", {"run": "../../etc", "source": ""}, "RecordError", "run", "no run"),
            ("best", {"run": ""}, "RecordError", "run", "evokernel://runs"),
            ("run_status", {"run": "x", "wait_s": 1e9}, "BadArgument", "wait_s", ""),
            ("start_run", {"task": "gelu", "attempts": 0}, "BadArgument", "attempts", ""),
            ("start_run", {"task": "gelu", "model": "nobody"}, "ConfigError", None, "nobody"),
            ("recall", {"task": "gelu", "backend": "cobol"}, "BadArgument", "backend", ""),
            ("doctor", {"checks": ["luck"]}, "BadArgument", "checks", "luck"),
        ]
        for name, arguments, kind, argument, words in cases:
            error = await refused(client, name, **arguments)
            assert (error["kind"], error["argument"]) == (kind, argument), error
            assert words in error["message"], error
            assert error["advice"], error

        (checked,) = (await done(client, "doctor", checks=["python"]))["findings"]
        assert checked["state"] == "ok"
        for uri, text in {"guide": "ModelNew", "techniques": "does", "tasks/gelu": "class"}.items():
            assert text in await page(client, f"evokernel://{uri}")
        assert await page(client, "evokernel://runs") == "[]"
        assert await page(client, "evokernel://experiences") == "[]"
        for uri in (
            "evokernel://nothing",
            "evokernel://runs/none",
            "evokernel://tasks/..",
            "x://y",
        ):
            with pytest.raises(MCPError) as caught:
                await page(client, uri)
            assert "xpected" in caught.value.message or "no run" in caught.value.message

    talk(Place(tmp_path, Path(os.environ["EVOKERNEL_HOME"])), scene)


@pytest.mark.parametrize(
    ("pattern", "uri", "named"),
    [
        ("runs", "evokernel://runs", {}),
        ("runs/{run}", "evokernel://runs/a-1", {"run": "a-1"}),
        ("runs/{run}", "evokernel://tasks/a", None),
        ("runs/{run}", "evokernel://runs/a/b", None),
        ("runs", "file://runs", None),
    ],
)
def test_addresses_match_whole_parts(pattern, uri, named):
    assert matched(pattern, uri) == named
