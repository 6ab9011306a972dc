"""Owns the parent's contact with one worker: calls with a deadline, its output, its end.

Nothing that a worker sends is believed beyond its form. Deadlines are kept by killing the worker.
"""

import os
import secrets
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import ValidationError

from evokernel.bench import complaint
from evokernel.bench.limits import Limits
from evokernel.bench.logs import OutputLog
from evokernel.bench.messages import Fault, Faulted, Protections
from evokernel.bench.process import Process
from evokernel.bench.scratch import Scratch
from evokernel.bench.verdict import last_words, verdict
from evokernel.bench.wire import BadFrame, BrokenWire, Message, Wire
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.signatures import KERNELS_ONLY
from evokernel.confinement import kernel
from evokernel.errors import WorkerError
from evokernel.evaluation import Diagnostic, Status
from evokernel.wording import plain

Build = Callable[[KernelSource], Artefact | BuildFailure]
"""The trusted compiler: called in the parent when a worker's code asks for a kernel."""
Reply = tuple[Message, tuple[int, ...]]

MAX_BUILDS = 64
"""Kernels that one worker may ask for."""
MAX_BUILD_S = 1200.0
"""Seconds that the compiler may spend on them together."""
_SHIPPING = ("run", "kept", "held")  # requests whose reply has tensors beside it
_ID_BITS = 62
_NAME_CHARS, _REASON_CHARS = 100, 1000
_TICK_S = 0.25  # how often its limits are looked at
_ANSWER_S = 1.0  # how long a worker may take to read an answer
_END_S = 0.3  # how long the reaper may take to see that its worker has ended
_SWEEP_S = 10.0  # how long a reaper may take to end what is below it
_DEATH_S = 15.0


