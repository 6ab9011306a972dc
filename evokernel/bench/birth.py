"""Owns the birth of a worker: the reaper that shuts it in and buries it, and the worker itself.

The reaper is the init of the worker's PID namespace: when it is killed, all below it is gone.
Where there is no such namespace it adopts every orphan and sweeps them when told to end (SIGTERM).
"""

import faulthandler
import os
import signal
import socket
import sys
import tempfile
import traceback
from typing import NoReturn

from evokernel.bench import sandbox
from evokernel.bench.descendants import sweep
from evokernel.bench.sandbox import Cell, Report
from evokernel.bench.wire import BrokenWire, Wire
from evokernel.confinement import kernel

EXIT_FAULT = 70
"""Exit status of a reaper or worker whose harness failed (EX_SOFTWARE)."""


def reap(cell: Cell, report: Report, server: int, files: tuple[int, int, int]) -> NoReturn:
    """Become the reaper in the child that the server just forked; never returns.

    Args:
        cell: The worker's bounds.
        report: What the server found out about protections.
        server: PID of the server, as this process sees it.
        files: The worker's connection, the reaper's connection, the worker's standard output.
    """
    try:
        _reap(cell, report, server, files)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(EXIT_FAULT)


def _reap(cell: Cell, report: Report, server: int, files: tuple[int, int, int]) -> None:
    has_namespace = report.has("pid_namespace")
    _follow_parent(server, signal.SIGKILL if has_namespace else signal.SIGTERM)
    os.setsid()
    if not has_namespace:
        kernel.become_subreaper()
        signal.signal(signal.SIGTERM, _sweep_and_leave)
    sandbox.furnish(report, cell)
    worker_end, own_end, output = files
    reaper = os.getpid()
    worker = os.fork()
    if worker == 0:
        _live(cell, report, reaper, worker_end, output)
    for file in (worker_end, output):
        os.close(file)
    status, peak = _bury(worker)
    if not has_namespace:
        sweep()
    wire = Wire(socket.socket(fileno=own_end))
    try:
        wire.send({"status": status, "peak_bytes": peak}, timeout_s=1.0)
    except BrokenWire:  # nobody is left who wants to know
        os._exit(EXIT_FAULT)
    os._exit(0)


def _bury(worker: int) -> tuple[int, int]:
    """Collect orphans until the worker itself ends; its wait status and peak resident bytes."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == worker:
            return status, usage.ru_maxrss * 1024


def _live(cell: Cell, report: Report, reaper: int, worker_end: int, output: int) -> NoReturn:
    """Become the worker; never returns."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _follow_parent(reaper, signal.SIGKILL)
        os.setsid()
        _arrange_files(worker_end, output)
        _settle(cell)
        sandbox.confine(report, cell)
        wire = Wire(socket.socket(fileno=_WIRE))
        scratch = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        wire.send({"protections": report.protections.model_dump()}, (scratch,))
        os.close(scratch)
        from evokernel.bench.worker import serve

        serve(wire, cell.threads, cell.device)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(EXIT_FAULT)


_WIRE = 3
_HIGH = 100  # above every descriptor that the server has open


def _arrange_files(worker_end: int, output: int) -> None:
    """Standard streams and the connection; no other descriptors."""
    null = os.open("/dev/null", os.O_RDONLY)
    sources = (null, output, output, worker_end)
    for low, source in enumerate(sources):
        os.dup2(source, _HIGH + low, inheritable=False)
    os.closerange(0, _HIGH)
    for low in range(len(sources)):
        os.dup2(_HIGH + low, low, inheritable=low < _WIRE)
    os.closerange(len(sources), sandbox.FILES * 64)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    faulthandler.enable(file=2, all_threads=False)


def _settle(cell: Cell) -> None:
    os.chdir(cell.scratch)
    places = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
    os.environ.update(dict.fromkeys(places, cell.scratch))
    os.environ.update(cell.variables)
    tempfile.tempdir = cell.scratch  # the server may have asked for the folder already


def _follow_parent(parent: int, number: int) -> None:
    """Die with the parent, also if it died before we could ask for that."""
    kernel.set_death_signal(number)
    if os.getppid() not in (parent, 0):  # 0: the parent lives outside our PID namespace
        os._exit(EXIT_FAULT)


def _sweep_and_leave(*_: object) -> None:
    sweep()
    os._exit(0)
