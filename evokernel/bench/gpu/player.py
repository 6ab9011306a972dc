"""Owns what runs inside a replay: the process that calls a candidate once more, under some tool.

It waits for a job, gives up its rights, loads the candidate, says that it is ready, and makes the
calls when it is told to, so that only these need the device for themselves. Tools that look into
it have begun before: their threads and connections keep the rights that the candidate never has.
"""

import glob
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.evaluation import Diagnostic
from evokernel.frozen import Frozen

ORDERS, ANSWERS = "orders", "answers"
"""Pipes in the folder of a replay: what it is told, and what it says; a line each."""
TRACE = "trace.json"
"""Where it leaves a trace in Chrome's format."""
WARM_UP = 3
TRACE_S = 0.02
"""Seconds of calls back to back that are timed."""
MOST_CALLS, MOST_TRACED = 512, 16


class Bundle(Frozen):
    """A package of tensors that another process holds."""

    message: dict[str, Any]
    """As `tensors.Package.message`."""
    file: str = ""
    """Where its memory can be opened; empty where it has none."""


class Job(Frozen):
    """What to replay."""

    source: str
    """Text of the candidate."""
    mode: str = "eval"
    dtype: str | None = None
    """Floating type that the module is converted to; None keeps it."""
    seed: int = 0
    """Of its weights."""
    device: int = 0
    """Number of the GPU."""
    is_tf32: bool = False
    """Whether the library may compute products of float32 with TF32."""
    making: Bundle
    """Arguments of the constructor, by place and by name, and the weights."""
    inputs: tuple[Bundle, ...]
    """Arguments of `forward`, one list for each call."""
    kernels: tuple[tuple[KernelSource, Artefact], ...] = ()
    """What was built for it earlier; nothing else is."""
    readable: tuple[str, ...] = ()
    """Files and folders that it needs beside the system's."""
    is_fenced: bool = True
    """Whether it gives up its rights before the candidate is loaded."""


class Answer(Frozen):
    """What came of the calls."""

    calls: int = Field(default=1, ge=1)
    call_s: float = Field(default=0.0, ge=0)
    """Wall seconds of a call back to back; 0 where none was timed."""
    name: str = ""
    """What the device calls itself."""
    capability: tuple[int, int] = (0, 0)
    multiprocessors: int = 0
    note: str = ""
    """What could not be seen, and why."""


def main() -> None:
    """Replay what the folder in the first argument is told, in the manner of the second."""
    from evokernel.confinement import kernel

    kernel.set_death_signal(signal.SIGKILL)
    folder, manner = Path(sys.argv[1]), _MANNERS[sys.argv[2]]
    import torch

    torch.set_grad_enabled(False)
    with (folder / ORDERS).open() as orders, (folder / ANSWERS).open("w", buffering=1) as answers:
        line = orders.readline()
        if not line:  # nobody wants anything any more
            return
        job = Job.model_validate_json(line)
        try:
            calls = _prepared(job, folder)
            print(json.dumps({"ready": True}), file=answers)
            if not orders.readline():
                return
            answer = manner(calls, folder)
            told = answer.model_copy(update=_device(job.device)).model_dump()
            print(json.dumps({"done": told}), file=answers)
        except Exception as error:  # whatever the candidate raises is told, and decides nothing
            text = f"{type(error).__name__}: {error}"[:500]
            print(json.dumps({"failed": text}), file=answers)


Calls = list[Callable[[], Any]]


