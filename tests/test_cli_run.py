"""What a run shows while it goes on and at its end, with fakes; and one real run of the command."""

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from evokernel.cli.board import Board
from evokernel.cli.live import LiveView
from evokernel.cli.run import conduct
from evokernel.cli.summary import Summary, init_args, snippet
from evokernel.cli.wording import duration, folded, milliseconds, times
from evokernel.config import RunConfig
from evokernel.errors import WorkerError
from evokernel.evaluation import Status
from evokernel.optimize import RunStopped, optimize
from evokernel.record import Event, RunRecord
from evokernel.task import Task
from evokernel.testing import FakeEvaluator, ScriptedProposer, fake_graph, fake_kernel, fake_task

TASK = fake_task()
DRAFT = fake_kernel(6.0, techniques=("fusion",))
WRONG = fake_kernel(status=Status.WRONG_VALUES, techniques=("fusion", "threads"))
FAST = fake_kernel(2.0, techniques=("fusion", "unrolling"), bound_by="memory")
SPOILED = fake_kernel(5.0, techniques=("fusion", "blocking"), spoiled=1)


@pytest.fixture
def work(tmp_path) -> Callable[..., Callable[..., object]]:
    """Return a function that prepares a run which proposes the given sources."""

    def prepare(*sources: str, **given):
        config = RunConfig.model_validate(
            {
                "task": TASK.name,
                "runs": tmp_path / "runs",
                "budget": {"attempts": max(1, len(sources))},
                "search": {"width": 1, "recombine": 0.0},
            }
        )
        script = iter(sources)
        given = {
            "evaluator": FakeEvaluator(TASK, before=given.pop("before", None)),
            "proposer": ScriptedProposer(lambda request: next(script, None)),
            "graph": fake_graph(),
            **given,
        }
        return lambda listen: optimize(TASK, config, on_event=listen, **given)

    return prepare


@pytest.fixture
def printed(work, capsys) -> Callable[..., str]:
    """Return a function that carries a run out and gives what was printed, without the clock."""

    def run(*sources: str) -> str:
        conduct(work(*sources), as_json=False)
        return re.sub(r"^ +[\d.]+ s  ", "", capsys.readouterr().out, flags=re.MULTILINE)

    return run


def fail_at(call: str, error: BaseException, time: int = 1) -> Callable[[str], None]:
    """Raise when the evaluator is called so for the `time`th time."""
    seen = []

    def before(name: str) -> None:
        seen.append(name)
        if seen.count(call) == time and name == call:
            raise error

    return before


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    """A terminal with colours, whatever the tests run in."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


# While it goes on


def test_plain_lines_tell_task_baselines_attempts_and_the_end(printed):
    lines = printed(DRAFT, WRONG, FAST, SPOILED).splitlines()
    assert lines[0] == "add-one (Adds one to every element.): float32 [8 x 16]"
    assert lines[1].startswith("cpp kernels on ")
    assert lines[1].endswith("memory its own, policy evokernel")
    assert re.match(r"at most 4 attempts; run folder .+/runs/\d{8}-\d{6}-", lines[2])
    assert lines[3].startswith("preparing: ")
    assert lines[4] == "to beat: eager 10.00 ms, compile 8.000 ms"
    assert lines[5:10] == [
        "attempt 1 draft: fusion",
        "attempt 1 draft: 6.000 ms, 1.67x eager, 1.33x compile, new best",
        "attempt 2 refine: threads",
        "attempt 2 refine: wrong_values: the kernel's own comment says wrong_values",
        "attempt 3 refine: unrolling",
    ]
    assert "attempt 3 refine: 2.000 ms, 5.00x eager, 4.00x compile, new best" in lines
    assert "attempt 4: not judged, once more: the machine was busy" in lines
    assert "measuring 2 results again in fresh processes ..." in lines
    assert "all 4 attempts are spent" in lines


def test_json_is_a_line_an_event_and_the_result(work, capsys):
    conduct(work(DRAFT, FAST), as_json=True)
    *events, result = map(json.loads, capsys.readouterr().out.splitlines())
    kinds = [event["kind"] for event in events]
    assert (kinds[0], kinds[-1]) == ("began", "ended")
    assert kinds.count("attempt") == 2
    assert result["best"]["evaluation"]["timing"]["median_ms"] == 2.0


def test_reader_that_has_gone_stops_the_run_so_that_it_can_be_resumed(work):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    out, sys.stdout = sys.stdout, Gone()
    try:
        with pytest.raises(RunStopped) as stopped:
            conduct(work(DRAFT, FAST), as_json=False)
    finally:
        sys.stdout = out
    assert (stopped.value.path / "run.json").exists()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_live_display_fits_the_terminal(work, width):
    text = shown_live(work(DRAFT, WRONG, FAST, SPOILED, DRAFT), width)
    plain = [line.rstrip() for line in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text).splitlines()]
    assert max(map(len, plain)) <= width
    page = " ".join(" ".join(plain).split())
    assert "to beat: eager 10.00 ms, compile 8.000 ms" in page
    assert "wrong_values: the kernel's own comment says wrong_values" in page
    assert "once more: the machine was busy" in page
    assert "2.000 ms" in page
    assert "checking and" in page
    assert "4 attempts left" in page


def test_live_display_has_colours_unless_they_are_refused(work, monkeypatch):
    assert "\x1b[1;32m" in shown_live(work(DRAFT), 80)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;32m" not in shown_live(work(DRAFT, FAST), 80)


def shown_live(work: Callable[..., object], width: int) -> str:
    """What a terminal of so many columns is sent."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=30, highlight=False)
    board = Board()
    with LiveView(board, console) as view:

        def listen(event: Event) -> None:
            board.take(event)
            view.show(event)

        work(listen)
    return out.getvalue()


