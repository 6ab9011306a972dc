"""A worker that writes what it likes to its parent: a fault, never belief or a crash."""

import gc
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from evokernel.bench.messages import Fault, Faulted, WorkerSpec
from evokernel.bench.pool import Worker, WorkerPool
from evokernel.bench.servers import WarmServers
from evokernel.evaluation import Status

X = torch.arange(12, dtype=torch.float32)

TOOLS = """
import array, fcntl, json, os, signal, socket, struct, sys, threading, time
import torch

wire = socket.socket(fileno=os.dup(3))

def request():
    frame = sys._getframe()
    while frame:
        message = frame.f_locals.get("message")
        if isinstance(message, dict) and "id" in message:
            return message["id"]
        frame = frame.f_back

def send(body, files=()):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    wire.sendmsg([struct.pack("!I", len(body)) + body], rights)

def reply(files=(), **parts):
    send({"id": request(), "files": len(files), **parts}, files)

def raw(text):
    send(('{"id": %d, "files": 0, %s}' % (request(), text)).encode())

def memory(size, seals):
    file = os.memfd_create("forged", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file

SEALED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
PLAIN = dict(dtype="float32", shape=[12], strides=[1], offset=0, span=12)
FACT = dict(path="", dtype="float32", shape=[12], strides=[1], device="cpu",
            type_name="torch.Tensor", requires_grad=False, aliases=None)
REST = dict(changed=[], seconds=0.1, left=0, operators={}, launches=[])

def package(layout=PLAIN, size=64, tree={"t": 0}):
    return {"tree": tree, "layouts": [layout], "bytes": size}

def outcome(files=None, layout=PLAIN, size=64, facts=[FACT], **parts):
    files = [memory(size, SEALED)] if files is None else files
    told = {"package": package(layout, size), "facts": facts, **REST, **parts}
    reply(files, **told)
"""

