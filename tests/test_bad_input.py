"""What users get wrong: one paragraph that names it, the exit code, and nothing lost."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evokernel.cli import main
from evokernel.cli.faults import tell
from evokernel.config import MemoryConfig, RunConfig
from evokernel.errors import RecordError
from evokernel.memory.embedding import StructuralEmbedder
from evokernel.memory.store import Memory
from evokernel.optimize import RunResult, optimize, resume
from evokernel.record import RunRecord
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_task

GOOD = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(512, 1024)]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Work in a folder that holds a good task file, `good.py`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(GOOD)
    return tmp_path


@pytest.fixture
def refused(capsys, folder) -> Callable[..., str]:
    """Return a function that expects a command line to be refused, and gives the paragraph."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), err
        assert err.startswith("evokernel: ")
        assert err.count("\n") == 1, "one paragraph"
        assert err.endswith((".\n", "?\n"))
        assert "Traceback" not in err
        assert not (folder / "runs").exists(), "a run was begun"
        return err

    return run


def write(name: str, *changes: tuple[str, str]) -> str:
    """Write a task file that differs from the good one."""
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path(name).write_text(text)
    return name


# Task files


def test_missing_file(refused):
    said = refused("run", "missing.py")
    assert "`missing.py` does not exist; expected the path of a task file" in said
    assert "`missing.cpp`" in refused("compile", "missing.cpp")
    assert "`missing.py`" in refused("evaluate", "missing.py", "--task", "softmax")
    assert "`missing.py`" in refused("run", "good.py", "--start", "missing.py")


def test_file_without_model(refused):
    said = refused("run", write("net.py", ("class Model", "class Net")))
    assert "`net.py` has no `Model`" in said
    assert "a task file defines a class `Model`" in said


def test_candidate_given_as_task_and_task_given_as_candidate(refused):
    said = refused("run", write("mine.py", ("class Model", "class ModelNew")))
    assert "is it a candidate, to be evaluated against a task?" in said


def test_file_that_is_not_python(refused):
    said = refused("run", write("odd.py", ("def forward(self, x):", "def forward(self, x")))
    assert "`odd.py` is not valid Python" in said
    assert "line 7" in said


def test_inputs_that_do_not_fit(refused):
    said = refused("run", write("few.py", ("forward(self, x)", "forward(self, x, y)")))
    assert "the inputs of `few.py` do not fit `forward(x, y)`" in said
    assert "`get_inputs()` returns a list with one entry per argument" in said
    said = refused("run", write("shape.py", ("torch.relu(x)", "x @ x")))
    assert "`Model.forward` raised `RuntimeError: mat1 and mat2 shapes" in said


def test_reference_that_raises(refused):
    said = refused("run", write("raises.py", ("return torch.relu(x)", "raise ValueError('no')")))
    assert "`Model.forward` raised `ValueError: no` at line 8" in said
    assert "repair the file" in said
    said = refused(
        "run", write("imports.py", ("import torch\n", "import torch\nimport nonesuch\n"))
    )
    assert "`ModuleNotFoundError: No module named 'nonesuch'`" in said


def test_task_that_does_not_fit_into_memory(refused):
    said = refused("run", write("huge.py", ("torch.randn(512, 1024)", "torch.randn(1 << 40)")))
    assert "needs about 8192.0 GiB of memory" in said
    assert "GiB are available" in said
    assert "Make the sizes in the task file smaller" in said


def test_operator_without_template(refused):
    said = refused("run", write("fft.py", ("torch.relu(x)", "torch.fft.fft(x).real")))
    assert "no template for `fft`" in said
    assert "--model NAME" in said


@pytest.mark.parametrize("backend", ["cuda", "triton"])
def test_backend_without_its_device(refused, backend):
    assert f"`{backend}`" in refused("run", "good.py", "--backend", backend)


# Places


def test_unwritable_run_folder(refused, folder):
    (folder / "file").write_text("")
    said = refused("run", "good.py", "--runs-dir", "file/runs")
    assert "`file/runs/" in said
    assert "cannot be written: Not a directory" in said
    assert "choose another folder with `--runs-dir`" in said


def test_memory_folder_that_cannot_be_written(refused, folder):
    (folder / "file").write_text("")
    for place in ("file", "file/memory"):
        said = refused("run", "good.py", "--memory", place)
        assert f"the memory `{place}` cannot be opened for writing" in said
        assert "choose another with `--memory PATH`" in said


def test_memory_that_does_not_exist(refused):
    assert "`nowhere" in refused("memory", "list", "--memory", "nowhere")


def test_run_that_does_not_exist(refused):
    assert "there is no run `some-run`" in refused("resume", "some-run")


# Compilers


