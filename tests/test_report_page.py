"""The HTML page of a run and of a campaign: what it says, and that foreign text stays text."""

import json
import re
from pathlib import Path

import pytest

from evokernel.cli import main
from evokernel.config import RunConfig
from evokernel.evaluation import Evaluation
from evokernel.profile import Profile, Stall
from evokernel.record import RunRecord
from evokernel.report import write_report
from evokernel.testing import FakeClock, fake_graph, fake_task
from tests.page_samples import Seen
from tests.report_samples import GOOD, HOSTILE, KINDS, WRONG, campaign, run


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """Of a run with every kind of attempt."""
    return write_report(run(tmp_path_factory.mktemp("runs"), *KINDS)).page.read_text()


@pytest.fixture(scope="module")
def seen(page) -> Seen:
    return Seen(page)


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    folder = campaign(tmp_path_factory.mktemp("campaign") / "c")
    assert main(["report", str(folder.path)]) == 0
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "Adds one to every element faster than eager; faster than torch.compile",
        "as fast as eager; 95 % interval 6.19 to 6.31, in 3 fresh processes 6.25x",
        "as fast as torch.compile; 95 % interval 4.95 to 5.05, in one process 5.00x",
        "30 clean, 0 dropped as disturbed; in alternation with each opponent, 1 thread, cold",
        "faster yes 6.25x [6.19, 6.31] as fast as eager",
        "How it came about",
        "mean gain best gain worst gain",
        "wrong_values 1 2 the kernel's own comment says wrong_values",
        "no model was asked",
        "6 attempts",
        "Attempt 6 did not hold in fresh processes and is out of the running.",
        "error line 1 the kernel says wrong_values",
        "Its source is that of attempt 1 .",
        "Policy similarity, memory of this run alone.",
        "peaks no machine at all",
        "--attempts 6 --width 2 --seed 0",
    ],
)
def test_page_says(seen, text):
    assert text in seen.text


def test_every_attempt_has_its_place_and_every_link_leads_to_one(seen):
    ids = seen.values("id")
    assert len(ids) == len(set(ids))
    assert {f"attempt-{n}" for n in range(1, 7)} <= set(ids)
    links = {link for link in seen.values("href")}
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert all(link.startswith("#") for link in links)


def test_plots_are_part_of_the_page(seen):
    plots = [attrs for tag, attrs in seen.elements if tag == "svg"]
    assert [attrs["aria-label"].partition(" add-one")[0] for attrs in plots] == [
        "speed of each attempt of",
        "the kernels of",
        "which attempt of",
        "what each technique gained for",
    ]
    said = "6.25x [6.19, 6.31] as fast as eager (3 fresh processes) 1.600 ms"
    assert seen.text.count(said) == 4  # speed, roofline; mark and number of the lineage


def test_nothing_comes_from_elsewhere_and_nothing_foreign_is_markup(page, seen):
    tags = {tag for tag, _ in seen.elements}
    assert not tags & {"img", "link", "iframe", "object", "base", "form", "image", "foreignobject"}
    assert not seen.values("src")
    assert not seen.values("style")
    assert not [name for _, attrs in seen.elements for name in attrs if name.startswith("on")]
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<script") == page.count("</script>") == 1
    assert HOSTILE in seen.text


def test_page_of_a_run_without_attempts_says_so(tmp_path):
    record = RunRecord.create(
        RunConfig(task="add-one", runs=tmp_path), fake_task(), fake_graph(), clock=FakeClock()
    )
    record.event("began", run=record.id, path=str(record.path), task="add-one")
    record.close()
    report = write_report(record.path)
    told = Seen(report.page.read_text())
    assert (report.page, report.is_finished) == (record.path / "report.html", False)
    assert "no kernel passed yet" in told.text
    assert "The run has not ended: it was still going on, or was killed" in told.text
    assert "None is finished yet." in told.text


def test_page_of_a_run_without_a_kernel_shows_the_last_verdict(tmp_path):
    told = Seen(write_report(run(tmp_path, WRONG, WRONG)).page.read_text())
    assert "no kernel passed" in told.text
    assert "About attempt 2 , the last; none passed." in told.text
    assert "evokernel export" not in told.text


def test_page_says_what_memory_showed_and_what_came_of_it(tmp_path):
    told = Seen(write_report(run(tmp_path, attempts=8)).page.read_text()).text
    about = told.partition("What memory showed to whoever")[2].partition("Rewards of the same")[0]
    assert "steps that were shown something earned" in about
    assert re.search(r"kernel-[0-9a-f]{12} elementwise by ", about)


def test_page_of_a_gpu_says_both_times_and_what_warps_wait_for(tmp_path):
    path = run(tmp_path, GOOD)
    step = path / "attempts" / "001"
    judged = Evaluation.model_validate_json((step / "evaluation.json").read_text())
    timing = judged.timing.model_copy(update={"wall_ms": 2.5})
    judged = judged.model_copy(update={"timing": timing})
    stall = Stall(reason="long scoreboard", share=0.4)
    profile = Profile(bound_by="memory", roofline_share=0.8, occupancy=0.4, stalls=(stall,))
    (step / "evaluation.json").write_text(judged.model_dump_json())
    (step / "profile.json").write_text(profile.model_dump_json())
    told = Seen(write_report(path).page.read_text()).text
    assert "2.000 ms on the device, 2.500 ms wall" in told
    assert "device time wall time over eager" in told
    assert "occupancy 40% warps wait for long scoreboard 40%" in told


@pytest.mark.parametrize(("out", "file"), [("a.html", "a.html"), ("some", "some/report.html")])
def test_page_goes_where_it_is_asked_to(tmp_path, capsys, out, file):
    path = run(tmp_path, WRONG)
    assert main(["report", str(path), "-o", str(tmp_path / out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert Path(report["page"]) == tmp_path / file
    assert (tmp_path / file).read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    "text",
    [
        "one night 2 of 3 tasks have a right kernel (67%)",
        "eager 67% 33% 33% 33%",
        "softmax fp32 right 6 1.600 ms 6.25x [6.19, 6.31] 5.00x [4.95, 5.05]",
        "rms_norm fp32 no kernel 1",
        f"void task failed: {HOSTILE}",
        "later not begun",
        "faster than eager; faster than torch.compile",
    ],
)
def test_campaign_page_says(night, text):
    assert text in Seen((night.path / "report.html").read_text()).text


def test_campaign_page_links_pages_of_runs_that_lie_beside_it(night, capsys):
    (softmax,) = (night.path / "runs" / "softmax").iterdir()
    write_report(softmax)
    assert main(["report", str(night.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_finished"] is False
    seen = Seen((night.path / "report.html").read_text())
    away = [link for link in seen.values("href") if not link.startswith("#")]
    assert away == [f"runs/softmax/{softmax.name}/report.html"]
    assert not seen.values("src")


def test_campaign_has_no_markdown(night, capsys):
    assert main(["report", str(night.path), "--format", "md"]) == 2
    assert "expected `--format html`" in capsys.readouterr().err