FORGERIES = {
    "garbage": "os.write(3, b'garbage!' * 99)",
    "a frame without end": "os.write(3, b'\\xff\\xff\\xff\\xff')",
    "half a frame, then an exit": "os.write(3, b'\\0\\0\\1\\0{'); os._exit(0)",
    "no JSON": "send(b'{')",
    "an array": "send([1, 2])",
    "deep JSON": "send(b'[' * 200_000)",
    "no text": "send(b'\\xff\\xfe')",
    "no number": "send({'files': 0})",
    "another number": "send({'id': request() + 1, 'files': 0})",
    "the number as text": "send({'id': str(request()), 'files': 0})",
    "an old number": "send({'id': 3, 'files': 0})",
    "no package": "reply()",
    "a package that is a list": "reply(package=[1])",
    "layouts that are a number": "reply(package={'tree': {}, 'layouts': 1, 'bytes': 0})",
    "NaN for a size": 'raw(\'"package": {"tree": {}, "layouts": [], "bytes": NaN}\')',
    "endless seconds": "raw('\"seconds\": Infinity')",
    "seconds beyond floats": "raw('\"seconds\": 1e999')",
    "an integer beyond floats": "raw('\"seconds\": 1' + '0' * 400)",
    "an integer of a million digits": "raw('\"seconds\": ' + '1' * 1_000_000)",
    "negative size": "outcome(files=[], size=-64)",
    "no file": "outcome(files=[])",
    "files that did not come": "send({'id': request(), 'files': 2})",
    "a negative number of files": "send({'id': request(), 'files': -1})",
    "memory that can shrink": "outcome([memory(64, fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)])",
    "memory that can be written": "outcome([memory(64, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)])",
    "memory shorter than told": "outcome([memory(32, SEALED)])",
    "more memory than allowed": "outcome([memory(64, SEALED)], size=1 << 40)",
    "a socket for memory": "outcome([os.dup(3)])",
    "a folder for memory": "outcome([os.open('.', os.O_RDONLY)])",
    "a pipe for memory": "outcome([os.pipe()[0]])",
    "a file on disk for memory": "outcome([os.open('f', os.O_CREAT | os.O_RDWR)])",
    "descriptors without end": (
        "null = os.open('/dev/null', os.O_RDONLY)\n"
        "for _ in range(400):\n"
        "    wire.sendmsg([b'\\0'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,"
        " array.array('i', [null] * 4))])"
    ),
    "more descriptors than announced": "send({'id': request(), 'files': 1}, [0, 1, 2])",
    "a tensor outside its memory": "outcome(layout=PLAIN | {'offset': 64})",
    "a tensor that overlaps itself": (
        "outcome(layout=PLAIN | {'shape': [1 << 40], 'strides': [0], 'span': 1})"
    ),
    "a tensor beyond all numbers": (
        "outcome(layout=PLAIN | {'shape': [1 << 40, 1 << 40], 'strides': [0, 0], 'span': 1})"
    ),
    "a type that is none": "outcome(layout=PLAIN | {'dtype': 'Tensor'})",
    "facts of more tensors": "outcome(facts=[FACT] * 2)",
    "a tensor twice": (
        "reply([memory(64, SEALED)], package=package(tree={'l': [{'t': 0}] * 2}), facts=[FACT],"
        " **REST)"
    ),
    "a tensor that is nowhere": (
        "reply([memory(64, SEALED)], package=package(tree={'l': []}), facts=[FACT], **REST)"
    ),
    "facts that are text": "outcome(facts='no')",
    "operators that are a list": "outcome(operators=[1])",
    "launches that are none": "outcome(launches=[[1]])",
    "changes that are text": "outcome(changed=['x'])",
    "a report of success": (
        "reply(error={'status': 'passed', 'reason': '', 'diagnostics': [], 'log': ''})"
    ),
    "a report against the machine": (
        "reply(error={'status': 'infrastructure', 'reason': '', 'diagnostics': [], 'log': ''})"
    ),
    "a report of nothing": "reply(error=3)",
    "a report of something else": (
        "reply(error={'status': 'runtime_error', 'reason': 1, 'diagnostics': [3], 'log': 2})"
    ),
    "a kernel that is none": "send({'build': 3, 'files': 0})",
    "a kernel that no module can ask for": (
        "send({'build': {'backend': 'triton', 'source': 'import os'}, 'files': 0})"
    ),
    "another connection": "a, b = socket.socketpair(); os.dup2(b.fileno(), 3); wire.close()",
    "a death that has no name": "os.kill(os.getpid(), 40)",
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, servers: WarmServers) -> Iterator[WorkerPool]:
    gc.collect()
    gc.freeze()  # `open_files` collects garbage before and after each test
    with WorkerPool(cache=tmp_path_factory.mktemp("cache"), servers=servers) as opened:
        yield opened
    gc.unfreeze()


def module(forward: str) -> str:
    body = textwrap.indent(forward, " " * 8)
    return f"{TOOLS}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{body}\n"


def fork(pool: WorkerPool, forward: str) -> Worker:
    spec = WorkerSpec(role="candidate", source=module(forward), memory_bytes=1 << 30, run_s=20)
    worker = pool.fork(spec, lambda kernel: pytest.fail("nothing to build"))
    worker.load([], {}, seed=7)
    worker.put("x", [X], output_bytes=[48])
    return worker


def fault_of(pool: WorkerPool, forward: str) -> Fault:
    with fork(pool, forward) as worker, pytest.raises(Faulted) as caught:
        worker.run("x")
    assert not worker.is_alive
    return caught.value.fault


