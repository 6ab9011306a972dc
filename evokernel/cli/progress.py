"""Owns how a run is shown while it goes on: live on a terminal, plain lines or JSON elsewhere."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from evokernel.cli.board import Board, Row, Setting
from evokernel.cli.wording import call_time, counted, times
from evokernel.record import Event
from evokernel.record.spending import dollars


class View(Protocol):
    """Shows one event after it was folded into the board."""

    def show(self, event: Event) -> None:
        """Print it, or take it in for the next refresh."""


@contextmanager
def shown(as_json: bool) -> Iterator[Callable[[Event], None]]:
    """Show a run for as long as this is entered; yields what has to be told of each event."""
    if as_json:
        yield _Listener(Board(), JsonView())
    elif is_live():
        from evokernel.cli.live import LiveView

        board = Board()
        with LiveView(board) as view:
            yield _Listener(board, view)
    else:
        board = Board()
        yield _Listener(board, PlainView(board))


def is_live() -> bool:
    """Whether standard output is a terminal that can move its cursor."""
    return can_move(sys.stdout)


def can_move(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}


class _Listener:
    """Stops the run, resumable, when nobody reads what is printed any more."""

    def __init__(self, board: Board, view: View) -> None:
        self._board = board
        self._view = view
        self._is_read = True

    def __call__(self, event: Event) -> None:
        self._board.take(event)
        if not self._is_read:
            return
        try:
            self._view.show(event)
        except BrokenPipeError:
            self._is_read = False
            raise KeyboardInterrupt from None


class JsonView:
    """Every event as one line of JSON."""

    def show(self, event: Event) -> None:
        """Print it at once."""
        print(json.dumps(event), flush=True)


class PlainView:
    """One line an event, with the seconds of the run in front."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._said = ""

    def show(self, event: Event) -> None:
        """Print what the event changed."""
        lines = getattr(self, f"_{event['kind']}", lambda event: ())(event)
        phase = self._board.phase
        if self._is_news(event) and phase != self._said:
            lines = (*lines, f"{phase} ...")
        self._said = phase
        for line in lines:
            print(f"{event['elapsed']:7.1f} s  {line}", flush=True)

    def _is_news(self, event: Event) -> bool:
        """Whether the phase now begun has no other line, and may take long."""
        is_preparing = self._board.row is None or phase_waits(self._board.phase)
        return event["kind"] == "began" or (event["kind"] == "phase" and is_preparing)

    def _began(self, event: Event) -> tuple[str, ...]:
        setting = self._board.setting
        return headline(setting) if setting else ()

    def _resumed(self, event: Event) -> tuple[str, ...]:
        setting, best = self._board.setting, self._board.best
        if setting is None:
            return ()
        so_far = f"{counted(setting.done, 'attempt')} so far"
        return (
            *headline(setting),
            *([baselines(self._board)] if self._board.baselines else ()),
            f"{so_far}, the best: {verdict(best)}" if best else so_far,
        )

    def _note(self, event: Event) -> tuple[str, ...]:
        return (str(event["text"]),)

    def _examined(self, event: Event) -> tuple[str, ...]:
        return (str(event["text"]),)

    def _baselines(self, event: Event) -> tuple[str, ...]:
        return (baselines(self._board),)

    def _skipped(self, event: Event) -> tuple[str, ...]:
        return (f"step {event['number']}: nothing new for: {event['why']}",)

    def _proposed(self, event: Event) -> tuple[str, ...]:
        row = self._board.row
        return (f"attempt {row.number} {row.stage}: {row.change}",) if row else ()

    def _tool(self, event: Event) -> tuple[str, ...]:
        return (f"attempt {event['number']} {event['tool']}: {event['outcome']}",)

    def _tuned(self, event: Event) -> tuple[str, ...]:
        return (f"attempt {event['number']} tuned: {event['text']}",)

    def _disturbed(self, event: Event) -> tuple[str, ...]:
        return (f"attempt {event['number']}: not judged, once more: {event['reason']}",)

    def _attempt(self, event: Event) -> tuple[str, ...]:
        row = self._board.row
        return (f"attempt {row.number} {row.stage}: {verdict(row)}",) if row else ()

    def _promoting(self, event: Event) -> tuple[str, ...]:
        return (f"{self._board.phase} ...",)

    def _promoted(self, event: Event) -> tuple[str, ...]:
        return (promoted(event),)

    def _ended(self, event: Event) -> tuple[str, ...]:
        return (str(event["reason"]),)

    def _failed(self, event: Event) -> tuple[str, ...]:
        return ("failed",)

    def _stopped(self, event: Event) -> tuple[str, ...]:
        return ("stopped",)


def phase_waits(phase: str) -> bool:
    """Whether nothing happens but waiting for others."""
    return phase.startswith("waiting")


def headline(setting: Setting) -> tuple[str, ...]:
    """Task, place and budget in three lines."""
    inputs = f": {setting.inputs}" if setting.inputs else ""
    title = f" ({setting.title})" if setting.title != setting.task else ""
    limits = [
        counted(setting.attempts, "attempt"),
        *([f"{setting.minutes:g} minutes"] if setting.minutes else []),
        *([f"{setting.tokens:,} tokens"] if setting.tokens else []),
        *([dollars(setting.usd)] if setting.usd else []),
    ]
    authors = {"templates": "", "external": " written by the caller"}
    author = authors.get(setting.proposer, f" by {setting.proposer}")
    return (
        f"{setting.task}{title}{inputs}",
        f"{setting.backend} kernels{author} on {setting.device}, "
        f"{counted(setting.threads, 'thread')}; memory {setting.memory}",
        f"at most {' or '.join(limits)}; run folder {setting.path}",
    )


def baselines(board: Board) -> str:
    """The times to beat in one line."""
    return "to beat: " + ", ".join(
        f"{name} {call_time(ms, board.walls.get(name))}" for name, ms in board.baselines.items()
    )


def promoted(event: Event) -> str:
    """How many results held; those that could not be measured are no refutation."""
    said = f"{event['hold']} of {counted(event['answered'], 'result')} held in fresh processes"
    unanswered = event["claims"] - event["answered"]
    return f"{said}, {unanswered} could not be measured" if unanswered else said


def verdict(row: Row) -> str:
    """What became of an attempt, in one line."""
    if row.median_ms is None:
        said = f"{row.status}: {row.reason}" if row.reason else row.status
    else:
        speedups = (f"{times(ratio)} {name}" for name, ratio in row.speedups.items())
        said = ", ".join((call_time(row.median_ms, row.wall_ms), *speedups))
    again = f" (the same source as attempt {row.repeats})" if row.repeats else ""
    return said + again + (", new best" if row.is_best else "")
