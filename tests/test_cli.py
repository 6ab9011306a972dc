"""The command line as a whole: help, suggestions, messages and exit codes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from evokernel import __version__
from evokernel.cli import COMMANDS, app, main
from evokernel.cli.faults import complain, tell
from evokernel.cli.groups import Stopped
from evokernel.errors import EvoKernelError, TaskError
from evokernel.optimize import RunStopped


@pytest.fixture
def said(capsys):
    """Return a function that runs a command line and gives its exit code, output and complaint."""

    def run(*arguments: str):
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def caught(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """An exception as it is after it was raised."""
    try:
        raise error from cause
    except BaseException as raised:
        return raised


def test_version(said):
    assert said("--version") == (0, f"evokernel {__version__}\n", "")


def test_help_lists_every_command(said):
    code, out, _ = said("--help")
    assert code == 0
    for name, (_, line) in COMMANDS.items():
        assert f"  {name}" in out
        assert line in out


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below this one, with its words."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    context = typer.Context(command, info_name="evokernel")
    for name in command.list_commands(context):
        _, found, _ = command.resolve_command(context, [name])
        yield from walk(found, (*path, name))


LEAVES = dict(walk(typer.main.get_command(app)))
GROUPS = sorted({path[:1] for path in LEAVES if path[1:]})
TALKS_TO_PROGRAMS = {("serve", "mcp"), ("env", "serve")}
"""They speak JSON on both streams: MCP, and docs/training.md."""


def test_every_command_is_walked():
    assert len(LEAVES) >= 40
    assert {path[0] for path in LEAVES} == set(COMMANDS)


@pytest.mark.parametrize("command", sorted(LEAVES), ids=" ".join)
def test_help_gives_an_example_that_begins_with_the_command(said, command):
    code, out, err = said(*command, "--help")
    assert (code, err) == (0, "")
    beginning = f"evokernel {' '.join(command)} "
    examples = " ".join(out.split()).split("Example: ")[1:]
    assert examples
    assert all(beginning in f"{example} " for example in examples)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_help_of_a_group_gives_an_example(said, group):
    code, out, err = said(*group, "--help")
    assert (code, err) == (0, "")
    assert f"Example: evokernel {group[0]} " in out


@pytest.mark.parametrize("command", sorted(set(LEAVES) - TALKS_TO_PROGRAMS), ids=" ".join)
def test_every_command_that_prints_something_prints_json(command):
    assert any("--json" in parameter.opts for parameter in LEAVES[command].params)


@pytest.mark.parametrize("command", sorted(LEAVES), ids=" ".join)
def test_every_option_and_argument_is_described(command):
    assert [p.name for p in LEAVES[command].params if not p.help] == []


def test_no_command_is_help_and_wrong_usage(said):
    code, out, err = said()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: evokernel")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rnu softmax", "`rnu` no command of `evokernel` `run` Did you mean `run`?"),
        ("task lst", "`lst` is no command of `evokernel task` Did you mean `list`?"),
        ("run softmax --attemts 3", "`--attemts` Did you mean `--attempts`?"),
        ("run softmax --attempts 0", "`--attempts` expected 1"),
        ("run softmax --attempts many", "`--attempts` expected integer"),
        ("run softmax --attempts", "`--attempts` requires an argument"),
        ("run softmax --minutes -1", "`--minutes` -1 greater than 0"),
        ("run", "`evokernel run` needs `TASK`"),
        ("run sofmax", "`sofmax` Did you mean `softmax`"),
        ("run softmax layer-norm", "`layer-norm` Did you mean `layer_norm`"),
        ("run softmax --backend cup", "`--backend` `cup` `cpp`, `cuda` Did you mean `cpp`?"),
        ("run softmax --precision bf17", "`--precision` `bf17` `fp32` Did you mean `bf16`?"),
        ("run softmax --policy evokernl", "`--policy` `random` Did you mean `evokernel`?"),
        ("task show softmax --device cdua", "`--device` Did you mean `cuda`?"),
        ("resume nothing", "`nothing` run folder `runs`"),
    ],
)
def test_wrong_usage_is_told_in_one_paragraph(said, line, words):
    code, out, err = said(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith("evokernel: ")
    assert err.count("\n") == 1
    at = 0
    for word in words.split():
        at = err.find(word, at)
        assert at >= 0, f"`{word}` is missing in: {err}"


def test_fault_is_told_with_its_notes(capsys):
    error = TaskError("`x.py` has no `Model`")
    error.add_note("The run is kept.")
    assert tell(caught(error)) == 2
    assert capsys.readouterr().err == "evokernel: `x.py` has no `Model`. The run is kept.\n"
    assert tell(EvoKernelError("broken")) == 1


def test_interrupted_run_says_how_to_resume(capsys, tmp_path):
    stop = caught(Stopped(), RunStopped(tmp_path))
    assert tell(stop) == 130
    assert f"`evokernel resume {tmp_path}`" in capsys.readouterr().err


def test_interruption_before_a_run(capsys):
    assert tell(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "evokernel: interrupted\n"


def test_unexpected_error_leaves_its_traceback_in_a_file(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("EVOKERNEL_HOME", str(tmp_path))
    assert tell(caught(ZeroDivisionError("division by zero"))) == 1
    err = capsys.readouterr().err
    (file,) = (tmp_path / "tracebacks").iterdir()
    assert "ZeroDivisionError: division by zero." in err
    assert f"`{file}`" in err
    assert "in caught\n    raise error from cause" in file.read_text()
    assert "Traceback" not in err


def test_traceback_goes_elsewhere_when_its_folder_cannot_be_written(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("EVOKERNEL_HOME", str(tmp_path / "file" / "home"))
    (tmp_path / "file").write_text("")
    assert tell(caught(ZeroDivisionError("x"))) == 1
    place = capsys.readouterr().err.split("traceback is in `")[1].partition("`")[0]
    assert not place.startswith(str(tmp_path / "file"))


def test_paragraph_is_wrapped_for_a_terminal_but_commands_stay_whole():
    master, slave = os.openpty()
    code = (
        "from evokernel.cli.faults import complain; complain('one two `evokernel resume x` ' * 9)"
    )
    env = {**os.environ, "COLUMNS": "50"}
    with subprocess.Popen([sys.executable, "-c", code], stderr=slave, env=env):
        os.close(slave)
        text = os.read(master, 4096).decode()
    os.close(master)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 50
    assert len(lines) > 5
    assert text.count("`evokernel resume x`") == 9


def test_paragraph_is_one_line_elsewhere(capsys):
    complain("word " * 50)
    assert capsys.readouterr().err.count("\n") == 1


def shell(line: str) -> subprocess.CompletedProcess[str]:
    line = line.replace("evokernel", f"{sys.executable} -m evokernel")
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)


def test_reader_that_has_gone_ends_a_listing_quietly():
    done = shell("evokernel task list --json | head -c 1; exit ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr, done.returncode) == ("[", "", 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_full_disk_under_a_listing():
    done = shell("evokernel task list > /dev/full")
    assert done.returncode == 2
    assert "No space left on device; make room" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_person_at_a_door_for_programs_is_told_so(tmp_path):
    master, slave = os.openpty()
    os.write(master, b"\x04")  # the end of the input, as Ctrl-D gives it
    command = [sys.executable, "-m", "evokernel", "env", "serve", "--runs-dir", str(tmp_path)]
    done = subprocess.run(command, stdin=slave, capture_output=True, text=True, timeout=60)
    os.close(slave)
    os.close(master)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("evokernel: waiting for lines of JSON")
