"""Owns the display of a run on a terminal: finished attempts scroll above two lines of status."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from evokernel.cli.board import Board, Row
from evokernel.cli.progress import baselines, headline, promoted, verdict
from evokernel.cli.wording import call_time, counted, duration, milliseconds, times
from evokernel.record import Event

REFRESHES_PER_S = 1
"""Each refresh takes the processor from what is being measured for a moment, so they are rare."""
NARROW = 64
"""Below so many columns an attempt takes a line for its numbers."""
REASON_CHARS = 300
"""Of a failed attempt's reason; all of it is in the run folder."""


class LiveView:
    """A context manager that owns the terminal's lowest lines while it is entered."""

    def __init__(self, board: Board, console: Console | None = None) -> None:
        self._board = board
        self._seen = time.monotonic()
        self._console = console or Console(highlight=False)
        self._live = Live(
            console=self._console,
            get_renderable=self._status,
            refresh_per_second=REFRESHES_PER_S,
            transient=True,
        )
        self._has_columns = False

    def show(self, event: Event) -> None:
        """Print what is finished; what goes on is in the lines below."""
        self._seen = time.monotonic()
        for item in getattr(self, f"_{event['kind']}", lambda event: ())(event):
            self._console.print(item)
        self._live.refresh()

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    # What scrolls

    def _began(self, event: Event) -> list[RenderableType]:
        setting = self._board.setting
        if setting is None:
            return []
        first, *others = headline(setting)
        return [Text(first, "bold"), *(Text(line, "dim") for line in others)]

    def _resumed(self, event: Event) -> list[RenderableType]:
        setting, best = self._board.setting, self._board.best
        found = self._began(event)
        if self._board.baselines:
            found.append(Text(baselines(self._board)))
        if setting is not None:
            said = f"resumed after {counted(setting.done, 'attempt')}"
            found.append(Text(said + (f", the best: {verdict(best)}" if best else "")))
        return found

    def _examined(self, event: Event) -> list[RenderableType]:
        return self._note(event)

    def _note(self, event: Event) -> list[RenderableType]:
        return [Text(str(event["text"]), "yellow")]

    def _baselines(self, event: Event) -> list[RenderableType]:
        return [Text(baselines(self._board))]

    def _skipped(self, event: Event) -> list[RenderableType]:
        return [_remark(event["number"], f"nothing new for: {event['why']}", "dim")]

    def _tool(self, event: Event) -> list[RenderableType]:
        return [_remark(event["number"], f"{event['tool']}: {event['outcome']}", "dim")]

    def _tuned(self, event: Event) -> list[RenderableType]:
        return [_remark(event["number"], f"tuned: {event['text']}", "dim")]

    def _disturbed(self, event: Event) -> list[RenderableType]:
        return [_remark(event["number"], f"once more: {event['reason']}", "yellow")]

    def _attempt(self, event: Event) -> list[RenderableType]:
        row = self._board.row
        if row is None:
            return []
        width = self._console.width
        if width < NARROW:
            return [_narrow(row)]
        is_gpu = self._board.setting is not None and self._board.setting.backend != "cpp"
        found: list[RenderableType] = [] if self._has_columns else [_columns(width, is_gpu)]
        self._has_columns = True
        failure = _failure(row)
        return [
            *found,
            _wide(row, width, is_gpu),
            *([Padding(failure, (0, 0, 0, 14))] if failure else ()),
        ]

    def _promoted(self, event: Event) -> list[RenderableType]:
        return [_remark("", promoted(event), "dim")]

    # What stays below

    def _status(self) -> RenderableType:
        board = self._board
        since = time.monotonic() - self._seen
        elapsed = board.elapsed + since
        doing = board.phase
        if board.row is not None and board.row.status == "":
            doing = f"attempt {board.row.number}, {board.row.stage}: {doing}"
        seconds = duration(elapsed - board.phase_began)
        return Group(_line(f"{doing}  {seconds}", "cyan"), _line(self._budget(elapsed), ""))

    def _budget(self, elapsed: float) -> str:
        board = self._board
        if board.setting is None:
            return ""
        left = counted(board.attempts_left, "attempt")
        if board.setting.minutes:
            left += f" or {duration(max(0.0, 60 * board.setting.minutes - elapsed))}"
        # What is left comes first: a narrow terminal cuts the line off at its end.
        best = f"; best {_numbers(board.best)}" if board.best else ""
        cost = f"; {board.spent.brief()}" if board.spent.calls else ""
        time = ""
        if board.left_s is not None:
            time = f", about {duration(max(1.0, board.left_s - (elapsed - board.elapsed)))}"
        return f"{left} left{time}{best}{cost}"


def _line(text: str, style: str) -> Text:
    """One line that is cut off rather than wrapped, so that the display keeps its height."""
    return Text(text, style, no_wrap=True, overflow="ellipsis", end="\n")


def _remark(number: object, text: str, style: str) -> Table:
    """A line about an attempt that is not finished, its number where theirs are."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=4, justify="right")
    table.add_column()
    table.add_row(Text(str(number), style), Text(text, style))
    return table


def _columns(width: int, is_gpu: bool) -> Table:
    table = _grid(width, is_gpu)
    median = ("device", "wall") if is_gpu else ("median",)
    head = ("", "stage", "technique", *median, "eager", "compile", "")
    table.add_row(*(Text(title, "dim") for title in head))
    return table


def _wide(row: Row, width: int, is_gpu: bool) -> Table:
    style = "bold green" if row.is_best else ""
    table = _grid(width, is_gpu)
    wall = milliseconds(row.wall_ms) if row.wall_ms is not None else ""
    table.add_row(
        Text(str(row.number), style),
        Text(row.stage, style),
        Text(row.change, style),
        Text(milliseconds(row.median_ms) if row.median_ms is not None else "failed", style),
        *([Text(wall, style)] if is_gpu else ()),
        *(Text(_speedup(row, name), style) for name in ("eager", "compile")),
        Text("best" if row.is_best else "", style),
    )
    return table


def _grid(width: int, is_gpu: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=4, justify="right")
    table.add_column(width=6)
    sizes = (11, 11, 7, 7) if is_gpu else (11, 7, 7)
    table.add_column(width=max(16, min(100, width - 27 - sum(sizes))))
    for size in sizes:
        table.add_column(width=size, justify="right", no_wrap=True)
    table.add_column(width=4)
    return table


def _narrow(row: Row) -> Text:
    head = f"{row.number} {row.stage}: {row.change}"
    if row.median_ms is None:
        return Text(f"{head}\n  ").append(_failure(row) or Text("failed"))
    style = "bold green" if row.is_best else ""
    return Text(f"{head}\n  {_numbers(row)}{', best' if row.is_best else ''}", style)


def _failure(row: Row) -> Text | None:
    if row.median_ms is not None and row.repeats is None:
        return None
    if row.repeats is not None:
        return Text(f"the same source as attempt {row.repeats}", "dim")
    reason = row.reason[:REASON_CHARS]
    return Text(f"{row.status}: {reason}" if reason else row.status, "red")


def _speedup(row: Row, name: str) -> str:
    return times(row.speedups[name]) if name in row.speedups else ""


def _numbers(row: Row) -> str:
    speedups = (f"{times(ratio)} {name}" for name, ratio in row.speedups.items())
    return ", ".join((call_time(row.median_ms or 0.0, row.wall_ms), *speedups))