class Contact:
    """One worker as its parent reaches it.

    Args:
        wire: Connection to the worker.
        reaper: Connection to its reaper, which says how the worker ended.
        process: The reaper.
        log: The worker's standard streams.
        scratch: Its folder.
        limits: What else it may take.
        memory_bytes: Its memory limit, to tell a death by memory from others.
        build: The trusted compiler.
        sweep: Kills what escaped the reaper, on systems without PID namespaces.
    """

    def __init__(
        self,
        wire: Wire,
        reaper: Wire,
        process: Process,
        log: OutputLog,
        scratch: Scratch,
        limits: Limits,
        memory_bytes: int,
        build: Build,
        sweep: Callable[[], None],
    ) -> None:
        self.process = process
        self.protections = Protections()
        self.has_ended = False
        self.build_s = 0.0
        self._wire, self._reaper, self._log = wire, reaper, log
        self._scratch, self._limits, self._memory_bytes = scratch, limits, memory_bytes
        self._build, self._sweep = build, sweep
        self._failures: list[BuildFailure] = []
        self._builds = 0
        self._phase = "birth"
        self._next_look = 0.0
        self._is_greeted = False
        self._poll = select.poll()
        for file in (wire, log, reaper):
            self._poll.register(file, select.POLLIN)

    @property
    def log(self) -> str:
        """Tail of standard output and error."""
        if not self.has_ended:
            self._log.drain()
        return self._log.text

    def greet(self, deadline_s: float) -> None:
        """Wait for the worker's first message, which it sends before it knows the module."""
        message, files = self._await(time.monotonic() + deadline_s)
        self.protections = Protections.model_validate(message["protections"])
        self._scratch.observe(files[0], self.protections.mount_namespace)
        self._limits.begin()
        self._is_greeted = True
        if not self.protections.landlock:
            # Nothing else keeps a process of the same user from reading our keys out of /proc.
            kernel.show_memory(False)

    def call(
        self,
        phase: str,
        message: Message,
        files: tuple[int, ...],
        deadline_s: float,
        sent: Callable[[], None] | None = None,
    ) -> Reply:
        """Send a request, serve the worker's own requests to build, and wait for the reply.

        Args:
            phase: Name of the request in messages.
            message: The request.
            files: Descriptors beside it.
            deadline_s: Wall limit, seconds; time spent on building is added.
            sent: Called when the request is on its way, e.g. to let a stopped worker go on.

        Raises:
            Faulted: The worker died, was killed at the deadline or a limit, or reports an error.
            WorkerError: It is dead already.
        """
        if self.has_ended:
            raise WorkerError(f"`{phase}` was asked of a worker that has ended; fork another")
        self._phase = phase
        self._failures.clear()
        if not self._wire.is_idle:
            self.give_up(Status.CRASHED, "it answered before it was asked")
        number = secrets.randbits(_ID_BITS)  # so that no answer can be written in advance
        end = time.monotonic() + deadline_s
        self._send({**message, "id": number}, files, deadline_s)
        if sent is not None:
            sent()
        reply, received = self._await(end)
        while "build" in reply:
            _close(received)
            end += self._serve_build(reply)
            reply, received = self._await(end)
        try:
            return self._checked(phase, reply, bool(received), number), received
        except BaseException:
            _close(received)
            raise

    def mourn(self) -> None:
        """Raise the fault of a worker that has ended meanwhile; nothing where it lives on.

        Raises:
            Faulted: It has.
        """
        ready = select.poll()
        ready.register(self._reaper, select.POLLIN)
        if not self.has_ended and ready.poll(_END_S * 1000):
            self._died()

    def give_up(self, status: Status, reason: str) -> NoReturn:
        """Kill the worker and raise its fault."""
        self._log.drain()
        self.close()
        self._raise(status, reason)

    def close(self) -> None:
        """Kill it with every descendant and verify that nothing is left. Idempotent.

        Raises:
            WorkerError: A process or a file survived.
        """
        if self.has_ended:
            return
        self.has_ended = True
        try:
            self._end_processes()
        finally:
            for part in (self._wire, self._reaper, self._log, self.process):
                part.close()
            self._scratch.remove()

    def _await(self, end: float) -> Reply:
        """The next message of the worker; its output and its limits are watched meanwhile."""
        try:
            while (frame := self._wire.take()) is None:
                self._watch(end)
        except BadFrame as error:
            self.give_up(Status.CRASHED, f"it sent {error}")
        except BrokenWire:
            self._died()
        return frame

    def _checked(self, phase: str, reply: Message, has_files: bool, number: int) -> Message:
        """The reply, where it is one to what was asked."""
        if has_files and not (phase in _SHIPPING and "package" in reply):
            self.give_up(Status.CRASHED, "it sent files that nobody asked for")
        if reply.pop("id", None) != number:
            self.give_up(Status.CRASHED, "it answered what was not asked")
        try:
            reply = complaint.tamed(reply)
        except ValueError as error:
            self.give_up(Status.CRASHED, f"it sent a reply that is {error}")
        if "error" in reply:
            self._report(reply["error"])
        return reply

    def _watch(self, end: float) -> None:
        now = time.monotonic()
        if now >= end:
            self.give_up(Status.TIMEOUT, "killed at its wall-clock limit")
        ready = [file for file, _ in self._poll.poll(min(end - now, _TICK_S) * 1000)]
        if self._log.fileno() in ready:
            self._read_log()
        if self._wire.fileno() in ready:
            self._wire.feed()
        elif self._reaper.fileno() in ready:
            self._died()
        if now > self._next_look:
            self._next_look = now + _TICK_S
            self._check_limits()

    def _read_log(self) -> None:
        if not self._log.drain():
            self.give_up(Status.OUTPUT_LIMIT, "it flooded its standard streams")
        if self._log.is_finished:  # it would be ready for ever
            self._poll.unregister(self._log)

    def _send(self, message: Message, files: tuple[int, ...], timeout_s: float) -> None:
        try:
            self._wire.send(message, files, timeout_s)
        except BrokenWire:
            self._died()

    def _serve_build(self, message: Message) -> float:
        """Compile for the worker; the seconds that took."""
        start = time.monotonic()
        try:
            wanted = KernelSource.model_validate(message["build"])
            wanted = wanted.model_copy(update={"name": plain(wanted.name)[:_NAME_CHARS]})
        except ValidationError:
            self.give_up(Status.CRASHED, "it asked to build what is no kernel")
        if wanted.backend not in KERNELS_ONLY:
            # To build for Triton is to run the module's Python outside of its worker.
            reason = f"it asked to build for `{wanted.backend}`, which `jit` has no way to ask for"
            self.give_up(Status.CRASHED, reason)
        self._builds += 1
        if self._builds > MAX_BUILDS:
            self.give_up(Status.COMPILE_ERROR, f"it asked for more than {MAX_BUILDS} kernels")
        if self.build_s > MAX_BUILD_S:
            reason = f"its kernels took more than {MAX_BUILD_S:.0f} s to build"
            self.give_up(Status.COMPILE_TIMEOUT, reason)
        answer = self._build(wanted)
        if isinstance(answer, BuildFailure):
            self._failures.append(answer)
        seconds = time.monotonic() - start
        self.build_s += seconds
        self._send({"built": answer.model_dump()}, (), _ANSWER_S)
        return seconds

    def _report(self, error: Any) -> NoReturn:
        """Raise what the worker reports of its module; what the parent saw itself goes first."""
        if self._failures:
            failure = self._failures[-1]
            status = Status.COMPILE_TIMEOUT if failure.timed_out else Status.COMPILE_ERROR
            self._raise(status, "a kernel does not build", failure.diagnostics, failure.log)
        self._check_limits()
        try:
            status, reason, diagnostics, log = complaint.read(error)
        except ValueError:
            self.give_up(Status.CRASHED, "it reported an error that cannot be read")
        self._log.drain()
        if status not in complaint.MILD:
            self.close()
        self._raise(status, reason, diagnostics, log)

    def _raise(
        self,
        status: Status,
        reason: str,
        diagnostics: tuple[Diagnostic, ...] = (),
        log: str = "",
    ) -> NoReturn:
        text = "\n".join(part for part in (log, self._log.text) if part)
        raise Faulted(
            Fault(
                status=status,
                reason=plain(reason)[:_REASON_CHARS],
                phase=self._phase,
                diagnostics=diagnostics,
                log=text,
            )
        )

    def _died(self) -> NoReturn:
        """Find out how the worker ended, bury it, raise."""
        ended = last_words(self._reaper)
        self._log.drain()
        if ended is None:
            self.give_up(Status.CRASHED, "it broke the connection to the harness")
        self._check_limits()
        self.close()
        self._raise(*verdict(*ended, self._memory_bytes, self._log.text))

    def _check_limits(self) -> None:
        if excess := self._limits.excess():
            self.give_up(*excess)

    def _end_processes(self) -> None:
        """Without a namespace of its own the reaper sweeps, and the server what escaped it."""
        is_shut_in = self.protections.pid_namespace or not self._is_greeted
        if not is_shut_in:
            self.process.send(signal.SIGTERM)
            self.process.send(signal.SIGCONT)  # it may have been stopped
            self.process.has_ended(_SWEEP_S)
        self.process.send(signal.SIGKILL)
        if not self.process.has_ended(_DEATH_S):
            pid = self.process.pid
            raise WorkerError(f"process {pid} and those below it survive; end them by hand")
        if not is_shut_in:
            self._sweep()


def _close(files: tuple[int, ...]) -> None:
    for file in files:
        os.close(file)
