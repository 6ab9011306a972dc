"""The workflow on a real LangGraph server, asked by the real client."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from evokernel.testing import fake_kernel, fake_task

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("langgraph_api") is None,
        reason="needs `langgraph-cli[inmem]`, which constraints-server.txt pins",
    ),
]

ROOT = Path(__file__).parent.parent

SILENT = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"}
"""Without the first the server's command tells its makers that it was used."""

GRAPHS = """
import evokernel
from evokernel import RunConfig
from evokernel.testing import FakeEvaluator, ScriptedProposer

config = RunConfig(budget={"attempts": 2}, search={"width": 1, "recombine": 0.0})
written = evokernel.build_workflow(config, evaluator=FakeEvaluator, proposer=ScriptedProposer)
outside = config.model_copy(update={"proposer": "external"})
asked = evokernel.build_workflow(outside, evaluator=FakeEvaluator, approve=True)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "graphs.py").write_text(GRAPHS)
    graphs = {"written": "./graphs.py:written", "asked": "./graphs.py:asked"}
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, **SILENT, "PYTHONPATH": path, "EVOKERNEL_HOME": str(folder)},
        )
        try:
            yield _ready(port, server, folder / "log")
        finally:
            server.terminate()
            server.wait(30)


@pytest.fixture
def client(url: str) -> Iterator[SyncLangGraphClient]:
    with get_sync_client(url=url) as client:
        yield client


def _ready(port: int, server: "subprocess.Popen[bytes]", log: Path) -> str:
    for _ in range(600):
        assert server.poll() is None, log.read_text()
        with socket.socket() as door:
            if door.connect_ex(("127.0.0.1", port)) == 0:
                return f"http://127.0.0.1:{port}"
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_run_is_streamed_and_leaves_its_values(client):
    thread = client.threads.create()["thread_id"]
    parts = client.runs.stream(
        thread, "written", input={"task": fake_task().source}, stream_mode="custom"
    )
    kinds = [part.data["kind"] for part in parts if part.event == "custom"]
    assert kinds[0] == "began"
    assert kinds.count("attempt") == 2
    values = client.threads.get_state(thread)["values"]
    assert values["reason"] == "all 2 attempts are spent"
    assert values["speedups"]["eager"] > 1


def test_author_and_approval_come_from_outside(client):
    thread = client.threads.create()["thread_id"]

    def waiting() -> dict:
        return client.threads.get_state(thread)["interrupts"][0]["value"]

    client.runs.wait(thread, "asked", input={"task": fake_task().source})
    assert "class Model" in waiting()["reference"]
    client.runs.wait(thread, "asked", command={"resume": fake_kernel(5.0)})
    assert waiting()["parents"][0]["median_ms"] == 5.0
    client.runs.wait(thread, "asked", command={"resume": {"source": fake_kernel(4.0)}})
    assert waiting()["kind"] == "approval"
    end = client.runs.wait(thread, "asked", command={"resume": {"approved": True}})
    assert end["approved"] is True
    assert end["median_ms"] == 4.0
