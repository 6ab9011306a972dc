"""Owns what a worker writes to its standard streams: read as it comes, capped, the tail kept."""

import os

from evokernel.wording import plain

_TAIL = 8000  # bytes that are kept


class OutputLog:
    """The reading end of a worker's standard output and error; owns the descriptor.

    Args:
        file: Read end of the pipe.
        limit: Bytes that may come out before it counts as a flood.
    """

    def __init__(self, file: int, limit: int) -> None:
        os.set_blocking(file, False)
        self._file = file
        self._limit = limit
        self._seen = 0
        self._tail = b""
        self._is_open = True
        self.is_finished = False
        """Nobody has the other end any more: nothing will come."""

    def fileno(self) -> int:
        """The descriptor, for `poll`."""
        return self._file

    @property
    def text(self) -> str:
        """The tail of what was read; what a terminal would obey is spelt out."""
        return plain(self._tail.decode(errors="replace")).strip()

    def drain(self) -> bool:
        """Read what is there; False once the limit is passed."""
        while self._is_open and self._seen <= self._limit:
            try:
                data = os.read(self._file, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                self.is_finished = True
                break
            self._seen += len(data)
            self._tail = (self._tail + data)[-_TAIL:]
        return self._seen <= self._limit

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._is_open:
            self._is_open = False
            os.close(self._file)
