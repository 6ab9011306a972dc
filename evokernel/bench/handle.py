"""Owns `Worker`: the typed requests that the parent may make of one worker."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Self, TypeVar

from pydantic import ValidationError

from evokernel.bench.contact import Contact
from evokernel.bench.descendants import descendants
from evokernel.bench.hold import Hold, Unreachable
from evokernel.bench.identity import Anchor, edited
from evokernel.bench.messages import (
    Batch,
    Loaded,
    Outcome,
    Probe,
    Protections,
    Repetition,
    TimePlan,
    Traced,
    Turn,
    Usage,
    Variant,
    WorkerSpec,
)
from evokernel.bench.outcomes import outcome, read_out
from evokernel.bench.passage import to_worker
from evokernel.bench.procfs import forget_peak, usage_of
from evokernel.bench.tensors import Package, pack
from evokernel.bench.trees import BadTree
from evokernel.bench.wire import Message
from evokernel.errors import WorkerError
from evokernel.evaluation import Status
from evokernel.frozen import Frozen

_SLACK_BYTES = 1 << 20
_COMPILES = ("cpp_extension", "torch.compile")
"""Words of a text that may compile in its own process: it gets more time, and nothing else."""
_Record = TypeVar("_Record", bound=Frozen)


class Worker:
    """One fresh process that runs one module; a context manager that kills it and verifies so.

    Every call takes `deadline_s`; None is the spec's `run_s` (plus `build_s` for `load` and `run`
    of the role `compile`). When it passes, the whole worker is killed and `Faulted` raised with
    TIMEOUT. Only the pool makes workers.
    """

    def __init__(self, spec: WorkerSpec, contact: Contact) -> None:
        self.spec = spec
        self._contact = contact
        self._addresses: dict[str, Any] = {}
        self._anchors: list[Anchor] = []
        self._main = next(iter(self.pids), None)
        self.on_end: Callable[[tuple[int, ...]], None] | None = None
        """Told once, when it has been killed, which processes it had."""
        self._passage = to_worker(spec.device)
        self.first_call_s: float | None = None
        """Wall seconds of the first `run` with the way there and back, by the parent's clock."""
        self.hold = Hold(self._main, lambda: self.pids)
        """Stops it, and lets it go on."""

    @property
    def protections(self) -> Protections:
        """Which protections hold for it."""
        return self._contact.protections

    def load(
        self,
        init_args: Sequence[Any],
        init_kwargs: Mapping[str, Any],
        seed: int,
        state: "Mapping[str, Any] | None" = None,
        deadline_s: float | None = None,
    ) -> Loaded:
        """Import the module, seed, construct the class, take over `state`, set dtype and mode.

        `state` is the reference's `state_dict`; it is loaded when names and shapes match.
        Statuses: INVALID_SOURCE (syntax, no class, constructor takes other arguments),
        COMPILE_ERROR, COMPILE_TIMEOUT, RUNTIME_ERROR, and those of a worker that was ended.

        Raises:
            WorkerError: It cannot use the GPU.
        """
        spec = self.spec
        try:
            self._passage.begin(lambda wishes: self._ask("begin", wishes), spec)
        except WorkerError:
            self.kill()
            raise
        if spec.role == "candidate" and not self._anchors:
            self._anchors = [tuple(a) for a in self._ask("anchors", {})["anchors"]]
        message = {
            **{"do": "load", "source": spec.source, "class_name": spec.class_name},
            **{"role": spec.role, "seed": seed, "mode": spec.mode, "dtype": spec.dtype},
        }
        with pack((list(init_args), dict(init_kwargs), state and dict(state))) as package:
            reply = self._send_package("load", message, package, deadline_s)
        loaded = self._parse(Loaded, reply)
        return loaded.model_copy(update={"build_s": self._contact.build_s})

    def put(
        self,
        name: str,
        args: "Sequence[Any] | Package",
        slots: int = 1,
        output_bytes: Sequence[int] = (),
        deadline_s: float | None = None,
    ) -> None:
        """Keep an input set in the worker under `name`, replacing one of the same name.

        Args:
            name: Any text.
            args: Positional arguments of `forward`: nested lists, tuples, dicts of tensors and
                plain values. A `Package` of the list of them may be put into several workers.
            slots: Buffer sets at different addresses, for timing.
            output_bytes: Bytes of each output tensor, so that the first `run` can be poisoned.
            deadline_s: Wall limit, seconds.

        Raises:
            WorkerError: An argument that is neither a dense tensor nor a plain value.
        """
        message = {"do": "put", "name": name, "slots": slots, "output_bytes": list(output_bytes)}
        with self._passage.laid(args, sum(output_bytes)) as (parts, files):
            deadline_s = self._deadline("put", deadline_s)
            reply, _ = self._contact.call("put", {**message, **parts}, files, deadline_s)
        self._addresses[name] = reply.get("addresses")

    def drop(self, name: str) -> None:
        """Free an input set."""
        self._ask("drop", {"name": self._known(name)})
        del self._addresses[name]

    def run(
        self,
        name: str,
        *,
        poison: bool = True,
        instrument: bool = False,
        overwrite_inputs: bool = False,
        hold: bool = False,
        deadline_s: float | None = None,
    ) -> Outcome:
        """One `forward` on a private copy of the put inputs; generators are seeded anew before.

        Args:
            name: A put input set.
            poison: Fill free memory of output size with 0xFF before (NaN in every float type; for
                outputs below 64 KiB 3.4e38), so that elements which are never written show.
            instrument: Log dispatched operators and kernel launches (slower; not for timing).
            overwrite_inputs: Fill the private inputs with 0xFF after the call and before outputs
                are read: an output that is a view of an input, or computed late, shows.
            hold: Keep what it returned, so that `held` can read it again after later calls.
            deadline_s: Wall limit, seconds.
        """
        wishes = {"poison": poison, "instrument": instrument, "overwrite_inputs": overwrite_inputs}
        wishes["hold"] = hold
        began = time.perf_counter()
        found = self._ask_outcome("run", {"name": self._known(name), **wishes}, deadline_s)
        if self.first_call_s is None:
            self.first_call_s = time.perf_counter() - began
        return found

    def held(self, deadline_s: float | None = None) -> Outcome:
        """What the held call returned, as it is now; it is let go."""
        return self._ask_outcome("held", {}, deadline_s)

    def time(
        self, name: str, plan: TimePlan, deadline_s: float | None = None
    ) -> tuple[Repetition, ...]:
        """Timed repetitions, one per variant of the plan."""
        message = {"name": self._known(name), "plan": plan.model_dump()}
        reply = self._ask("time", message, deadline_s)
        found = reply.get("repetitions")
        if not isinstance(found, list) or len(found) != len(plan.variants):
            self._refuse()
        return tuple(self._parse(Repetition, item) for item in found)

    def ready(self, name: str, slot: int, variant: Variant | None = None) -> None:
        """Have a timed call prepared on a slot of an input set.

        With a variant it writes the values itself; else `write` does from here.
        """
        told = None if variant is None else variant.model_dump()
        self._ask("ready", {"name": self._known(name), "slot": slot, "variant": told})

    def write(self, name: str, slot: int, values: Sequence[Any]) -> None:
        """Write 1-D tensors into a slot's buffers, from outside.

        Raises:
            Unreachable: Not permitted here, as a trusted worker shows.
        """
        try:
            slots = self._addresses[self._known(name)]
            addresses = [int(address) for address in slots[slot % len(slots)]]
            for address, flat in zip(addresses, values, strict=True):
                self.hold.write(address, flat.data_ptr(), flat.numel() * flat.itemsize)
        except (TypeError, ValueError, ZeroDivisionError, KeyError):
            self._refuse()
        except Unreachable as error:
            self._hidden(error)

    def go(self, sent: Callable[[], None]) -> Message:
        """The prepared call, timed in the worker; what it told of it.

        Args:
            sent: Called when the request is on its way.
        """
        reply, _ = self._contact.call("go", {"do": "go"}, (), self._deadline("go", None), sent)
        return reply

    def alone(self, name: str, slot: int, variant: Variant, flush_bytes: int) -> Message:
        """A call that it prepares by itself: it writes the values and empties the caches."""
        message = {"name": self._known(name), "slot": slot, "variant": variant.model_dump()}
        return self._ask("go", {**message, "bytes": flush_bytes})

    def seen(self, told: Message) -> Turn:
        """The record of a timed call; the worker is killed where it told none."""
        return self._parse(Turn, told)

    def read(self, turn: Turn) -> Outcome:
        """The output of the turn that has just ended, out of its memory."""
        try:
            return read_out(self.hold, turn, self._limit)
        except Unreachable as error:
            self._hidden(error)
        except BadTree as error:
            self._contact.give_up(Status.CRASHED, f"it told of outputs that cannot be: {error}")

    def edited(self) -> list[str]:
        """Functions of the harness that are not what they were before the module was loaded."""
        try:
            return edited(self.hold, self._anchors)
        except Unreachable as error:
            self._hidden(error)

    def flush(self, size: int) -> None:
        """Have it empty the caches by going through so many bytes."""
        self._ask("flush", {"bytes": size})

    def kept(self, deadline_s: float | None = None) -> Outcome:
        """Outputs of the last timed repetition or batch, for checks chosen after the fact."""
        return self._ask_outcome("kept", {}, deadline_s)

    def batch(self, name: str, calls: int, slot: int = 0, deadline_s: float | None = None) -> Batch:
        """`calls` forwards on a slot's present inputs, timed by the parent around the message."""
        message = {"name": self._known(name), "calls": calls, "slot": slot}
        return self._ask_timed("batch", message, calls, deadline_s)

    def null_batch(self, calls: int, deadline_s: float | None = None) -> Batch:
        """The same with a call that does nothing: what to subtract."""
        return self._ask_timed("null", {"calls": calls}, calls, deadline_s)

    def replay(self, name: str, calls: int, deadline_s: float | None = None) -> Batch | None:
        """The same out of a graph, on a GPU; None where the calls cannot be captured."""
        message = {"do": "replay", "name": self._known(name), "calls": calls, "slot": 0}
        deadline_s = self._deadline("replay", deadline_s)
        start = time.perf_counter()
        reply, _ = self._contact.call("replay", message, (), deadline_s)
        wall_s = time.perf_counter() - start
        return Batch(wall_s=wall_s, calls=calls) if reply.get("way") == "graph" else None

    def probe(self, name: str, calls: int, threads: int, deadline_s: float | None = None) -> Probe:
        """`calls` forwards with so many threads and warm caches, launches of own kernels noted."""
        message = {"name": self._known(name), "calls": calls, "threads": threads}
        reply = self._ask("probe", message, deadline_s)
        told = {part: reply.get(part) for part in ("wall_s", "launched")}
        return self._parse(Probe, {"calls": calls, "threads": threads, **told})

    def trace(self, name: str, deadline_s: float | None = None) -> tuple[Traced, ...]:
        """What the GPU did for one call; nothing where it cannot be traced."""
        told = self._ask("trace", {"name": self._known(name)}, deadline_s).get("events")
        if not isinstance(told, list):
            self._refuse()
        return tuple(self._parse(Traced, item) for item in told)

    def peak_bytes(self, name: str, deadline_s: float | None = None) -> int | None:
        """Extra memory at the peak of one call, as the parent sees it; None if it cannot.

        Free memory is given back before, so that all that the call needs is new. Resolution is a
        huge page (2 MiB). Leaves output memory cold: warm up again before timing.
        """
        self._ask("settle", {"name": self._known(name)}, deadline_s)
        if self.spec.device != "cpu":  # as torch's allocator in the worker tells
            told = self._ask("peak", {"name": name}, deadline_s).get("bytes")
            return told if isinstance(told, int) and told >= 0 else None
        before = self.usage().resident_bytes
        if self._main is None or not forget_peak(self._main):
            return None
        self.batch(name, calls=1, deadline_s=deadline_s)
        return max(self.usage().peak_resident_bytes - before, 0)

    def usage(self) -> Usage:
        """What /proc says of it now, asked without its help; zeros when it has ended."""
        pids = self.pids
        return usage_of(self._main, len(pids)) if self._main in pids else Usage()

    @property
    def pids(self) -> tuple[int, ...]:
        """Its living processes; the reaper is ours and not counted."""
        reaper = None if self._contact.has_ended else self._contact.process.pid
        return tuple(descendants(reaper)) if reaper is not None else ()

    @property
    def log(self) -> str:
        """Tail of its standard streams so far."""
        return self._contact.log

    @property
    def is_alive(self) -> bool:
        """Whether it has not been killed; it may have died meanwhile, which the next call finds."""
        return not self._contact.has_ended

    def kill(self) -> None:
        """Kill it with all descendants, verify that they and the scratch folder are gone.

        Idempotent.

        Raises:
            WorkerError: A process or file survived.
        """
        pids = self.pids if self.on_end else ()
        try:
            self._contact.close()
        finally:
            self._passage.close()
        if self.on_end is not None:
            told, self.on_end = self.on_end, None
            told(pids)

    def __enter__(self) -> Self:
        """Enter a block at whose end it is killed."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Kill it."""
        self.kill()

    def _known(self, name: str) -> str:
        if name not in self._addresses:
            known = ", ".join(f"`{known}`" for known in sorted(self._addresses)) or "none"
            raise WorkerError(f"no input set `{name}` in this worker; it has {known}")
        return name

    def _ask(self, do: str, message: Message, deadline_s: float | None = None) -> Message:
        reply, _ = self._contact.call(do, {"do": do, **message}, (), self._deadline(do, deadline_s))
        return reply

    def _ask_timed(self, do: str, message: Message, calls: int, deadline_s: float | None) -> Batch:
        start = time.perf_counter()
        self._ask(do, message, deadline_s)
        return Batch(wall_s=time.perf_counter() - start, calls=calls)

    def _ask_outcome(self, do: str, message: Message, deadline_s: float | None) -> Outcome:
        deadline_s = self._deadline(do, deadline_s)
        reply, files = self._contact.call(do, {"do": do, **message}, (), deadline_s)
        try:
            with self._passage.received(reply, files, self._limit) as package:
                outputs = package.value()
                return outcome(outputs, package.layouts, reply)
        except (BadTree, KeyError, TypeError, ValueError, AttributeError) as error:
            self._contact.give_up(Status.CRASHED, f"it sent outputs that cannot be read: {error}")

    def _send_package(
        self, do: str, message: Message, package: Package, deadline_s: float | None
    ) -> Message:
        message = {**message, "package": package.message}
        deadline_s = self._deadline(do, deadline_s)
        reply, _ = self._contact.call(do, message, package.files, deadline_s)
        return reply

    def _deadline(self, do: str, deadline_s: float | None) -> float:
        if deadline_s is not None:
            return deadline_s
        # What a candidate compiles itself (`load_inline`, `torch.compile`) takes a minute and more.
        builds = self.spec.role == "compile" or any(w in self.spec.source for w in _COMPILES)
        waits_for_compiler = builds and do in ("load", "run")
        return self.spec.run_s + (self.spec.build_s if waits_for_compiler else 0.0)

    @property
    def _limit(self) -> int:
        return self.spec.memory_bytes + _SLACK_BYTES

    def _parse(self, kind: type[_Record], message: Any) -> _Record:
        """A record of what the worker sent; it is killed where that is none."""
        try:
            return kind.model_validate(message)
        except ValidationError:
            self._refuse()

    def _hidden(self, error: Unreachable) -> NoReturn:
        """Of memory that can be reached in others it is the module's doing if it cannot in this.

        The memory of a process that has ended is gone without anybody's having hidden it.
        """
        self._contact.mourn()
        if self.spec.role != "candidate":
            raise error
        self._contact.give_up(Status.CONTRACT, f"it hid its memory from the harness: {error}")

    def _refuse(self) -> NoReturn:
        self._contact.give_up(Status.CRASHED, "it sent a reply that cannot be read")
