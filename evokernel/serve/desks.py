"""Owns the server's end of the desks: started at need, called one call at a time, ended."""

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from evokernel.bench.entry import entry
from evokernel.errors import WorkerError
from evokernel.serve.desk import DeskOrder
from evokernel.serve.refusal import Refusal, Refused

Tell = Callable[[str], Awaitable[None]]
"""Told what takes time."""

LEAVE_S = 15.0
"""How long a desk that was hung up on may take to kill its workers, seconds (ours)."""
AT_ONCE = 2
"""Desks that stay open; each holds some 600 MB (ours)."""


class OpenDesk:
    """One desk, which carries out one call after the other."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._turn = anyio.Lock()
        self._is_leaving = False
        self._rest = b""
        self.run = ""
        """Id of its run."""
        self.path = Path()
        """Its folder."""

    @classmethod
    async def open(cls, order: DeskOrder, tell: Tell) -> "OpenDesk":
        """Start the process, which takes seconds.

        Raises:
            Refused: the run cannot begin, or not go on.
            WorkerError: the process died.
        """
        command = [sys.executable, "-P", "-c", entry("evokernel.serve.desk")]
        # In a session of its own, so that a Ctrl-C of the server's terminal does not tear it.
        process = await anyio.open_process(command, stderr=None, start_new_session=True)
        desk = cls(process)
        await tell("starting a process for this task")
        opened = await desk._exchange(order.model_dump_json(), tell)
        desk.path = Path(opened["run"])
        desk.run = desk.path.name
        return desk

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_open(self) -> bool:
        """Whether it can be called."""
        return self._process.returncode is None and not self._is_leaving

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._turn.locked()

    async def call(self, name: str, arguments: dict[str, Any], tell: Tell) -> dict[str, Any]:
        """Have something carried out; being cancelled ends the desk and all that it started.

        Raises:
            Refused: it was not carried out.
            WorkerError: the process died.
        """
        if self._turn.locked():
            await tell("waiting for an earlier call on this task")
        async with self._turn:
            return await self._exchange(json.dumps({"call": name, "arguments": arguments}), tell)

    async def end(self) -> None:
        """Hang up, and see it and its workers gone."""
        self._is_leaving = True
        with anyio.CancelScope(shield=True):
            if self._process.stdin is not None:
                await self._process.stdin.aclose()
            with anyio.move_on_after(LEAVE_S):
                await self._process.wait()
                return
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def _exchange(self, line: str, tell: Tell) -> dict[str, Any]:
        try:
            answer = await self._answer(line, tell)
        except BaseException:  # cancelled, or dead: what it was doing must not go on
            await self.end()
            raise
        if refusal := answer.get("refusal"):
            raise Refused(Refusal.model_validate(refusal))
        result: dict[str, Any] = answer["result"]
        return result

    async def _answer(self, line: str, tell: Tell) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(line.encode() + b"\n")
            while "progress" in (message := json.loads(await self._line())):
                await tell(message["progress"])
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
            code = await self._process.wait()
            raise WorkerError(
                f"the process that judges ended by itself (exit status {code}); the attempts so "
                "far are kept"
            ) from error
        found: dict[str, Any] = message
        return found

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            self._rest += await self._process.stdout.receive()
        line, _, self._rest = self._rest.partition(b"\n")
        return line


class Desks:
    """The open desks by run, the one used last at the end; a few at once."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._open: dict[str, OpenDesk] = {}
        self._opening = anyio.Lock()

    async def at(self, order: DeskOrder, tell: Tell) -> OpenDesk:
        """The desk of a run, opened if it is not; without a path, that of a new one.

        Raises:
            Refused: the run cannot begin, or not go on.
        """
        async with self._opening:  # two calls at the same time want the same desk
            desk = self._open.pop(order.path.name, None) if order.path else None
            if desk is not None and not desk.is_open:
                await desk.end()  # it may still hold the folder
                desk = None
            if desk is None:
                await self._make_room()
                desk = await OpenDesk.open(order, tell)
            self._open[desk.run] = desk
            return desk

    def of(self, run: str) -> OpenDesk | None:
        """The open desk of a run."""
        desk = self._open.get(run)
        return desk if desk and desk.is_open else None

    async def close(self) -> None:
        """End all of them."""
        for desk in self._open.values():
            await desk.end()
        self._open.clear()

    async def _make_room(self) -> None:
        idle = [run for run, desk in self._open.items() if not desk.is_busy]
        for run in idle[: max(0, len(self._open) - self._at_once + 1)]:
            await self._open.pop(run).end()
