"""The report of a run in Markdown: what it says, and plots that tell attempts apart."""

import json
from pathlib import Path

import pytest

from evokernel.cli import main
from evokernel.config import RunConfig
from evokernel.evaluation import Status
from evokernel.optimize import optimize
from evokernel.record import RunRecord
from evokernel.report import write_report
from evokernel.report.lineage import placed
from evokernel.report.story import Story
from evokernel.testing import (
    FakeClock,
    FakeEvaluator,
    ScriptedProposer,
    fake_graph,
    fake_kernel,
    fake_task,
    wander,
)

TASK = fake_task()


def run(folder: Path, *sources: str, attempts: int = 0) -> Path:
    """The folder of a run with these kernels, or of a long one that wanders."""
    written = iter(sources)
    script = (lambda request: next(written, None)) if sources else wander
    budget = {"attempts": attempts or max(1, len(sources))}
    config = RunConfig(task="add-one", runs=folder, budget=budget, memory={"policy": "similarity"})
    clock = FakeClock()
    return optimize(
        TASK,
        config,
        evaluator=FakeEvaluator(TASK, clock=clock, seconds=3.0),
        proposer=ScriptedProposer(script),
        graph=fake_graph(),
        clock=clock,
    ).path


GOOD = fake_kernel(2.0, techniques=("fusion",))
WRONG = fake_kernel(status=Status.WRONG_VALUES)
SLOW = fake_kernel(9.9, techniques=("unrolling",))
REFUTED = fake_kernel(1.0, promotes="no", note="too good")


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[Path, str]:
    """A run with every kind of attempt, and its page."""
    path = run(tmp_path_factory.mktemp("runs"), GOOD, WRONG, SLOW, GOOD, REFUTED)
    return path, write_report(path, form="md").page.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "faster than eager; faster than torch.compile",
        "5 attempts in 12 s; all 5 attempts are spent",
        "on float32 [8 x 16]",
        "| eager | 5.00x [4.95, 5.05] | faster | 3 fresh processes | 5.00x | 10.00 ms |",
        "| torch.compile | 4.00x [3.96, 4.04] | faster | one process |  | 8.000 ms |",
        "50% of what this machine can do; bound by memory",
        "| **1** | draft | - | fusion | passed | 2.000 ms | 5.00x [4.95, 5.05] |",
        "as attempt 1",
        "not confirmed",
        "| wrong_values | 1 | 2: the kernel's own comment says wrong_values |",
        "Attempt 5 did not hold in fresh processes and is out of the running.",
        "median of 30 clean repetitions",
        "--attempts 5 --width 2 --seed 0",
        "evokernel verify ",
        "![Speed of each attempt over eager](speed.png)",
        "![Which attempt was made from which](lineage.png)",
    ],
)
def test_page_says(told, text):
    assert text in told[1]


def test_page_says_what_memory_showed(tmp_path):
    page = write_report(run(tmp_path, attempts=8), form="md").page.read_text()
    table = page.partition("## What memory showed")[2].partition("##")[0]
    assert "Policy `similarity`" in table
    assert "| `kernel-" in table


def pixels(file: Path, color: tuple[int, int, int]) -> int:
    """How many pixels of a picture have about this colour."""
    from PIL import Image

    with Image.open(file) as picture:
        found = picture.convert("RGB").get_flattened_data()
    return sum(all(abs(a - b) < 12 for a, b in zip(pixel, color, strict=True)) for pixel in found)


BEST, FAILED = (217, 95, 2), (178, 24, 43)


def test_plots_show_best_and_failures(told):
    for name in ("speed.png", "lineage.png"):
        plot = told[0] / "report" / name
        assert pixels(plot, BEST) > 100
        assert pixels(plot, FAILED) > 50


@pytest.mark.parametrize("attempts", [1, 60])
def test_every_attempt_has_a_line_of_its_own(tmp_path, attempts):
    path = run(tmp_path, attempts=attempts)
    report = write_report(path, tmp_path / "out", "md")
    assert report.attempts == attempts
    assert all(plot.stat().st_size > 5000 for plot in report.plots)
    places = list(placed(Story(RunRecord.open(path)).rows))
    assert [place.line for place in places] == list(range(attempts))
    lines = {place.row.number: place for place in places}
    for place in places:
        above = lines.get(place.parent)
        assert place.depth == (above.depth + 1 if above else 0)
        assert above is None or above.line < place.line


def test_rivals_of_the_best_are_named(tmp_path):
    path = run(tmp_path, GOOD, fake_kernel(2.01, note="as good"), SLOW)
    page = write_report(path, form="md").page.read_text()
    assert "1 other attempt may be as fast as the best, as far as the intervals tell: 2." in page


def test_run_without_a_kernel_says_what_failed(tmp_path):
    page = write_report(run(tmp_path, WRONG, WRONG), form="md").page.read_text()
    assert page.startswith("# Adds one to every element: no kernel passed\n")
    assert "## Result" not in page
    assert "| wrong_values | 2 |" in page
    assert "evokernel export" not in page


def test_run_under_way_is_told_as_far_as_it_is(tmp_path, capsys):
    path = run(tmp_path, GOOD, SLOW)
    events = (path / "events.jsonl").read_text().splitlines(keepends=True)
    (path / "events.jsonl").write_text("".join(events[:-1]) + '{"at": 1, "elaps')
    (path / "attempts" / "002" / "attempt.json").unlink()
    assert main(["report", str(path), "--format", "md", "--json", "-o", str(tmp_path / "out")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["attempts"], report["is_finished"]) == (1, False)
    page = (tmp_path / "out" / "report.md").read_text()
    assert "still going on, or was killed" in page
    assert "The run has not come to its end" in page


def test_run_before_its_first_attempt_has_a_page_without_plots(tmp_path):
    config = RunConfig(task="add-one", runs=tmp_path)
    record = RunRecord.create(config, TASK, fake_graph(), clock=FakeClock())
    record.event("began", run=record.id, path=str(record.path), task=TASK.name)
    record.close()
    report = write_report(record.path, form="md")
    assert report.plots == ()
    assert "None is finished yet." in report.page.read_text()
    assert "![" not in report.page.read_text()


@pytest.mark.parametrize(
    ("file", "text", "word"),
    [
        ("run.json", "{", "`{path}/run.json` is damaged"),
        ("attempts/001/evaluation.json", "{}", "evaluation.json` is damaged"),
        ("events.jsonl", "not json\n", "`{path}` is damaged"),
        ("baselines.json", "[", "`{path}` is damaged"),
    ],
)
def test_damaged_run_is_refused(tmp_path, capsys, file, text, word):
    path = run(tmp_path, GOOD)
    (path / file).write_text(text)
    assert main(["report", str(path)]) == 2
    assert word.format(path=path) in capsys.readouterr().err
    assert not (path / "report.html").exists()


def test_report_that_cannot_be_written_says_where(tmp_path, capsys):
    path = run(tmp_path, GOOD)
    (tmp_path / "file").write_text("")
    for form in ("html", "md"):
        assert main(["report", str(path), "-o", str(tmp_path / "file"), "--format", form]) == 2
        assert "cannot be written to" in capsys.readouterr().err
