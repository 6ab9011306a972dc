"""Owns what a worker does: it answers the parent's requests about one module until it is killed."""

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch

from evokernel.bench import identity, module, places, trees
from evokernel.bench.clock import Clock
from evokernel.bench.inputs import InputSet
from evokernel.bench.messages import TimePlan, Variant
from evokernel.bench.module import Built, Refusal
from evokernel.bench.side import HostSide, Side, Times
from evokernel.bench.tensors import Package, is_dense
from evokernel.bench.trees import BadTree
from evokernel.bench.tripwire import Tripwire
from evokernel.bench.wire import BrokenWire, Message, Wire
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.evaluation import Status
from evokernel.jit import launches

EXIT_ALONE = 71
"""Exit status of a worker whose connection is gone."""
_libc = ctypes.CDLL(None)


@cache
def anchors() -> list[identity.Anchor]:
    """Where the functions of the timed path lie: in a fork where they lay in its parent."""
    return _anchors()


def _anchors() -> list[identity.Anchor]:
    roots = (serve, _answer, Worker, Clock, InputSet, Wire, places.told, places.describe)
    on_gpu = sys.modules.get("evokernel.bench.gpu.side")  # only where there is one
    return identity.anchors((*roots, *(on_gpu.TIMED if on_gpu else ())))


