"""What a terminal shows while a command works, and what is said where nobody sees it."""

import os
import sys
import time
from collections.abc import Callable

import pytest

from evokernel.cli import durations
from evokernel.cli.waiting import Waiting, waiting
from evokernel.testing import FakeClock


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("EVOKERNEL_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def written(monkeypatch):
    """Return a function that works with a terminal as standard error; gives what it was sent."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")

    def run(work: Callable[[Waiting], None]) -> str:
        master, slave = os.openpty()
        os.set_blocking(master, False)
        with os.fdopen(slave, "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)  # not in a fixture: pytest sets its own in between
            with waiting("measuring", "verify") as shown:
                work(shown)
            parts = list(iter(lambda: _read(master), b""))
        os.close(master)
        return b"".join(parts).decode()

    return run


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except BlockingIOError:
        return b""


@pytest.fixture
def clock():
    return FakeClock()


def test_time_spent_is_shown_at_first(clock):
    shown = Waiting(clock=clock.monotonic)
    shown.say("checking the results")
    clock.advance(7)
    assert shown.text(80) == "checking the results  7 s"


def test_time_left_is_what_it_took_before(clock):
    shown = Waiting(usual=40, clock=clock.monotonic)
    shown.say("checking the results")
    clock.advance(10)
    assert shown.text(80) == "checking the results  10 s, about 30 s left"
    clock.advance(29.5)
    assert shown.text(80).endswith("39 s, nearly done")
    clock.advance(60)
    assert shown.text(80) == "checking the results  99 s"  # longer than ever: nothing is known


def test_time_left_follows_the_parts_that_are_done(clock):
    shown = Waiting(usual=1000, clock=clock.monotonic)
    shown.say("judging")
    clock.advance(30)
    shown.reach(3, 12)
    assert shown.text(80) == "judging  3 of 12, 30 s, about 90 s left"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_the_phase_is_cut_and_not_the_time(clock, width):
    shown = Waiting(usual=200, clock=clock.monotonic)
    shown.say("waiting for another EvoKernel process that measures on this machine")
    clock.advance(20)
    text = shown.text(width)
    assert len(text) <= width
    if width >= 40:
        assert text.endswith("20 s, about 3:00 min left")


def test_usual_is_the_median_of_the_last_times():
    assert durations.usual("verify") is None
    for seconds in (100, 1, 2, 3, 4, 5):
        durations.remember("verify", seconds)
    assert durations.usual("verify") == 3
    assert durations.usual("evaluate") is None


def test_a_damaged_note_of_durations_is_none(home):
    (home / "durations.json").write_text("[not json")
    assert durations.usual("verify") is None
    durations.remember("verify", 3)
    assert durations.usual("verify") == 3


def test_nothing_is_said_in_a_file_or_pipe(capsys):
    with waiting("measuring", "verify") as shown:
        shown.say("measuring again")
        shown.reach(1, 2)
        with shown.aside():
            print("a result")
    assert capsys.readouterr() == ("a result\n", "")


def test_a_terminal_is_left_as_it_was(written):
    def work(shown: Waiting) -> None:
        with shown.aside():
            print("a result")

    text = written(work)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 2  # the cursor is back
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(written, monkeypatch):
    def work(shown: Waiting) -> None:
        shown.say("checking")
        shown.say("checking")

    monkeypatch.setenv("TERM", "dumb")
    assert written(work).splitlines() == ["  measuring ...", "  checking ..."]


@pytest.mark.parametrize("is_coloured", [True, False])
def test_colours_as_wanted(written, monkeypatch, is_coloured):
    if not is_coloured:
        monkeypatch.setenv("NO_COLOR", "1")
    text = written(lambda shown: time.sleep(1.2))
    assert "measuring  1 s" in text
    assert ("\x1b[36m" in text) is is_coloured


def test_an_interruption_says_how_to_go_on():
    with (
        pytest.raises(KeyboardInterrupt, match="interrupted: what was measured is kept"),
        waiting("measuring", "record", "what was measured is kept"),
    ):
        raise KeyboardInterrupt


def test_an_interruption_that_says_more_itself_is_left_alone():
    with (
        pytest.raises(KeyboardInterrupt, match=r"^go on with resume$"),
        waiting("measuring", "run"),
    ):
        raise KeyboardInterrupt("go on with resume")
