"""Owns the line that says on a terminal what goes on, for how long, and how long it may take yet.

It lies on standard error, so that results can be piped, and is gone when the command has ended. On
a terminal that cannot move its cursor every phase is one plain line; elsewhere nothing is said.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from evokernel.cli import durations
from evokernel.cli.progress import can_move
from evokernel.cli.wording import duration

REFRESHES_PER_S = 1
"""Each refresh takes the processor from what is being measured for a moment, so they are rare."""
SHORT_S = 2.0
"""What takes less is not worth remembering."""
ANEW = "nothing was kept; the same command begins anew"


class Waiting:
    """What is shown while a command works.

    Args:
        usual: Seconds that it took before; None where that is not known.
        console: Of the terminal; None where there is none to be shown on.
        clock: Seconds.
    """

    def __init__(
        self,
        usual: float | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._usual = usual
        self._console = console
        self._clock = clock
        self._began = clock()
        self._phase = ""
        self._done, self._total = 0, 0
        self._is_plain = console is not None and not can_move(sys.stderr)
        self._live: Live | None = None
        if console is not None and not self._is_plain:
            self._live = Live(
                console=console,
                get_renderable=self._line,
                refresh_per_second=REFRESHES_PER_S,
                transient=True,
                redirect_stdout=False,
            )

    def say(self, phase: str) -> None:
        """Another phase has begun."""
        if self._is_plain and phase != self._phase:
            print(f"  {phase} ...", file=sys.stderr, flush=True)
        self._phase = phase

    def reach(self, done: int, total: int) -> None:
        """So many of equal parts are done; from now on the estimate rests on that."""
        self._done, self._total = done, total

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Make room for lines that are printed meanwhile."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def start(self) -> None:
        """Show it from now on."""
        if self._live is not None:
            self._live.start()

    def stop(self) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()

    def text(self, width: int) -> str:
        """The line in at most so many columns: where it gets narrow, the phase is cut."""
        spent = self._clock() - self._began
        parts = [f"{self._done} of {self._total}"] if self._total else []
        parts.append(duration(spent))
        if (left := self._left(spent)) is not None:
            parts.append(f"about {duration(left)} left" if left >= 1 else "nearly done")
        tail = f"  {', '.join(parts)}"
        room = max(8, width - len(tail))
        phase = self._phase if len(self._phase) <= room else self._phase[: room - 1] + "…"
        return f"{phase}{tail}"[:width]

    def _left(self, spent: float) -> float | None:
        if self._total and self._done:
            return spent * (self._total - self._done) / self._done
        if self._usual is None or spent > self._usual:
            return None  # it takes longer than ever: nothing is known any more
        return self._usual - spent

    def _line(self) -> Text:
        width = self._console.width if self._console is not None else 80
        return Text(self.text(width), "cyan", no_wrap=True, overflow="crop")


@contextmanager
def waiting(phase: str, kind: str, afterwards: str = ANEW) -> Iterator[Waiting]:
    """Show what goes on for as long as this is entered.

    Args:
        phase: What begins now, in words.
        kind: By what its duration is remembered, e.g. `evaluate quick`.
        afterwards: What somebody who presses Ctrl-C has to know.
    """
    is_seen = sys.stderr.isatty()
    console = Console(stderr=True, highlight=False) if is_seen else None
    shown = Waiting(durations.usual(kind) if is_seen else None, console)
    began = time.monotonic()
    shown.say(phase)
    shown.start()
    try:
        yield shown
    except KeyboardInterrupt as interrupt:
        if interrupt.args:  # it says more itself
            raise
        raise KeyboardInterrupt(f"interrupted: {afterwards}") from interrupt
    finally:
        shown.stop()
    if (seconds := time.monotonic() - began) > SHORT_S:
        durations.remember(kind, seconds)