def test_phases_come_from_events():
    board = Board()
    for event, phase in [
        ({"kind": "phase", "text": "preparing the baseline torch.compile"}, "preparing the base"),
        ({"kind": "baselines", "median_ms": {"eager": 2.0}}, "choosing the first step"),
        ({"kind": "step", "number": 1, "stage": "draft"}, "writing a kernel"),
        ({"kind": "something new"}, "writing a kernel"),
        ({"kind": "compiled"}, "checking and measuring"),
        ({"kind": "disturbed", "attempt": 1}, "measuring again, time 2: the machine is busy"),
        ({"kind": "promoting", "claims": 1}, "measuring 1 result again in fresh processes"),
    ]:
        board.take({"elapsed": 1.0, **event})
        assert board.phase.startswith(phase)


def test_time_left_follows_the_pace_of_the_last_attempts(work):
    board, now = Board(), 100.0

    def listen(event: Event) -> None:
        nonlocal now
        now += 20.0 if event["kind"] == "attempt" else 0.0
        board.take({**event, "elapsed": now})
        if event["kind"] == "attempt":
            lefts.append(board.left_s)

    lefts: list[float | None] = []
    work(DRAFT, WRONG, FAST)(listen)
    assert lefts == [40.0, 20.0, None]


# At its end


def test_summary_tells_speedups_history_and_use(printed):
    text = printed(DRAFT, WRONG, FAST, SPOILED)
    page = " ".join(text.partition("\n\n")[2].split())
    assert page.startswith(
        "add-one: faster than eager and torch.compile speedup 5.00x [4.95, 5.05]"
    )
    assert "as fast as eager, which takes 10.00 ms; confirmed in 3 fresh processes" in page
    assert "4.00x [3.96, 4.04] as fast as torch.compile, which takes 8.000 ms" in page
    assert "time 2.000 ms a call, median of 30 clean repetitions" in page
    assert "roofline 50% of what this machine can do, bound by memory" in page
    assert "promotion 3 of 3 kernels held in fresh processes, this one among them" in page
    assert "1 draft: fusion: 6.000 ms 3 refine: unrolling: 2.000 ms, 3.00x" in page
    assert re.search(r"kernel \S+/best/kernel.py run 4 attempts in \d s; all 4", page)


def test_snippet_of_the_summary_works(printed):
    lines = printed(DRAFT).partition("how to use it\n")[2].splitlines()
    code = "\n".join(line.strip() for line in lines)
    assert len(lines) == 2
    names: dict[str, object] = {}
    exec(code, names)
    assert type(names["model"]).__name__ == "ModelNew"


@pytest.mark.parametrize(
    ("median_ms", "headline"),
    [
        (7.9, "faster than eager; not measurably faster than torch.compile"),
        (9.0, "faster than eager; slower than torch.compile"),
        (11.0, "slower than eager and torch.compile"),
        (9.95, "not measurably faster than eager; slower than torch.compile"),
    ],
)
def test_summary_is_honest_where_a_baseline_was_not_beaten(printed, median_ms, headline):
    assert f"\n\nadd-one: {headline}\n" in printed(fake_kernel(median_ms))


