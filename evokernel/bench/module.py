"""Owns the untrusted module inside a worker: import, class, construction, faults."""

import inspect
import linecache
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from evokernel.bench.tensors import DTYPES
from evokernel.compilers import Artefact, BuildFailure, KernelSource
from evokernel.compilers.loading import float_state
from evokernel.evaluation import Diagnostic, Status
from evokernel.jit import BuildError, use_broker
from evokernel.program import convert

FILE = "candidate.py"
"""What tracebacks call the module's text, whoever wrote it."""
_NAME = "evokernel_candidate"
_OTHER_NAME = "Model"
_TAIL = 4000  # characters of a traceback that are passed on
_ALLOCATOR = "DefaultCPUAllocator"  # torch's word for a CPU allocation that failed
_NO_DEVICE_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"  # the driver's
_EXTENSION = "Error building extension"  # torch's words for one of `load_inline`
_COMPILER = re.compile(r"^(\S+\.\w+):(\d+):(\d+): (?:fatal )?(error|warning): (.+)$", re.MULTILINE)
_MOST_DIAGNOSTICS = 20
_FOR_GPUS = frozenset({"triton", "cupy", "cuda", "cutlass", "pycuda", "tilelang"})
_NO_GPU = re.compile(
    r"not compiled with CUDA|NVIDIA driver|no CUDA|CUDA driver|CUDA_HOME|active drivers|No HIP GPUs"
    r"|CUDA is not available"
)


_LACKING = "it needs a GPU and its software, which are not here, so that it was not judged: "


