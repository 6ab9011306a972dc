"""Campaigns: files, the common budget, the table, and carrying one out after a kill."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evokernel.campaign import Campaign, Purse, campaign_of, read_campaign
from evokernel.campaign.folder import CampaignFolder, Fault
from evokernel.campaign.purse import Spent, is_empty, share
from evokernel.campaign.table import table
from evokernel.config import Budget, RunConfig
from evokernel.errors import ConfigError, RecordError, TaskError
from evokernel.evaluation import Status
from evokernel.optimize import optimize
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_kernel, fake_task

TASK = fake_task().source


def written(folder: Path, text: str, *names: str) -> Path:
    for name in names:
        (folder / f"{name}.py").write_text(TASK)
    file = folder / "night.toml"
    file.write_text(text)
    return file


# -- files -----------------------------------------------------------------------------------------


def test_file_names_tasks_and_how_they_are_run(tmp_path):
    text = """
title = "one night"
tasks = ["softmax", "mine_*.py"]
jobs = 2

[budget]
minutes = 30

[run]
budget = { attempts = 8 }

[task.mine_b]
budget = { minutes = 5 }
"""
    file = written(tmp_path, text, "mine_b", "mine_a")
    found = read_campaign(file, {"backend": "cpp", "budget": {"tokens": 7}})
    assert (found.title, found.jobs, found.budget) == ("one night", 2, Purse(minutes=30))
    configs = {entry.name: entry.config for entry in found.entries}
    assert list(configs) == ["softmax", "mine_a", "mine_b"]
    assert configs["mine_a"].task == str(tmp_path / "mine_a.py")
    assert configs["softmax"].budget == Budget(attempts=8, tokens=7)
    assert configs["mine_b"].budget == Budget(attempts=8, tokens=7, minutes=5)


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("tasks = []", ConfigError, "`tasks` of"),
        ("tasks = ['softmax'", ConfigError, "is not TOML"),
        ("tasks = ['softmax']\njbos = 2", ConfigError, "`jbos` of"),
        ("tasks = ['softmax']\n[run.budget]\nattempts = 0", ConfigError, "`budget.attempts` of"),
        ("tasks = ['softmax']\n[task.softmx]", ConfigError, r"`\[task.softmx\]`.*no task"),
        ("tasks = ['softmax', 'softmax']", ConfigError, "named twice"),
        ("tasks = ['*.cu']", ConfigError, "no file fits"),
        ("tasks = ['gone.py']", TaskError, "does not exist"),
    ],
)
def test_file_that_cannot_be_used_says_where(tmp_path, text, kind, word):
    with pytest.raises(kind, match=word):
        read_campaign(written(tmp_path, text))


# -- the common budget -----------------------------------------------------------------------------


def campaign(*names: str, jobs: int = 1, **limits: float) -> Campaign:
    configs = tuple(RunConfig(task=name, budget=Budget(attempts=8)) for name in names)
    return campaign_of("test", configs, jobs, Purse.model_validate(limits))


def test_each_run_gets_an_equal_share_of_what_is_left():
    given = campaign("a", "b", "c", attempts=12, usd=3.0, minutes=10)
    config = given.entries[0].config
    first = share(given, config, Spent(), 0.0, 3)
    assert first.budget == Budget(attempts=4, usd=1.0, minutes=10 / 3)
    frugal = share(given, config, Spent(attempts=1, usd=0.2), 60.0, 2)
    assert frugal.budget == Budget(attempts=5, usd=1.4, minutes=4.5)
    assert share(given, config, Spent(attempts=12), 60.0, 1) is None
    assert share(given, config, Spent(attempts=11), 60.0, 3).budget.attempts == 1


def test_own_budgets_stay_where_they_are_smaller():
    given = campaign("a", attempts=100)
    assert share(given, given.entries[0].config, Spent(), 0.0, 1).budget == Budget(attempts=8)


def test_empty_purse_names_the_limit():
    purse = Purse(attempts=3, minutes=2)
    assert is_empty(purse, Spent(attempts=2), 60) == ""
    assert is_empty(purse, Spent(attempts=3), 60) == "all 3 attempts of the campaign are spent"
    assert is_empty(purse, Spent(), 120) == "all 2 minutes of the campaign are spent"


# -- the table -------------------------------------------------------------------------------------


def run_of(folder: CampaignFolder, name: str, *sources: str) -> None:
    """A run with fakes where the campaign would have made it."""
    (entry,) = (each for each in folder.campaign.entries if each.name == name)
    task, given = fake_task(name), iter(sources)
    optimize(
        task,
        entry.config.model_copy(update={"runs": folder.runs(entry)}),
        evaluator=FakeEvaluator(task),
        proposer=ScriptedProposer(lambda request: next(given, None)),
        graph=fake_graph(),
    )


def test_table_counts_what_everybody_reads(tmp_path):
    folder = CampaignFolder.create(tmp_path / "c", campaign("a", "b", "c", "d", "e", "f"))
    run_of(folder, "a", fake_kernel(4.0))  # 2.5x eager, 2.0x compile
    run_of(folder, "b", fake_kernel(8.0))  # 1.25x, 1.0x
    run_of(folder, "c", fake_kernel(20.0))  # 0.5x, 0.4x
    run_of(folder, "d", fake_kernel(1.0, Status.WRONG_VALUES))
    fault = Fault(kind="TaskError", text="task failed its check: answers", is_tasks=True)
    folder.save_fault(folder.campaign.entries[4], fault)
    found = table(folder)
    assert (found.tasks, found.right, found.share_right) == (4, 3, 0.75)
    eager, compiled = found.against["eager"], found.against["compile"]
    assert eager.fast == {"1": 0.5, "1.2": 0.5, "1.5": 0.25, "2": 0.25}
    assert compiled.fast == {"1": 0.25, "1.2": 0.25, "1.5": 0.25, "2": 0.0}
    assert eager.geometric_mean == pytest.approx((2.5 * 1.25 * 0.5) ** (1 / 3))
    assert (eager.median, eager.faster) == (1.25, 2)
    assert [(each.task, each.reason) for each in found.excluded] == [
        ("e", "task failed its check: answers"),
        ("f", "not begun"),
    ]
    rows = {row.task: row for row in found.rows}
    assert rows["d"].status == "no kernel"
    assert rows["a"].precision == "fp32"
    assert rows["a"].flags == ()


def test_table_without_runs_says_nothing_of_speed(tmp_path):
    found = table(CampaignFolder.create(tmp_path / "c", campaign("a")))
    assert (found.tasks, found.share_right) == (0, None)
    assert found.against["eager"].geometric_mean is None


def test_other_folders_are_no_campaigns(tmp_path):
    with pytest.raises(RecordError, match="is not the folder of a campaign"):
        CampaignFolder(tmp_path)


# -- on the command line ---------------------------------------------------------------------------


def evokernel(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "evokernel", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )


@pytest.mark.slow
def test_killed_campaign_goes_on_and_shows_one_table(tmp_path, warm):
    """A small task, and one that fails its check; the first run is killed on its way."""
    small = TASK.replace("x + 1", "torch.tanh(x) * x").replace("8, 16", "512, 512")
    (tmp_path / "one.py").write_text(small)
    (tmp_path / "void.py").write_text(small.replace("torch.tanh(x) * x", "x * 0"))
    (tmp_path / "night.toml").write_text(
        "tasks = ['one.py', 'void.py']\n[run]\nbudget = { attempts = 1 }\n"
        "bench = { measurement = 'quick', baselines = ['eager'], threads = 1 }\n"
    )
    first = evokernel(tmp_path, "run", "night.toml", "--memory", "memory", "--json")
    assert first.stdout is not None
    for line in first.stdout:
        if json.loads(line).get("kind") == "baselines":
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (folder,) = (tmp_path / "runs").iterdir()
    second = evokernel(tmp_path, "resume", str(folder))
    said, complained = second.communicate(timeout=120)
    assert second.returncode == 0, complained
    assert "1 of 1 tasks have a right kernel (100%)" in said
    assert "excluded: void: " in said
    assert "resumed: " in said
    assert "note: one: measured roughly (--quick)" in said
    found = table(CampaignFolder(folder))
    assert {row.status for row in found.rows} == {"right"}
    assert found.against["compile"].measured == 0
