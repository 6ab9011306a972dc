"""What a shell completes: commands, options and the names of what is there."""

import pytest

from evokernel.cli import main
from evokernel.memory.store import Memory
from evokernel.task import Task
from tests.memory_samples import config, keep, lesson, shows


@pytest.fixture
def completed(monkeypatch, capsys, tmp_path):
    """Return a function that completes the last word of a command line, as bash asks for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVOKERNEL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("_EVOKERNEL_COMPLETE", "complete_bash")

    def complete(line: str) -> list[str]:
        words = f"evokernel {line}"
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        with pytest.raises(SystemExit):
            main([])
        out, err = capsys.readouterr()
        assert err == ""
        return out.split()

    return complete


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("ru", ["run"]),
        ("memory ref", ["refit"]),
        ("run softmax --attem", ["--attempts"]),
        ("run rms", ["rms_norm"]),
        ("evaluate mine.py --task rms", ["rms_norm"]),
        ("run softmax --policy h", ["hybrid"]),
        ("run softmax --reward k", ["kevin"]),
        ("run softmax --backend c", ["cpp", "cuda"]),
        ("run softmax --policy misspelt --backend t", ["triton"]),
        ("memory list --status q", ["quarantine"]),
        ("prompts show ref", ["refine"]),
        ("doctor comp", ["compiler"]),
        ("selftest hon", ["honest"]),
        ("memory ablate --arm hyb", ["hybrid"]),
        ("memory ablate rms", ["rms_norm"]),
        ("nothing of the kind ", None),
    ],
)
def test_commands_options_and_names(completed, line, names):
    found = completed(line)
    assert found == names if names is not None else "run" in found


def test_every_built_in_task(completed):
    assert completed("run ") == list(Task.names())


def test_runs_and_campaigns_newest_first(completed, tmp_path):
    for place in ("runs/2026-a/run.json", "runs/2027-b/campaign.json", "other/2028-c/run.json"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    assert completed("resume 20") == ["2027-b", "2026-a"]
    assert completed("report --runs-dir other 20") == ["2028-c"]


def test_experiences_and_steps_of_the_memory_that_is_named(completed, tmp_path):
    with Memory.open(config(tmp_path / "mine")) as memory:
        (first,) = keep(memory, lesson("first"))
        (second,) = keep(memory, lesson("second"))
        shows(memory, "7")
    assert completed(f"memory show --memory {tmp_path / 'mine'} les") == [second, first]
    assert completed(f"memory explain --memory {tmp_path / 'mine'} n") == ["new/7"]
    assert completed("memory show les") == []


def test_a_damaged_memory_is_no_reason_to_complain(completed, tmp_path):
    (tmp_path / "journal.sqlite").write_text("no database")
    assert completed(f"memory show --memory {tmp_path} les") == []


def test_the_script_for_a_shell(monkeypatch, capsys):
    monkeypatch.setenv("_EVOKERNEL_COMPLETE", "source_bash")
    with pytest.raises(SystemExit):
        main([])
    assert "complete -o default -F _evokernel_completion evokernel" in capsys.readouterr().out
