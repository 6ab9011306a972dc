"""What a worker on a GPU may reach, as far as that can be tried without one; how it is said."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evokernel.bench.gpu import choice
from evokernel.bench.sandbox import Cell
from evokernel.confinement import files

SHUT_IN = """
import json, os, socket, sys, threading
from evokernel.bench import sandbox
from evokernel.bench.sandbox import Cell, Report

cell = Cell.model_validate_json(sys.argv[1])
report = Report("basic")
sandbox.confine(report, cell)
told = {"protections": report.protections.model_dump()}


def attempt(name, path):
    try:
        with open(path, "w") as file:
            file.write("named")
        told[name] = "written"
    except OSError as error:
        told[name] = type(error).__name__


def named():
    attempt("thread", f"/proc/self/task/{threading.get_native_id()}/comm")
    attempt("thread_by_number", f"/proc/{os.getpid()}/task/{os.getpid()}/comm")


thread = threading.Thread(target=named)
thread.start()
thread.join()
def made(name, family, kind, act=lambda made: None):
    try:
        with socket.socket(family, kind) as end:
            act(end)
        told[name] = "made"
    except OSError as error:
        told[name] = type(error).__name__


def listen(end):
    end.bind(chr(0) + "evokernel-test")
    end.listen(1)


made("listening", socket.AF_UNIX, socket.SOCK_SEQPACKET, listen)
made("calling", socket.AF_UNIX, socket.SOCK_STREAM, lambda end: end.connect("/run/daemon"))
made("network", socket.AF_INET, socket.SOCK_STREAM)
made("datagrams", socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("own", "/proc/self/comm")
attempt("machine", "/proc/sys/kernel/domainname")
attempt("scratch", cell.scratch + "/file")
attempt("node", cell.nodes[0])
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a process reports that was shut in as for a GPU."""
    folder = tmp_path_factory.mktemp("cell")
    (folder / "scratch").mkdir()
    (folder / "nvidia0").write_text("")
    cell = Cell(
        scratch=str(folder / "scratch"),
        scratch_bytes=1 << 20,
        memory_bytes=1 << 30,
        threads=1,
        cpu_s=60,
        readable=(str(Path(sys.prefix).resolve()), *files.SYSTEM, *files.GPU_SYSTEM),
        writable=(),
        device="cuda:0",
        nodes=(str(folder / "nvidia0"),),
    )
    command = [sys.executable, "-c", SHUT_IN, cell.model_dump_json()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_threads_can_be_named_and_nothing_else_in_proc(told):
    if not told["protections"]["landlock"]:
        pytest.skip("without Landlock nothing of this is kept")
    assert told["thread"] == told["thread_by_number"] == "written"
    assert {told["own"], told["machine"]} == {"PermissionError"}


def test_sockets_reach_nobody(told):
    if not told["protections"]["system_calls"]:
        pytest.skip("there is no filter here")
    assert told["listening"] == "made"  # CUDA does not start without
    assert told["calling"] == "ConnectionRefusedError"
    assert told["network"] == told["datagrams"] == "PermissionError"


def test_device_files_can_be_used(told):
    assert told["node"] == told["scratch"] == "written"


def test_addresses_are_not_limited(told):
    assert not told["protections"]["memory_limit"]
    assert any("CUDA reserves more addresses" in note for note in told["protections"]["notes"])


def test_only_what_programs_need_of_the_driver_is_a_node(tmp_path):
    wanted = ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    for name in (*wanted, "nvidia-modeset", "nvidia-caps", "nvidia", "null"):
        (tmp_path / name).write_text("")
    found = files.gpu_nodes(str(tmp_path))
    assert set(found) == {f"{tmp_path}/{name}" for name in wanted}


def test_backends_run_where_they_belong():
    assert choice.device_of("cpp") == "cpu"
    assert choice.device_of("cuda") == choice.device_of("triton") == "cuda:0"
    assert choice.missing("cpp") == ""


def test_without_a_gpu_files_go_to_the_processor():
    if not choice.missing("cuda"):
        pytest.skip("there is a GPU")
    assert choice.picked() == "cpp"
    assert choice.of_source("KERNEL = jit.cuda_module('...')") == "cpp"


def test_what_is_missing_is_said_with_what_to_do():
    why = choice.missing("cuda")
    if not why:
        pytest.skip("there is a GPU")
    with pytest.raises(choice.DeviceMissing) as refused:
        choice.require("cuda")
    said = str(refused.value)
    assert said.startswith("backend `cuda`: ")
    assert "\n" not in said
    assert "`--backend cpp`" in said or "install" in said