def test_summary_of_a_run_without_a_kernel_says_what_failed(printed):
    other = WRONG + "# another\n"
    page = " ".join(printed(WRONG, other).partition("\n\n")[2].split())
    assert page.startswith(
        "add-one: no kernel passed failed 2 wrong_values the last wrong_values: "
    )
    assert "attempts/002)" in page
    assert "how to use it" not in page


def test_kernel_that_was_not_measured_again_is_called_so(work, tmp_path, capsys):
    broken = fail_at("promote", WorkerError("the machine was busy"))
    with pytest.raises(WorkerError):
        conduct(work(DRAFT, before=broken), as_json=False)
    (path,) = (tmp_path / "runs").iterdir()
    text = Summary(RunRecord.open(path), "").text(None).plain
    assert "this kernel was not measured again in fresh processes\n" in text
    assert "it was interrupted" in text


def test_stopped_run_passes_on_how_to_resume(work):
    stop = fail_at("verify", KeyboardInterrupt())
    with pytest.raises(RunStopped, match=r"`evokernel resume .+` goes on from here"):
        conduct(work(DRAFT, before=stop), as_json=False)


def test_unexpected_end_of_a_run_says_how_to_resume(work):
    with pytest.raises(ZeroDivisionError) as raised:
        conduct(work(DRAFT, before=fail_at("verify", ZeroDivisionError())), as_json=False)
    (note,) = raised.value.__notes__
    assert re.match(r"The run is kept; `evokernel resume .+` goes on from here\.", note)


def test_constructor_arguments_are_written_as_python(tmp_path):
    source = TASK.source + "\n\ndef get_init_inputs():\n    return [4, (2,), torch.ones(1)]\n"
    config = RunConfig(task="t", runs=tmp_path)
    record = RunRecord.create(config, Task.from_source(source))
    record.close()
    assert init_args(record) == "4, (2,), ..."
    assert snippet(Path("a/kernel.py"), "4")[1].endswith('run_path("a/kernel.py")["ModelNew"](4)')


# The real thing

SMALL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return torch.relu(self.scale * x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [0.5]
"""
CHECK = """
import torch
{snippet}
x = torch.randn(3, 256)
assert torch.equal(model(x), torch.relu(0.5 * x))
"""


def without_network() -> list[str]:
    """What to put before a command; nothing where the machine does not permit it."""
    cut = ["unshare", "--net"]
    is_permitted = shutil.which("unshare") and not subprocess.run([*cut, "true"]).returncode
    return cut if is_permitted else []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("warm")
def test_run_without_network_is_interrupted_resumed_and_its_kernel_used(tmp_path):
    cut = without_network()
    (tmp_path / "small.py").write_text(SMALL)
    line = ["run", "small.py", "--quick", "--attempts", "1"]
    command = [*cut, sys.executable, "-m", "evokernel"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, *line], cwd=tmp_path, text=True, **pipes) as run:
        assert run.stdout
        for printed in run.stdout:
            if "attempt 1" in printed:
                run.send_signal(signal.SIGINT)
                break
        _, complaint = run.communicate(timeout=120)
    assert run.returncode == 130
    hint = re.fullmatch(r"evokernel: stopped; `evokernel (resume runs/\S+)` .+\n", complaint)
    assert hint, complaint
    done = subprocess.run(
        [*command, *hint[1].split()], cwd=tmp_path, text=True, timeout=400, check=True, **pipes
    )
    assert "to beat: eager" in done.stdout
    assert "\nsmall: " in done.stdout
    lines = done.stdout.partition("how to use it\n")[2].splitlines()
    code = CHECK.format(snippet="\n".join(line.strip() for line in lines))
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)


# Words and numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345.6, "12346 ms"), (12.345, "12.35 ms"), (1.0, "1.000 ms"), (0.0012345, "0.001234 ms")],
)
def test_milliseconds_have_four_digits_that_count(value, text):
    assert milliseconds(value) == text


def test_speedups_and_durations():
    assert (times(1.005), times(123.4)) == ("1.00x", "123x")
    assert [duration(s) for s in (0.9, 119, 120, 3725)] == ["0 s", "119 s", "2:00 min", "1:02:05 h"]


def test_folded_keeps_what_stands_in_backquotes_whole():
    text = folded("see `evokernel resume some/where` for more", 24, 4, "a")
    assert text == "a   see\n    `evokernel resume some/where`\n    for more"
    assert folded("one two", None, 6, "x") == "x     one two"