def _prepared(job: Job, folder: Path) -> Calls:
    """The candidate's calls on the job's inputs, everything loaded."""
    import torch

    from evokernel.bench import module
    from evokernel.bench.gpu import placing

    if not torch.cuda.is_available():
        raise RuntimeError("torch can use no CUDA device here")
    torch.cuda.set_device(job.device)
    torch.zeros(1, device="cuda").add_(1)  # the context, and what tools do at the first launch
    torch.cuda.synchronize()
    placing.allow_tf32(job.is_tf32)
    making, *inputs = [_opened(bundle) for bundle in (job.making, *job.inputs)]
    if job.is_fenced:
        _give_up_rights(job, folder)
    module.listen_to(_broker(job))
    args, kwargs, state = making
    built = module.build(
        job.source, "ModelNew", (args, kwargs), state, job.seed, mode=job.mode, dtype=job.dtype
    )
    placing.move(built.model, "cuda")
    return [partial(built.model, *placing.to_device(arguments, "cuda")) for arguments in inputs]


def _opened(bundle: Bundle) -> Any:
    from evokernel.bench.tensors import Package

    files = (os.open(bundle.file, os.O_RDONLY),) if bundle.file else ()
    with Package.receive(bundle.message, files, sys.maxsize) as package:
        return package.value()


def _give_up_rights(job: Job, folder: Path) -> None:
    from evokernel.bench.entry import package_folder
    from evokernel.bench.sandbox import readable_paths
    from evokernel.bench.server import references
    from evokernel.confinement.launch import Terms, put_up

    devices = (*glob.glob("/dev/nvidia*"), "/dev/shm")  # noqa: PTH207
    built = (artefact.path for _, artefact in job.kernels)
    libraries = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    places = (*readable_paths(package_folder()), *job.readable, *built, *libraries)
    put_up(
        Terms(
            readable=("/proc", "/sys", "/etc/alternatives", *places),
            writable=(str(folder), *devices),
            hidden=tuple(references()),
        )
    )


def _broker(job: Job) -> Callable[[KernelSource], Artefact | BuildFailure]:
    """Answers with what was built for the candidate before."""
    known = {(kernel.source, kernel.flags): artefact for kernel, artefact in job.kernels}

    def build(kernel: KernelSource) -> Artefact | BuildFailure:
        if artefact := known.get((kernel.source, kernel.flags)):
            return artefact
        text = "it asks for another kernel than when it was judged"
        fault = Diagnostic(severity="error", message=text, file=kernel.name)
        return BuildFailure(key="", diagnostics=(fault,))

    return build


def _device(index: int) -> Mapping[str, Any]:
    import torch

    known = torch.cuda.get_device_properties(index)
    return {
        "name": known.name,
        "capability": (known.major, known.minor),
        "multiprocessors": known.multi_processor_count,
    }


def _once(calls: Calls, folder: Path) -> Answer:
    """A first call by itself, then one that Nsight Compute looks at."""
    import torch

    for call in calls:
        call()
    torch.cuda.synchronize()
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(runtime.cudaProfilerStart())
    for call in calls:
        call()
    torch.cuda.synchronize()
    torch.cuda.check_error(runtime.cudaProfilerStop())
    return Answer(calls=len(calls))


def _each(calls: Calls, folder: Path) -> Answer:
    """Every call once."""
    import torch

    for call in calls:
        call()
        torch.cuda.synchronize()
    return Answer(calls=len(calls))


def _traced(calls: Calls, folder: Path) -> Answer:
    """Calls back to back against the clock, then some with a record of what the device did."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    call = calls[0]
    _timed(call, WARM_UP)
    number = max(1, min(MOST_CALLS, int(TRACE_S / max(_timed(call, 1), 1e-6))))
    seconds = min(_timed(call, number) for _ in range(WARM_UP)) / number
    few = min(number, MOST_TRACED)
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(few):
                call()
            torch.cuda.synchronize()
        seen.export_chrome_trace(str(folder / TRACE))
    except RuntimeError as error:
        return Answer(calls=few, call_s=seconds, note=f"no record of activity: {error}"[:300])
    return Answer(calls=few, call_s=seconds)


def _timed(call: Callable[[], Any], number: int) -> float:
    """Wall seconds of some calls and the wait for them."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(number):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


_MANNERS: dict[str, Callable[[Calls, Path], Answer]] = {
    "once": _once,
    "each": _each,
    "traced": _traced,
}