def serve(wire: Wire, threads: int, device: str) -> NoReturn:
    """Answer requests until the connection ends; never returns."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    worker = Worker(wire, _side(device))
    try:
        while True:
            message, files = wire.receive()
            _answer(wire, worker, message, files)
    except BrokenWire:
        os._exit(EXIT_ALONE)


def _side(device: str) -> Side:
    if device == "cpu":
        return HostSide()
    from evokernel.bench.gpu.side import GpuSide

    return GpuSide(device)


def _answer(wire: Wire, worker: "Worker", message: Message, files: tuple[int, ...]) -> None:
    package: Package | None = None
    try:
        reply, package = worker.handle(message, files)
    except BrokenWire:
        raise
    except BaseException as error:  # whatever the module raises, `SystemExit` too, is its fault
        status, reason, diagnostics, log = module.describe(error)
        found = [diagnostic.model_dump() for diagnostic in diagnostics]
        reply = {"error": {"status": status, "reason": reason, "diagnostics": found, "log": log}}
    _flush_streams()
    reply["id"] = message["id"]
    wire.send(reply, package.files if package else ())
    if package:
        package.close()


class Worker:
    """The state of a worker: the module, its input sets, what the last timed call returned."""

    def __init__(self, wire: Wire, side: Side) -> None:
        self._wire = wire
        self._side = side
        self._sets: dict[str, InputSet] = {}
        self._built: Built | None = None
        self._seed = 0
        self._build_s = 0.0
        self._kernels: list[str] = []
        self._held: tuple[Any, InputSet] | None = None

    def handle(self, message: Message, files: tuple[int, ...]) -> tuple[Message, Package | None]:
        """Carry out one request; the reply, and tensors to send beside it."""
        method: Callable[..., Any] = getattr(self, f"do_{message['do']}")
        if "package" in message:
            answer = method(message, self._side.opened(message, files))
        else:
            answer = method(message)
        self._side.rest()
        return answer if isinstance(answer, tuple) else (answer, None)

    def do_begin(self, message: Message) -> Message:
        """Make the device ready; asked before any module is here, so that faults are ours."""
        self._side.begin(message)
        return {}

    def do_anchors(self, message: Message) -> Message:
        """Where the functions of the timed path lie; asked before any module is here."""
        found = anchors()
        return {"anchors": found if identity.still(found) else _anchors()}

    def do_load(self, message: Message, package: Package) -> Message:
        """Import and construct the module."""
        args, kwargs, state = package.value()
        package.close()
        self._seed = message["seed"]
        module.listen_to(self._request_build)
        built = module.build(
            message["source"],
            message["class_name"],
            (args, kwargs),
            state,
            self._seed,
            mode=message["mode"],
            dtype=message["dtype"],
            device=self._side.device,
        )
        if message["role"] == "compile":
            built.call = torch.compile(built.model)
        self._built = built
        torch.zeros(1 << 20).add_(1)  # starts the OpenMP threads, which are nobody's left-overs
        return {
            "import_s": max(built.import_s - self._build_s, 0.0),
            "build_s": self._build_s,
            "construct_s": built.construct_s,
            "kernels": self._kernels,
            "state": built.state,
            "denormals_kept": module.denormals_kept(),
        }

    def do_put(self, message: Message, package: Package) -> Message:
        """Keep an input set."""
        self.do_drop(message)
        output_bytes = tuple(message["output_bytes"])
        package = self._side.kept(package)
        made = self._sets[message["name"]] = InputSet(package, message["slots"], output_bytes)
        return {"addresses": made.addresses}

    def do_drop(self, message: Message) -> Message:
        """Free an input set."""
        self._clock.forget()
        if old := self._sets.pop(message["name"], None):
            old.close()
        return {}

    def do_run(self, message: Message) -> tuple[Message, Package | None]:
        """One call on pristine inputs; outputs and what else was seen."""
        self._clock.forget()
        inputs, call = self._sets[message["name"]], self._call
        arguments = inputs.arguments(0)
        module.set_seed(self._seed)
        tasks = _count_tasks()
        sizes = inputs.output_bytes if message["poison"] else ()
        # Poison is last but for the instruments, for whatever allocates spoils it.
        with self._side.poisoned(sizes), self._instruments(message["instrument"]) as seen:
            self._side.wait()
            start = time.perf_counter()
            output = call(*arguments)
            self._side.wait()
            seconds = time.perf_counter() - start
        changed = inputs.changed(0)
        if message["hold"]:
            self._held = output, inputs
        if message["overwrite_inputs"]:
            inputs.overwrite(0)
        reply, package = self._collected(output, inputs, 0)
        reply |= {"changed": changed, "seconds": seconds, "left": max(_count_tasks() - tasks, 0)}
        reply |= {"operators": dict(seen[0].counts), "launches": list(seen[1])}
        return reply, package

    def do_time(self, message: Message) -> Message:
        """Timed repetitions."""
        plan = TimePlan.model_validate(message["plan"])
        done = self._clock.time(self._call, self._sets[message["name"]], plan)
        return {"repetitions": [repetition.model_dump() for repetition in done]}

    def do_ready(self, message: Message) -> Message:
        """Prepare a timed call; with a variant, write its values here (see `do_go`)."""
        inputs = self._sets[message["name"]]
        if message["variant"] is not None:
            inputs.arguments(message["slot"], Variant.model_validate(message["variant"]))
        self._clock.ready(self._call, inputs, message["slot"])
        return {}

    def do_go(self, message: Message) -> Message:
        """The prepared call, timed, on whatever the parent has written meanwhile.

        With a name it is prepared here, values and empty caches included.
        """
        if "name" in message:
            self.do_ready(message)
            self._clock.flush(message["bytes"])
        reply: Message = {"repetition": self._clock.go(), "refusal": "", "places": []}
        if not self._side.is_reachable:
            return reply
        try:
            found, self._clock.alive = places.told(self._clock.kept, *self._clock.where)
        except BadTree as error:
            return reply | {"refusal": f"`forward` returned {error}"}
        return reply | found

    def do_flush(self, message: Message) -> Message:
        """Empty the caches; asked of a worker that runs no candidate."""
        self._clock.flush(message["bytes"])
        return {}

    def do_batch(self, message: Message) -> Message:
        """Calls without a clock."""
        inputs = self._sets[message["name"]]
        self._clock.batch(self._call, inputs, message["calls"], message["slot"])
        return {}

    def do_replay(self, message: Message) -> Message:
        """Calls out of a graph, where the device has such."""
        inputs = self._sets[message["name"]]
        way = self._side.replay(self._call, inputs, message["calls"], message["slot"])
        return {"way": way}

    def do_probe(self, message: Message) -> Message:
        """Calls with a number of threads, and what they launched."""
        inputs, usual = self._sets[message["name"]], torch.get_num_threads()
        torch.set_num_threads(message["threads"])
        try:
            with launches() as log:
                start = time.perf_counter()
                self._clock.batch(self._call, inputs, message["calls"], 0)
                seconds = time.perf_counter() - start
        finally:
            torch.set_num_threads(usual)
        total: dict[str, tuple[int, float]] = {}
        for launch in log:
            count, inside = total.get(launch.kernel, (0, 0.0))
            total[launch.kernel] = count + 1, inside + launch.seconds
        return {
            "wall_s": seconds,
            "launched": [
                {"kernel": kernel, "count": count, "seconds": inside}
                for kernel, (count, inside) in total.items()
            ],
        }

    def do_trace(self, message: Message) -> Message:
        """What the device did for one call."""
        return {"events": self._side.traced(self._call, self._sets[message["name"]])}

    def do_null(self, message: Message) -> Message:
        """The same with a call that does nothing."""
        for _ in range(message["calls"]):
            _nothing()
        return {}

    def do_kept(self, message: Message) -> tuple[Message, Package | None]:
        """Outputs of the last timed call."""
        reply, package = self._collected(self._clock.kept, *self._clock.where)
        nothing = {"changed": [], "seconds": 0.0, "left": 0, "operators": {}, "launches": []}
        return reply | nothing, package

    def do_held(self, message: Message) -> tuple[Message, Package | None]:
        """Outputs of the call that was to be held, as they are now."""
        if self._held is None:
            raise RuntimeError("no output is held")
        held, self._held = self._held, None
        reply, package = self._collected(*held, 0)
        nothing = {"changed": [], "seconds": 0.0, "left": 0, "operators": {}, "launches": []}
        return reply | nothing, package

    def do_settle(self, message: Message) -> Message:
        """Write inputs and return free memory, so that a call's memory can be seen from outside."""
        self._clock.forget()
        self._sets[message["name"]].arguments(0)
        self._side.settle()
        return {}

    def do_peak(self, message: Message) -> Message:
        """Memory of one call, where only this process can tell."""
        return {"bytes": self._side.peak(self._call, self._sets[message["name"]])}

    @property
    def _clock(self) -> Times:
        return self._side.clock

    @property
    def _call(self) -> Callable[..., Any]:
        if self._built is None:
            raise RuntimeError("no module is loaded")
        call: Callable[..., Any] = self._built.call
        return call

    @contextlib.contextmanager
    def _instruments(self, wanted: bool) -> Iterator[tuple[Tripwire, list[Any]]]:
        """Logs of dispatched operators and of launches; empty unless wanted."""
        tripwire = Tripwire()
        if not wanted:
            yield tripwire, []
            return
        with launches() as log, self._side.logging(log), tripwire:
            yield tripwire, log

    def _collected(
        self, output: Any, inputs: InputSet, slot: int
    ) -> tuple[Message, Package | None]:
        """Copy outputs to where the parent finds them, with the facts about each tensor."""
        tensors: list[torch.Tensor] = []
        readable: list[torch.Tensor] = []

        def number(tensor: torch.Tensor) -> int | None:
            if not places.is_plain(tensor) or not is_dense(tensor):
                return None
            tensors.append(tensor)
            readable.append(self._side.readable(tensor))
            return len(tensors) - 1

        try:
            tree = trees.encode(output, number, foreign=True)
        except BadTree as error:
            raise Refusal(Status.WRONG_STRUCTURE, f"`forward` returned {error}") from error
        facts = [places.describe(tensor, inputs, slot) for tensor in tensors]
        reply, package = self._side.shipped(tree, readable)
        return reply | {"facts": facts}, package

    def _request_build(self, kernel: KernelSource) -> Artefact | BuildFailure:
        """Ask the parent to compile: nothing that a worker compiled would be trusted."""
        start = time.perf_counter()
        self._wire.send(module.request(kernel))
        message, _ = self._wire.receive()
        built = module.answer(message["built"])
        self._build_s += time.perf_counter() - start
        if isinstance(built, Artefact):
            self._kernels.append(kernel.name)
        return built


def _count_tasks() -> int:
    """Threads of this process, and its children; threads end while they are counted."""
    return sum(map(_tasks_of, Path("/proc/self/task").iterdir()))


def _tasks_of(thread: Path) -> int:
    try:
        return 1 + len((thread / "children").read_text().split())
    except OSError:  # it has ended, or this optional part of the kernel is missing
        return int(thread.exists())


def _nothing() -> None:
    return


def _flush_streams() -> None:
    """Python's and C's buffers both, so that what was printed is read with this reply."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the module may have closed or replaced them
            stream.flush()
    _libc.fflush(None)
