"""Owns a process known by its PID file descriptor, which no other process can take over."""

import os
import select
import signal
from pathlib import Path


class Process:
    """Another process, reached through a descriptor that this object owns."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._is_open = True

    @property
    def pid(self) -> int | None:
        """Its number as /proc shows it here; None once it has ended."""
        for line in Path(f"/proc/self/fdinfo/{self._file}").read_text().splitlines():
            if line.startswith("Pid:"):
                number = int(line.split()[1])
                return number if number > 0 else None
        return None

    def send(self, number: int) -> None:
        """Send a signal; nothing happens when it has ended."""
        try:
            signal.pidfd_send_signal(self._file, number)
        except ProcessLookupError:
            return

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        """Wait for its end; the init of a namespace ends after everything in it."""
        ready = select.poll()
        ready.register(self._file, select.POLLIN)
        return bool(ready.poll(timeout_s * 1000))

    def close(self) -> None:
        """Give up the descriptor. Idempotent."""
        if self._is_open:
            self._is_open = False
            os.close(self._file)
