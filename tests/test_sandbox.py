"""What a candidate can reach from inside, and what is said where a protection is missing."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evokernel.bench import kernel, sandbox
from evokernel.bench.messages import Protections, WorkerSpec
from evokernel.bench.pool import WorkerPool

PROBE = """
import ctypes, os, pathlib, signal, socket, subprocess, sys, tempfile
import threading, time
import torch

def attempt(action):
    try:
        return str(action())[:4000]
    except BaseException as error:
        return type(error).__name__

def connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        return "connected"

def threads_until_refused():
    threading.stack_size(1 << 16)
    for count in range(1000):
        try:
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        except RuntimeError:
            break
    return count

def write(path):
    pathlib.Path(path, "planted").write_text("x")
    return "written"

class ModelNew(torch.nn.Module):
    def forward(self, here):
        text = pathlib.Path.read_text
        status = dict(
            line.split(":", 1) for line in text(pathlib.Path("/proc/self/status")).splitlines()
        )
        return {
            "environment": "\\n".join(f"{k}={v}" for k, v in os.environ.items()),
            "birth_environment": attempt(lambda: text(pathlib.Path("/proc/self/environ"))),
            "parent_environment": attempt(
                lambda: text(pathlib.Path(f"/proc/{here['parent']}/environ"))),
            "parent_memory": attempt(lambda: open(f"/proc/{here['parent']}/mem", "rb").read(1)),
            "parent_files": attempt(lambda: os.readlink(f"/proc/{here['parent']}/fd/0")),
            "signal_parent": attempt(lambda: os.kill(here["parent"], 0)),
            "signal_reaper": attempt(lambda: os.kill(os.getppid(), signal.SIGUSR1)),
            "processes": [p for p in os.listdir("/proc") if p.isdigit()],
            "network": attempt(lambda: connect(here["port"])),
            "secret_file": attempt(lambda: text(pathlib.Path(here["secret"]))),
            "shadow": attempt(lambda: text(pathlib.Path("/etc/shadow"))),
            "write_cache": attempt(lambda: write(here["cache"])),
            "write_package": attempt(lambda: write(here["package"])),
            "write_tmp": attempt(lambda: write("/tmp")),
            "write_shm": attempt(lambda: write("/dev/shm")),
            "write_sysctl": attempt(lambda: open("/proc/sys/kernel/core_pattern", "w")),
            "write_scratch": attempt(lambda: write(tempfile.mkdtemp())),
            "run_program": attempt(lambda: subprocess.check_output(["uname"], text=True)),
            "capabilities": status["CapEff"].strip() + status["CapBnd"].strip(),
            "no_new_privileges": status["NoNewPrivs"].strip(),
            "mount": attempt(lambda: ctypes.CDLL(None).mount(b"none", b"/mnt", b"tmpfs", 0, None)),
            "open_files": sorted(os.listdir("/proc/self/fd")),
            "threads": threads_until_refused() if here["is_limited"] else 0,
        }
"""


@pytest.fixture(scope="module", params=["full", "basic"])
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Protections, dict[str, Any]]]:
    """What the probe reports under each isolation."""
    base, cache = tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("cache")
    secret = tmp_path_factory.mktemp("secret") / "secret"
    secret.write_text("hunter2")
    os.environ["PROBE_API_KEY"] = "hunter2"
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            WorkerPool(cache=cache, isolation=request.param, base=base) as pool,
            pool.fork(WorkerSpec(role="candidate", source=PROBE, run_s=60), _no_build) as worker,
        ):
            worker.load([], {}, seed=1)
            here = {
                "parent": os.getpid(),
                "port": listener.getsockname()[1],
                "secret": str(secret),
                "cache": str(cache),
                "package": str(Path(sandbox.__file__).parent),
                "is_limited": worker.protections.process_limit,
            }
            worker.put("here", [here])
            yield request.param, worker.protections, worker.run("here").outputs
    finally:
        del os.environ["PROBE_API_KEY"]


def _no_build(kernel: object) -> Any:
    pytest.fail("nothing to build")


def test_no_key_is_within_reach(seen: tuple[str, Protections, dict[str, Any]]) -> None:
    _, _, found = seen
    for place in ("environment", "birth_environment", "parent_environment"):
        assert "hunter2" not in found[place]
    assert found["parent_environment"] in ("FileNotFoundError", "PermissionError")
    assert found["parent_memory"] in ("FileNotFoundError", "PermissionError")
    assert found["parent_files"] in ("FileNotFoundError", "PermissionError")


def test_only_scratch_is_writable(seen: tuple[str, Protections, dict[str, Any]]) -> None:
    _, protections, found = seen
    assert found["write_scratch"] == "written"
    if protections.landlock or protections.mount_namespace:
        for place in ("cache", "package", "tmp", "shm", "sysctl"):
            assert found[f"write_{place}"] in ("PermissionError", "OSError"), place
    if protections.landlock:
        assert found["secret_file"] == "PermissionError"
        assert found["shadow"] == "PermissionError"


def test_nobody_can_be_called_or_signalled(seen: tuple[str, Protections, dict[str, Any]]) -> None:
    isolation, protections, found = seen
    if protections.network_namespace or protections.landlock >= 4:
        assert found["network"] != "connected"
    if protections.pid_namespace or protections.landlock >= 6:
        assert found["signal_parent"] in ("ProcessLookupError", "PermissionError")
    if protections.landlock >= 6:
        assert found["signal_reaper"] == "PermissionError"
    if isolation == "full" and protections.mount_namespace:
        assert len(found["processes"]) == 2  # the reaper and itself


def test_privileges_are_gone_but_programs_run(
    seen: tuple[str, Protections, dict[str, Any]],
) -> None:
    _, _, found = seen
    assert int(found["capabilities"], 16) == 0
    assert found["no_new_privileges"] == "1"
    assert found["mount"] == "-1"
    assert found["run_program"].strip() == "Linux"
    assert found["open_files"][:4] == ["0", "1", "2", "3"]
    assert len(found["open_files"]) == 5  # the fifth reads the folder


def test_processes_are_limited(seen: tuple[str, Protections, dict[str, Any]]) -> None:
    _, protections, found = seen
    if protections.process_limit:
        assert sandbox.PROCESSES - 20 < found["threads"] < sandbox.PROCESSES


def test_what_is_missing_is_said(seen: tuple[str, Protections, dict[str, Any]]) -> None:
    isolation, protections, _ = seen
    fields = protections.model_dump(exclude={"notes"})
    missing = [name for name, value in fields.items() if not value]
    assert bool(missing) == bool(protections.notes)
    assert protections.capabilities_dropped
    assert protections.memory_limit
    assert protections.landlock == kernel.landlock_version()
    if isolation == "basic":
        assert "namespaces: not asked for" in protections.notes


def test_a_step_that_the_system_refuses_becomes_a_note() -> None:
    report = sandbox.Report()

    def refuse() -> None:
        raise PermissionError(1, "Operation not permitted")

    assert report.attempt("no_new_privileges", lambda: None)
    assert not report.attempt("landlock", refuse)
    assert report.protections == Protections(
        no_new_privileges=True, notes=("landlock: Operation not permitted",)
    )
