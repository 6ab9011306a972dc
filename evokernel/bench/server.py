"""Owns the warm server: it imports torch once, and forks workers that find it imported.

It never runs an operator, starts a thread or opens a device: a process in which torch once entered
an OpenMP region hangs its forked children. It looks at itself before each fork and refuses where
that happened. It is started by `warm.WarmServer` with a scrubbed environment and ends with its
connection.
"""

import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from evokernel.bench import sandbox
from evokernel.bench.birth import reap
from evokernel.bench.descendants import collect, sweep
from evokernel.bench.entry import package_folder
from evokernel.bench.sandbox import Cell, Report
from evokernel.bench.wire import BrokenWire, Message, Wire
from evokernel.confinement import files, kernel
from evokernel.frozen import Frozen

if TYPE_CHECKING:
    from evokernel.bench.tripwire import Tripwire


_ORPHANED = 3  # exit status of a server whose parent died
_LEAVE_S = 5.0


class ServerOrder(Frozen):
    """What a server is started with."""

    endpoint: int
    """Descriptor of its connection to the parent."""
    isolation: str
    """One of `sandbox.ISOLATIONS`."""
    preload: tuple[str, ...]
    """Modules to import beside torch."""


def main() -> NoReturn:
    """Run the server whose order is the first argument; never returns."""
    order = ServerOrder.model_validate_json(sys.argv[1])
    endpoint = socket.socket(fileno=order.endpoint)
    report = Report(order.isolation)
    if sandbox.enter(report):
        _become_init(endpoint)
    else:
        kernel.become_subreaper()
    # Whoever wrote into this memory would have every later worker, the trusted ones too.
    kernel.show_memory(False)
    Server(Wire(endpoint), report, order).serve()


def _become_init(endpoint: socket.socket) -> None:
    """Go on in a child that is the init of a new PID namespace; stay behind to watch both sides."""
    child = os.fork()
    if child == 0:
        kernel.set_death_signal(signal.SIGKILL)
        return
    watch = select.poll()
    watch.register(endpoint, 0)  # only that the parent hung up
    watch.register(os.pidfd_open(child), select.POLLIN)
    watch.poll()
    watch.unregister(endpoint)
    if not watch.poll(_LEAVE_S * 1000):
        os.kill(child, signal.SIGKILL)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == _ORPHANED:
        _remove_home()
    os._exit(0)


class Server:
    """Waits for orders to fork, and answers each with the new process or with why it refuses."""

    def __init__(self, wire: Wire, report: Report, order: ServerOrder) -> None:
        self._wire = wire
        self._report = report
        self._tripwire = _import_all(order.preload)
        self._namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self._reapers: set[int] = set()
        self._references = references()
        self._readable: dict[tuple[str, ...], files.Readable] = {}
        gc.collect()
        gc.freeze()  # collections in workers then leave the shared pages alone

    def serve(self) -> NoReturn:
        """Answer until the parent hangs up, then end; every worker ends with this process."""
        wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wire.send({"ready": True})
        ready = select.poll()
        ready.register(self._wire, select.POLLIN)
        ready.register(wake, select.POLLIN)
        try:
            while True:
                events = [file for file, _ in ready.poll()]
                if wake in events:
                    os.read(wake, 4096)
                    self._reapers.difference_update(pid for pid, _ in collect())
                if self._wire.fileno() in events:
                    self._wire.feed()
                    self._answer_all()
        except BrokenWire:
            self._leave_orphaned()

    def _leave_orphaned(self) -> NoReturn:
        """The parent is gone without a word: nobody else will tidy up."""
        if not self._report.has("pid_namespace"):
            sweep()
            _remove_home()
        os._exit(_ORPHANED)  # workers end with us, the rest is the watching process's

    def _answer_all(self) -> None:
        while frame := self._wire.take():
            message, files = frame
            if "leave" in message:
                os._exit(0)
            if "sweep" in message:
                self._sweep_orphans()
            else:
                self._fork(message, files)

    def _fork(self, message: Message, files: tuple[int, ...]) -> None:
        if refusal := self._refusal():
            self._wire.send({"refused": refusal})
            self._close(files)
            return
        worker_end, reaper_end, output = files
        cell = self._completed(Cell.model_validate(message["fork"]))
        server = os.getpid()
        child = self._fork_into_namespace()
        if child == 0:
            self._become_child()
            reap(cell, self._report, server, (worker_end, reaper_end, output))
        self._reapers.add(child)
        self._close(files)
        process = os.pidfd_open(child)
        self._wire.send({"forked": True}, (process,))
        os.close(process)

    def _completed(self, cell: Cell) -> Cell:
        """The same with what every worker may read."""
        hidden = (*cell.hidden, *self._references)
        own, every = files.carve(cell.readable, hidden), self._readable_without(hidden)
        return cell.model_copy(
            update={
                "readable": (*own.whole, *every.whole),
                "listed": (*own.listed, *every.listed),
                "hidden": hidden,
            }
        )

    def _readable_without(self, hidden: tuple[str, ...]) -> files.Readable:
        """What every worker may read, found once for those who may not read the same."""
        if hidden not in self._readable:
            wanted = (*files.SYSTEM, *sandbox.readable_paths(package_folder()))
            self._readable[hidden] = files.carve(wanted, hidden)
        return self._readable[hidden]

    def _fork_into_namespace(self) -> int:
        if not self._report.has("pid_namespace"):
            return os.fork()
        kernel.unshare(kernel.CLONE_NEWPID)
        child = os.fork()
        if child:
            kernel.enter_namespace(self._namespace, kernel.CLONE_NEWPID)
        return child

    def _become_child(self) -> None:
        """Forget what belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._wire.close()
        os.close(self._namespace)
        self._tripwire.disarm()

    def _refusal(self) -> str:
        threads = [
            (task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()
        ]
        if len(threads) > 1:
            found = f"{len(threads)} threads ({', '.join(threads)})"
            return f"it has {found}; a fork would hang in the first parallel region"
        if operators := self._tripwire.operators:
            return f"it ran the operator `{operators[0]}`; workers must come from a clean process"
        return ""

    def _sweep_orphans(self) -> None:
        """Where there are no namespaces: kill what escaped its reaper and was adopted by us."""
        self._reapers -= sweep(spared=self._reapers)
        self._wire.send({"swept": True})

    @staticmethod
    def _close(files: tuple[int, ...]) -> None:
        for file in files:
            os.close(file)


def _import_all(preload: tuple[str, ...]) -> "Tripwire":
    """Import torch, then set the tripwire, then import the rest and what workers need."""
    from evokernel.bench.tripwire import Tripwire

    tripwire = Tripwire()
    tripwire.arm()
    for name in ("evokernel.jit", "evokernel.bench.worker", *preload):
        importlib.import_module(name)
    from evokernel.bench import worker

    worker.anchors()  # found once, for every worker
    return tripwire


def _remove_home() -> None:
    """Delete the folder that was made for this pool, with whatever workers left in it."""
    shutil.rmtree(Path.cwd(), ignore_errors=True)


def references() -> tuple[str, ...]:
    """Where texts lie that say what is right: of this package and of every other copy in reach."""
    packages = {package_folder(), *(Path(place) / "evokernel" for place in sys.path if place)}
    places = (package / part for package in packages for part in ("tasks", "zoo"))
    return tuple(str(place) for place in places if place.exists())
