"""compute-sanitizer: what it prints, what follows from that, and planted faults where it works."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
import torch

from evokernel.bench.gpu import tools
from evokernel.bench.gpu.sanitizer import NAME, Checked, check, command, read
from tests import gpu_profile_kernels as planted
from tests.test_gpu_profile import PLAIN, built, job_of

DATA = Path(__file__).parent / "data" / "sanitizer"


def logged(name: str) -> str:
    return (DATA / name).read_text()


def test_a_write_beyond_its_buffer_is_read():
    errors, log = read(logged("memcheck.txt"))
    assert errors == ("Invalid __global__ write of size 4 bytes at beyond+0x100 in kernel.cu:4",)
    assert "out of bounds" in log
    assert "didn't terminate" not in log  # what is said of the program around it


def test_a_race_is_read_and_warnings_are_none():
    warning = "========= Warning: Race reported between Write access at reduce+0x150\n=========\n"
    errors, log = read(warning + logged("racecheck.txt"))
    assert len(errors) == 1
    assert errors[0].startswith("Race reported between Write access at turned")
    assert "262144 hazards" in log


def test_faults_of_other_functions_are_not_its_own():
    assert read(logged("memcheck.txt"), ["affine"]) == ((), "")
    assert read(logged("memcheck.txt"), ["affine", "beyond"])[0]
    assert read(logged("memcheck.txt"), ["bey"]) == ((), "")


@pytest.mark.parametrize("name", ["clean.txt", "unsupported.txt"])
def test_where_nothing_is_reported_nothing_is_found(name):
    assert read(logged(name)) == ((), "")


def test_the_reason_is_one_sentence():
    assert Checked().reason == ""
    assert Checked(errors=("Invalid write",)).reason == "compute-sanitizer: Invalid write"
    assert Checked(errors=("a", "b", "c")).reason.endswith("a and 2 more")


def test_only_memcheck_pads_allocations():
    assert "--padding" in command("x", "memcheck")
    assert "--padding" not in command("x", "racecheck")


TOOL = """#!/bin/sh
while [ "$1" != -c ]; do
  [ "$1" = --log-file ] && log=$2
  shift
done
cp {log} "$log"
"""


def place(folder: Path, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that prints a log and runs nothing."""
    tool = folder / "bin" / NAME
    tool.parent.mkdir()
    tool.write_text(TOOL.format(log=DATA / log))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


def checked(**more: object) -> Checked:
    with job_of(PLAIN, [torch.ones(4)]) as job:
        return check(job, contextlib.nullcontext, **more)


def test_a_kernel_with_faults_has_a_reason_and_what_was_printed(tmp_path, monkeypatch):
    place(tmp_path, "memcheck.txt", monkeypatch)
    found = checked()
    assert found.reason.startswith("compute-sanitizer: Invalid __global__ write")
    assert "1 bytes after the nearest allocation" in found.log
    assert "did not finish" in found.notes[0]  # as after a real fault


def test_a_refused_device_is_no_fault_and_not_believed_of_others(tmp_path, monkeypatch):
    place(tmp_path, "unsupported.txt", monkeypatch)
    said: list[str] = []
    for _ in range(2):
        found = checked(say=said.append)
        assert (found.errors, found.reason) == ((), "")
        assert "Device not supported" in found.notes[0]
    assert len(said) == 2
    place_of_tool = tmp_path / "bin" / NAME
    place_of_tool.write_text(TOOL.format(log=DATA / "memcheck.txt"))
    assert checked().reason


def test_a_missing_tool_is_no_fault(tmp_path, monkeypatch):
    if tools.found(NAME) and not shutil.which(NAME):
        pytest.skip("it is installed outside the path")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = checked()
    assert found.reason == ""
    assert "not installed" in found.notes[0]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("source", "fault"), [("BEYOND", "Invalid"), ("RACE", "Race"), ("CLEAN", "")]
)
def test_planted_faults_are_found(source, fault, warm_cache):
    text = getattr(planted, source)
    kernel = built(text, warm_cache)
    names = [resources.kernel for resources in kernel[1].resources]
    with job_of(text, [torch.randn(1 << 16)], (kernel,)) as job:
        found = check(job, contextlib.nullcontext, names, uses_shared=True)
    if found.notes and not found.errors:
        pytest.skip(found.notes[0])
    assert found.reason.startswith(f"compute-sanitizer: {fault}" if fault else ""), found
    assert bool(found.errors) == bool(fault), found
