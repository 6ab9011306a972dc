"""`evokernel doctor`: one line a check, what to do, and an exit code: can a run work here?"""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from evokernel.cli import main
from evokernel.config import MemoryConfig
from evokernel.doctor import CHECKS
from evokernel.doctor.software import NEEDED
from evokernel.memory import Memory

SECRET = "sk-never-to-be-seen-0123456789"


@pytest.fixture
def doctor(capsys):
    """Return a function that runs the command and returns code, standard output and error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["doctor", *arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def found(doctor):
    """Return a function that runs the command with `--json`: exit code, findings by name."""

    def run(*arguments: str) -> tuple[int, dict]:
        code, out, _ = doctor(*arguments, "--json")
        report = json.loads(out)
        assert report["can_run"] is (code == 0)
        return code, {finding["name"]: finding for finding in report["findings"]}

    return run


def test_whole_check_up(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (tmp_path / "torch.py").write_text("raise ImportError('the wrong torch')")
    before = set(tmp_path.rglob("*"))
    assert main(["doctor", "--json"]) == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    rows = {finding.pop("name"): finding for finding in report["findings"]}
    assert list(rows) == list(CHECKS)
    for name in ("python", "packages", "compiler", "torch", "chroma", "runs", "memory", "lock"):
        assert rows[name]["state"] == "ok", rows[name]
    assert all(row["advice"] for row in rows.values() if row["state"] != "ok")
    assert rows["compiler"]["facts"]["threads"] >= 1
    assert rows["torch"]["facts"]["version"].startswith("2.")
    assert rows["protections"]["facts"]["no_new_privileges"] is True
    assert rows["keys"]["facts"] == {"names": ["OPENAI_API_KEY"]}
    assert SECRET not in out + err
    assert str(len(SECRET)) not in json.dumps(rows["keys"])
    assert set(tmp_path.rglob("*")) == before  # nothing is left behind


def test_one_line_for_each_and_what_to_do(doctor, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    code, out, _ = doctor("python", "keys", "gpu", "lock")
    lines, _, end = out.partition("\n\n")
    assert code == 0
    assert [line.split()[1] for line in lines.splitlines()] == ["python", "lock", "gpu", "keys"]
    assert lines.splitlines()[3] == "ok       keys         set: SOME_API_KEY (values are not shown)"
    assert end.startswith("Nothing is missing that a run needs.\n")


def test_no_key_is_no_hindrance(found, monkeypatch):
    monkeypatch.setenv("EMPTY_API_KEY", "")
    for name in ("HF_TOKEN", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    code, rows = found("keys")
    assert code == 0
    assert (rows["keys"]["state"], rows["keys"]["facts"]) == ("missing", {"names": []})
    assert "OPENAI_API_KEY" in rows["keys"]["advice"]


def test_compiler_that_is_not_there(found, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    code, rows = found("compiler", "python")
    assert code == 1
    assert rows["compiler"]["state"] == "missing"
    assert "`$CXX` is `/nowhere/g++`" in rows["compiler"]["found"]
    assert "install g++" in rows["compiler"]["advice"]
    assert rows["python"]["state"] == "ok"


def test_compiler_that_builds_nothing(doctor, monkeypatch, tmp_path):
    script = tmp_path / "g++"
    script.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'g++ 1' && exit\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    code, out, _ = doctor("compiler")
    assert code == 1
    assert out.startswith("missing  compiler     ")
    assert "does not build the simplest OpenMP kernel" in out
    assert out.endswith("\nNo run works before this is repaired: compiler.\n")


def test_folder_that_cannot_be_written(found, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVOKERNEL_HOME", str(tmp_path / "file" / "home"))
    code, rows = found("home", "cache", "runs", "--runs-dir", "/proc/runs")
    assert code == 1
    for name, advice in (("home", "EVOKERNEL_HOME"), ("cache", "set"), ("runs", "--runs-dir")):
        assert rows[name]["state"] == "missing"
        assert "cannot be written" in rows[name]["found"]
        assert advice in rows[name]["advice"]
        assert rows[name]["facts"]["is_writable"] is False


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_read_only_home(found, monkeypatch, tmp_path):
    tmp_path.chmod(0o500)
    monkeypatch.setenv("EVOKERNEL_HOME", str(tmp_path))
    code, rows = found("home")
    tmp_path.chmod(0o700)
    assert code == 1
    assert "Permission denied" in rows["home"]["found"]


def test_memory_tells_what_it_holds(found, tmp_path):
    with Memory.open(MemoryConfig(path=tmp_path)):
        pass
    code, rows = found("memory", "--memory", str(tmp_path))
    assert code == 0
    facts = rows["memory"]["facts"]
    assert (facts["exists"], facts["experiences"], facts["owner"]) == (True, 0, None)
    assert facts["embedder"].startswith("structural/")
    assert facts["last_written"]


def test_journal_that_cannot_be_read(found, tmp_path):
    (tmp_path / "journal.sqlite").write_text("this is no database")
    code, rows = found("memory", "python", "--memory", str(tmp_path))
    assert code == 1
    assert rows["memory"]["found"] == f"`{tmp_path}` cannot be opened"
    assert "is damaged" in rows["memory"]["advice"]
    assert "--memory PATH" in rows["memory"]["advice"]
    assert rows["memory"]["facts"]["experiences"] is None
    assert (tmp_path / "journal.sqlite").read_text() == "this is no database"


BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "chromadb"):
            raise ImportError(f"{name} is blocked here")
sys.meta_path.insert(0, Blocker())
"""


def test_torch_and_chroma_that_cannot_be_imported(found, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, rows = found("torch", "chroma")
    assert code == 1
    assert (rows["torch"]["state"], rows["chroma"]["state"]) == ("missing", "warning")
    assert "torch is blocked here" in rows["torch"]["found"]
    assert "the memory works without" in rows["chroma"]["advice"]


def test_crash_is_a_finding(found, monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("import os\nos.kill(os.getpid(), 4)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, rows = found("torch")
    assert code == 1
    assert "was killed by SIGILL" in rows["torch"]["found"]


def test_needed_packages_are_among_those_that_the_build_asks_for():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    names = {re.match(r"[\w-]+", line)[0] for line in project["project"]["dependencies"]}
    assert set(NEEDED) <= names


def test_unknown_check_is_wrong_usage(doctor):
    code, out, err = doctor("compilr")
    assert (code, out) == (2, "")
    assert "Did you mean `compiler`?" in err