def test_no_compiler(refused, monkeypatch, folder):
    (folder / "kernel.cpp").write_text('extern "C" void zero(float* x) { *x = 0; }')
    monkeypatch.setenv("CXX", "/nonexistent")
    for command in ("run good.py", "compile kernel.cpp", "evaluate good.py --task good.py"):
        said = refused(*command.split())
        assert "`$CXX` is `/nonexistent`, which cannot be run" in said
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(folder))
    for command in ("run good.py", "compile kernel.cpp"):
        said = refused(*command.split())
        assert "looked for `g++` and `clang++` on the PATH; install g++" in said


# Memories


@pytest.fixture(scope="module")
def memory(tmp_path_factory) -> Path:
    """A memory with a vector index, filled by a run with fakes."""
    home = tmp_path_factory.mktemp("filled")
    with Memory.open(MemoryConfig(path=home / "memory")) as memory:
        filled(memory, home)
        memory.flush()
    assert memory_files(home / "memory") > 1
    return home / "memory"


def filled(memory: Memory, home: Path, attempts: int = 4) -> RunResult:
    task = fake_task()
    config = RunConfig.model_validate(
        {"task": task.name, "runs": home / "runs", "budget": {"attempts": attempts}}
    )
    return optimize(
        task,
        config,
        evaluator=FakeEvaluator(task),
        proposer=ScriptedProposer(),
        memory=memory,
        graph=fake_graph(),
    )


def memory_files(place: Path) -> int:
    return sum(path.is_file() for path in place.rglob("*"))


@pytest.fixture
def copy(memory, folder) -> Path:
    """A copy of the memory, to be damaged."""
    subprocess.run(["cp", "-r", memory, folder / "memory"], check=True)
    return folder / "memory"


class OtherEmbedder(StructuralEmbedder):
    """Makes vectors of the same length that mean something else."""

    name = "other"


def test_memory_made_with_another_embedder(refused, folder):
    place = str(folder / "memory")
    Memory.open(MemoryConfig(path=Path(place)), embedder=OtherEmbedder()).close()
    for command in (["run", "good.py"], ["memory", "stats"]):
        said = refused(*command, "--memory", place)
        assert f"the memory `{place}" in said
        assert "`other/" in said
        assert "`evokernel memory rebuild` embeds everything anew" in said


def test_damaged_journal(refused, copy):
    journal = copy / "journal.sqlite"
    for wal in copy.glob("journal.sqlite-*"):
        wal.unlink()
    with journal.open("rb+") as file:
        file.write(os.urandom(4096))
    damaged = journal.read_bytes()
    for command in (["run", "good.py"], ["memory", "list"], ["memory", "rebuild"]):
        said = refused(*command, "--memory", str(copy))
        assert f"`{journal}` is damaged" in said
        assert "It is never replaced by a fresh one" in said
        assert journal.read_bytes() == damaged


def test_damaged_index(refused, copy, capsys):
    for file in copy.rglob("*"):
        if file.is_file() and not file.name.startswith("journal") and file.suffix in INDEX:
            file.write_bytes(os.urandom(file.stat().st_size))
    for command in (["run", "good.py"], ["memory", "list"]):
        said = refused(*command, "--memory", str(copy))
        assert f"the index of the memory `{copy}` is damaged" in said
        assert "the journal has everything; `evokernel memory rebuild` makes the index anew" in said
    assert main(["memory", "rebuild", "--memory", str(copy)]) == 0
    assert main(["memory", "list", "--memory", str(copy)]) == 0


INDEX = {".sqlite3", ".bin"}
"""Files that Chroma writes."""


# Runs under way


@pytest.fixture
def small_disk(folder) -> Iterator[Path]:
    """A file system of 800 kB, which only root may make."""
    place = folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_full_disk_under_a_run_loses_nothing(small_disk, capsys):
    with Memory.open(MemoryConfig()) as memory:
        with pytest.raises(RecordError) as full:
            filled(memory, small_disk, attempts=40)
        assert tell(full.value) == 1
        said = capsys.readouterr().err
        assert f"`{small_disk}/runs/" in said
        assert "make room" in said or "the free space" in said
        (path,) = (small_disk / "runs").iterdir()
        assert f"`evokernel resume {path}` goes on from here" in said
        done = len(RunRecord.open(path).attempts())
        assert done >= 1
        roomy = ["mount", "-o", "remount,size=50m", str(small_disk)]
        subprocess.run(roomy, check=True)
        task = fake_task()
        result = resume(
            path, evaluator=FakeEvaluator(task), proposer=ScriptedProposer(), memory=memory
        )
        assert result.attempts == 40
        assert result.best is not None


def test_damaged_run_folder(refused, folder, capsys):
    with Memory.open(MemoryConfig()) as memory:
        result = filled(memory, folder / "elsewhere")
    header = result.path / "run.json"
    whole = header.read_text()
    header.write_text(whole[:100])
    said = refused("resume", str(result.path))
    assert f"`{header}` is damaged" in said
    assert "the run's other files are untouched" in said
    header.unlink()
    assert "is not a run folder" in refused("resume", str(result.path))