def open_files() -> int:
    gc.collect()  # tensors in frames of a traceback keep their memory open
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_forger_would_be_believed_if_it_told_the_truth(pool: WorkerPool) -> None:
    """Else the table below would show nothing."""
    with fork(pool, "outcome(); time.sleep(60)") as worker:
        assert torch.equal(worker.run("x").outputs, torch.zeros(12))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_answer_is_the_candidates_crash(pool: WorkerPool, name: str) -> None:
    before = open_files()
    fault = fault_of(pool, f"{FORGERIES[name]}\ntime.sleep(60)")
    assert fault.status is Status.CRASHED, fault
    assert fault.reason
    assert open_files() == before
    with fork(pool, "return x + 1") as worker:
        assert torch.equal(worker.run("x").outputs, X + 1)


def test_half_an_answer_is_waited_for_no_longer_than_a_call_may_take(pool: WorkerPool) -> None:
    with (
        fork(pool, "os.write(3, b'\\0\\0\\1\\0{'); time.sleep(60)") as worker,
        pytest.raises(Faulted) as caught,
    ):
        worker.run("x", deadline_s=0.3)
    assert caught.value.fault.status is Status.TIMEOUT


@pytest.mark.parametrize("second", ["outcome()", "send({'id': request(), 'files': 0})"])
def test_an_answer_to_a_request_that_was_not_made_yet(pool: WorkerPool, second: str) -> None:
    forward = f"outcome(); {second}; time.sleep(60)"
    with fork(pool, forward) as worker:
        worker.run("x")
        with pytest.raises(Faulted, match="before it was asked|what was not asked"):
            worker.run("x")


def test_a_terminal_is_not_written_to_through_texts(pool: WorkerPool) -> None:
    forward = "print('\\x1b]0;title\\x07'); raise ValueError('\\x1b[2J\\u202eevil')"
    fault = fault_of_a_living_one(pool, forward)
    told = fault.model_dump_json()
    assert "title" in fault.log
    assert "evil" in fault.reason
    assert not any(sign in text for sign in "\x1b\x07\u202e" for text in texts(fault))
    assert "\\\\x1b" in told


def test_names_are_as_harmless_as_messages(pool: WorkerPool) -> None:
    forward = (
        "outcome(operators={'\\x1b[2J': 1}, launches=[['\\x07', 0.1]],"
        " facts=[FACT | {'type_name': '\\x1b'}]); time.sleep(60)"
    )
    with fork(pool, forward) as worker:
        outcome = worker.run("x")
    assert list(outcome.operators) == ["\\x1b[2J"]
    assert [launch.kernel for launch in outcome.launches] == ["\\x07"]
    assert outcome.facts[0].type_name == "\\x1b"


def fault_of_a_living_one(pool: WorkerPool, forward: str) -> Fault:
    with fork(pool, forward) as worker, pytest.raises(Faulted) as caught:
        worker.run("x")
    return caught.value.fault


def texts(fault: Fault) -> list[str]:
    found: list[Any] = [fault.reason, fault.log]
    for diagnostic in fault.diagnostics:
        found += [diagnostic.message, diagnostic.excerpt, diagnostic.file]
    return [text for text in found if text]


def test_a_report_is_cut_to_a_size_that_can_be_kept(pool: WorkerPool) -> None:
    forward = (
        "long = {'severity': 'error', 'message': 'm' * 10_000}\n"
        "reply(error={'status': 'runtime_error', 'reason': 'r' * 10_000,"
        " 'diagnostics': [long] * 500, 'log': 'l' * 100_000})\n"
        "time.sleep(60)"
    )
    fault = fault_of_a_living_one(pool, forward)
    assert len(fault.diagnostics) == 20
    assert len(fault.diagnostics[0].message) == 500
    assert (len(fault.reason), len(fault.log)) == (1000, 8000)


def test_a_stopped_worker_is_ended_at_its_limit(pool: WorkerPool) -> None:
    with (
        fork(pool, "os.kill(os.getpid(), signal.SIGSTOP)") as worker,
        pytest.raises(Faulted) as caught,
    ):
        worker.run("x", deadline_s=0.3)
    assert caught.value.fault.status is Status.TIMEOUT
    assert worker.pids == ()