class Refusal(Exception):
    """The module is not what it should be; carries the status and what to show."""

    def __init__(
        self, status: Status, reason: str, diagnostics: tuple[Diagnostic, ...] = ()
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.diagnostics = diagnostics


class Built:
    """The module as `torch.nn.Module`, ready to be called, and how long it took."""

    def __init__(self, model: Any, state: str, import_s: float, construct_s: float) -> None:
        self.model = model
        self.call = model
        self.state = state
        self.import_s = import_s
        self.construct_s = construct_s


def build(
    source: str,
    class_name: str,
    arguments: tuple[Sequence[Any], Mapping[str, Any]],
    state: Mapping[str, torch.Tensor] | None,
    seed: int,
    mode: str = "eval",
    dtype: str | None = None,
    device: str = "cpu",
) -> Built:
    """Import the text, construct its class after seeding, convert it, take over state and mode.

    As in KernelBench it is constructed on the processor, and then moved.

    Raises:
        Refusal: It is no module with such a class that takes these arguments.
        Exception: Whatever the text itself raises.
    """
    start = time.perf_counter()
    made = _chosen(_import(source), class_name)
    imported = time.perf_counter()
    if not isinstance(made, type) or not issubclass(made, torch.nn.Module):
        what = "no class" if made is None else "no `torch.nn.Module`"
        raise Refusal(Status.INVALID_SOURCE, f"{what} `{class_name}` in the module")
    _check_signature(made, arguments)
    set_seed(seed)
    model = made(*arguments[0], **arguments[1])
    if dtype is not None:
        convert(model, DTYPES[dtype])
    origin = "absent" if state is None else _take_over(model, state)
    if device != "cpu":
        from evokernel.bench.gpu import placing

        placing.move(model, device)
    model.train(mode == "train")
    return Built(model, origin, imported - start, time.perf_counter() - imported)


def _chosen(module: ModuleType, class_name: str) -> Any:
    """The class that is asked for; `Model` where a candidate calls its own so."""
    made = getattr(module, class_name, None)
    return getattr(module, _OTHER_NAME, None) if made is None else made


def set_seed(seed: int) -> None:
    """Seed every generator that a module may use."""
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def denormals_kept() -> bool:
    """Whether this process computes with denormal numbers."""
    return all(float_state()[:2])


def describe(error: BaseException) -> tuple[Status, str, tuple[Diagnostic, ...], str]:
    """What to report of an exception: status, reason, diagnostics, traceback from the module on."""
    log = _traceback(error)
    if isinstance(error, Refusal):
        return error.status, error.reason, error.diagnostics, ""
    if isinstance(error, BuildError):
        status = Status.COMPILE_TIMEOUT if error.timed_out else Status.COMPILE_ERROR
        return status, f"`{error.name}` does not build", error.diagnostics, log
    said = _said(error)
    if isinstance(error, RuntimeError) and said.startswith(_EXTENSION):
        return _extension(said)
    text = f"{_missing(error, said)}{type(error).__name__}: {said}"[:500]
    if _has_gpu():  # what follows is torch's advice on how to debug
        text = text.partition("\n")[0]
    if _is_out_of_memory(error):
        return Status.OUT_OF_MEMORY, text, _position(error, text), log
    return Status.RUNTIME_ERROR, text, _position(error, text), log


def _extension(text: str) -> tuple[Status, str, tuple[Diagnostic, ...], str]:
    """An extension that the module builds itself does not build."""
    found = tuple(
        Diagnostic(
            severity="error" if kind == "error" else "warning",
            message=message,
            file=Path(file).name,
            line=int(line),
            column=int(column),
        )
        for file, line, column, kind, message in _COMPILER.findall(text)[:_MOST_DIAGNOSTICS]
    )
    reason = text.partition("\n")[0].partition(":")[0][:200]
    return Status.COMPILE_ERROR, f"{reason}: it does not build", found, text[-_TAIL:]


def _said(error: BaseException) -> str:
    """What an exception says; it may be of the module's own making, and fail at that."""
    try:
        return str(error)
    except BaseException as inner:
        return f"(what it says cannot be told: {type(inner).__name__})"


def _missing(error: BaseException, said: str) -> str:
    """What this machine lacks, which is no fault of the module; empty where that is nothing."""
    if _has_gpu():
        return ""
    is_absent = isinstance(error, ModuleNotFoundError)
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if (is_absent and package in _FOR_GPUS) or _NO_GPU.search(said):
        return _LACKING
    return ""


def _has_gpu() -> bool:
    """Whether this process has opened one."""
    is_initialized: Callable[[], bool] = torch.cuda.is_initialized
    return is_initialized()


def listen_to(broker: Any) -> None:
    """Have every kernel built by `broker`: KernelSource -> Artefact | BuildFailure."""
    use_broker(broker)


def answer(message: Mapping[str, Any]) -> Artefact | BuildFailure:
    """The parent's answer to a request to build."""
    kind = Artefact if "path" in message else BuildFailure
    return kind.model_validate(message)


def request(kernel: KernelSource) -> dict[str, Any]:
    """A request to build, as a message."""
    return {"build": kernel.model_dump()}


def _import(source: str) -> ModuleType:
    lines = source.splitlines(keepends=True)
    linecache.cache[FILE] = (len(source), None, lines, FILE)
    # For tools that look for the file, e.g. `inspect`.
    Path(FILE).write_text(source, encoding="utf-8", errors="replace")
    try:
        code = compile(source, FILE, "exec")
    except (SyntaxError, ValueError) as error:
        raise _syntax_refusal(error) from error
    except (RecursionError, MemoryError) as error:  # the parser's own stack
        reason = "not Python that can be compiled: it is nested too deeply"
        raise Refusal(Status.INVALID_SOURCE, reason) from error
    module = ModuleType(_NAME)
    module.__file__ = FILE
    sys.modules[_NAME] = module
    exec(code, module.__dict__)
    return module


def _syntax_refusal(error: SyntaxError | ValueError) -> Refusal:
    found = Diagnostic(severity="error", message=str(error), file=FILE)
    if isinstance(error, SyntaxError):
        place = {"line": error.lineno, "column": error.offset, "excerpt": error.text}
        found = found.model_copy(update={"message": error.msg, **place})
    return Refusal(Status.INVALID_SOURCE, f"not Python: {error}", (found,))


def _check_signature(made: type, arguments: tuple[Sequence[Any], Mapping[str, Any]]) -> None:
    try:
        inspect.signature(made).bind(*arguments[0], **arguments[1])
    except TypeError as error:
        reason = f"the constructor of `{made.__name__}` does not take the task's arguments: {error}"
        raise Refusal(Status.INVALID_SOURCE, reason) from error


def _take_over(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> str:
    own = model.state_dict()
    shapes = {name: tensor.shape for name, tensor in own.items()}
    if shapes != {name: tensor.shape for name, tensor in state.items()}:
        return "seeded"
    model.load_state_dict(dict(state))
    return "loaded"


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said, names = _said(error), {kind.__name__ for kind in type(error).__mro__}
    if "CUDADriverError" in names or "CUDARuntimeError" in names:  # CuPy's, for the harness's own
        return _NO_DEVICE_MEMORY in said
    return isinstance(error, RuntimeError) and (_ALLOCATOR in said or _NO_DEVICE_MEMORY in said)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames from the module's first one on; those before are ours."""
    frames = list(traceback.extract_tb(error.__traceback__))
    first = next((i for i, frame in enumerate(frames) if frame.filename == FILE), 0)
    return frames[first:]


def _traceback(error: BaseException) -> str:
    head = "Traceback (most recent call last):\n"
    body = traceback.format_list(_frames(error)) + traceback.format_exception_only(error)
    return (head + "".join(body))[-_TAIL:]


def _position(error: BaseException, text: str) -> tuple[Diagnostic, ...]:
    inside = [frame for frame in _frames(error) if frame.filename == FILE]
    if not inside:
        return (Diagnostic(severity="error", message=text),)
    last = inside[-1]
    return (
        Diagnostic(
            severity="error", message=text, file=FILE, line=last.lineno, excerpt=last.line or None
        ),
    )
