"""Owns `Stop`: how Ctrl-C and SIGTERM end a run without tearing anything.

An interrupt that came up anywhere could leave a database in the middle of a transaction, or be
swallowed by a library's callback. So it comes up where a run waits for others to propose or to
measure, and otherwise before the next node, a few milliseconds later.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int


class Stop:
    """Answers signals while `answering`; the second one comes up wherever it finds the process."""

    def __init__(self) -> None:
        self._is_wanted = False
        self._is_waiting = False
        self._is_insisted = False

    def request(self) -> None:
        """Ask for a stop, from any thread; it comes before the next node."""
        self._is_wanted = True

    def check(self) -> None:
        """Come to a stop here, if one was asked for.

        Raises:
            KeyboardInterrupt: it was.
        """
        if self._is_wanted:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let an interrupt come up at once: nothing is under way here that it could tear."""
        self._is_waiting = True
        try:
            self.check()
            yield
        finally:
            self._is_waiting = False

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Take over the signals that end a process, unless its owner has other plans for them.

        Raises:
            KeyboardInterrupt: one was asked for twice, and whatever it met failed.
        """
        usual: dict[int, Handler] = {
            signal.SIGINT: signal.default_int_handler,
            signal.SIGTERM: signal.SIG_DFL,
        }
        is_main = threading.current_thread() is threading.main_thread()
        taken = [n for n, handler in usual.items() if is_main and signal.getsignal(n) == handler]
        for number in taken:
            signal.signal(number, self._answer)
        try:
            yield
        except Exception as error:
            if self._is_insisted:  # a library made an error of its own of it
                raise KeyboardInterrupt from error
            raise
        finally:
            for number in taken:
                signal.signal(number, usual[number])

    def _answer(self, number: int, frame: FrameType | None) -> None:
        self._is_insisted = self._is_wanted
        self._is_wanted = True
        if self._is_waiting or self._is_insisted:
            raise KeyboardInterrupt
