"""Owns the framing between processes: JSON messages and open files over a Unix socket.

A frame is four bytes of length, then UTF-8 JSON. Nothing is ever unpickled. Files (sealed shared
memory, see `tensors`) travel beside a frame, which says how many belong to it.
"""

import array
import json
import math
import os
import socket
import struct
from collections import deque
from typing import Any, Self

Message = dict[str, Any]

MAX_FRAME = 8 << 20
"""Bytes of the largest frame; a module's text and a traceback are far smaller."""
MAX_FILES = 4
"""Files beside one frame; the kernel discards more."""
_MOST_BITS = 63  # of an integer; Python reads what neither a float nor a database can hold
_LENGTH = struct.Struct("!I")
_RIGHTS_ROOM = socket.CMSG_SPACE(MAX_FILES * array.array("i").itemsize)


class BrokenWire(Exception):
    """The other side closed the connection."""


class BadFrame(BrokenWire):
    """The other side does not speak our language."""


class Wire:
    """One end of a connection; not thread-safe.

    Args:
        endpoint: A connected stream socket of the Unix family; the wire owns it from now on.
        limit: Bytes of the largest frame that is accepted.
    """

    def __init__(self, endpoint: socket.socket, limit: int = MAX_FRAME) -> None:
        self._socket = endpoint
        self._limit = limit
        self._bytes = bytearray()
        self._buffer = memoryview(bytearray(1 << 16))
        self._files: deque[int] = deque()

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """A connection: our wire, and the other end's socket, to be handed on."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs

    def fileno(self) -> int:
        """The descriptor, for `poll`."""
        return self._socket.fileno()

    def send(
        self, message: Message, files: tuple[int, ...] = (), timeout_s: float | None = None
    ) -> None:
        """Send one frame with copies of `files`.

        Raises:
            BrokenWire: The other side is gone, or did not read for `timeout_s`.
        """
        body = json.dumps({**message, "files": len(files)}, allow_nan=False).encode()
        frame = memoryview(_LENGTH.pack(len(body)) + body)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            self._socket.settimeout(timeout_s)
            sent = self._socket.sendmsg([frame], rights)
            if sent < len(frame):
                self._socket.sendall(frame[sent:])
        except OSError as error:
            raise BrokenWire(f"cannot send: {error}") from error
        finally:
            self._socket.settimeout(None)

    def receive(self) -> tuple[Message, tuple[int, ...]]:
        """Wait for the next frame, however long that takes.

        Raises:
            BrokenWire: The other side is gone, or sent what is no frame (`BadFrame`).
        """
        while (frame := self.take()) is None:
            self.feed()
        return frame

    @property
    def is_idle(self) -> bool:
        """Whether nothing has arrived that was not taken."""
        try:
            waiting = self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:  # nothing there; or broken, which the next call finds
            waiting = b""
        return not (waiting or self._bytes or self._files)

    def feed(self) -> None:
        """Read what has arrived; call it when `poll` says that there is something.

        Raises:
            BrokenWire: The other side closed the connection, or sends files without end
                (`BadFrame`), which would use up our own.
        """
        try:
            size, rights, flags, _ = self._socket.recvmsg_into(
                [self._buffer], _RIGHTS_ROOM, socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise BrokenWire(f"cannot receive: {error}") from error
        for level, kind, payload in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._files.extend(_descriptors(payload))
        if flags & socket.MSG_CTRUNC or len(self._files) > 2 * MAX_FILES:
            raise BadFrame("more files than belong to its frames")
        if not size:
            raise BrokenWire("the connection was closed")
        self._bytes += self._buffer[:size]

    def take(self) -> tuple[Message, tuple[int, ...]] | None:
        """The next complete frame among what was read, with its files; None if there is none yet.

        Raises:
            BadFrame: What was read is no frame.
        """
        if len(self._bytes) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        if length > self._limit:
            raise BadFrame(f"a frame of {length} bytes; at most {self._limit} are allowed")
        end = _LENGTH.size + length
        if len(self._bytes) < end:
            return None
        message = _parse(bytes(self._bytes[_LENGTH.size : end]))
        del self._bytes[:end]
        files = self._take_files(message.pop("files", 0))
        if self._files and not self._bytes:  # they travel with their frame's first byte
            self._files.extend(files)
            raise BadFrame("files that no frame announced")
        return message, files

    def close(self) -> None:
        """Close the socket and every file that nobody took. Idempotent."""
        self._socket.close()
        while self._files:
            os.close(self._files.popleft())

    def _take_files(self, count: object) -> tuple[int, ...]:
        if not isinstance(count, int) or not 0 <= count <= len(self._files):
            raise BadFrame("a frame announces files that did not come")
        return tuple(self._files.popleft() for _ in range(count))


def _descriptors(payload: bytes) -> "array.array[int]":
    files = array.array("i")
    files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
    return files


def _parse(body: bytes) -> Message:
    """Read one frame; of numbers only those that every part of ours can compute with."""
    try:
        message = json.loads(
            body, parse_constant=_no_number, parse_float=_finite, parse_int=_bounded
        )
    except (ValueError, RecursionError) as error:
        raise BadFrame("a frame that is not JSON") from error
    if not isinstance(message, dict):
        raise BadFrame("a frame that is not an object")
    return message


def _no_number(text: str) -> float:
    raise ValueError(f"`{text}` is no JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError("a number without end")
    return number


def _bounded(text: str) -> int:
    if (number := int(text)).bit_length() > _MOST_BITS:
        raise ValueError("a number beyond all measure")
    return number
