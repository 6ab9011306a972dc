"""Owns the harness's own line to the CUDA driver: events, streams, graphs, limits, by `ctypes`.

Neither torch nor CuPy is asked for what takes the time: what a candidate changes in them changes
nothing here, and every version of both has the same driver below it. The driver speaks to the
context that is current in the calling thread, which is torch's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_ulonglong, c_void_p
from typing import Any

from evokernel.errors import DeviceMissing

LIBRARY = "libcuda.so.1"
EXTERNAL = 1
"""CU_EVENT_RECORD_EXTERNAL: within a capture, a node of the graph that records the event."""
_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: calls that have nothing to do with the capture stay allowed."""
_PERSISTING_L2 = 6
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE."""
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_int,),
    "cuDriverGetVersion": (c_void_p,),
    "cuGetErrorString": (c_int, c_void_p),
    "cuCtxGetCurrent": (c_void_p,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuCtxResetPersistingL2Cache": (),
    "cuCtxGetLimit": (c_void_p, c_int),
    "cuCtxSetLimit": (c_int, c_size_t),
    "cuEventCreate": (c_void_p, c_int),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventRecordWithFlags": (c_void_p, c_void_p, c_int),
    "cuEventElapsedTime": (c_void_p, c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuStreamCreate": (c_void_p, c_int),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, c_void_p),
    "cuGraphInstantiateWithFlags": (c_void_p, c_void_p, c_ulonglong),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
}
_LATER: dict[str, tuple[Any, ...]] = {"cuCtxRecordEvent": (c_void_p, c_void_p)}
"""What drivers before CUDA 12.5 lack."""


class DriverError(RuntimeError):
    """The driver refused a call, or tells what an earlier kernel did; `code` is its number."""

    def __init__(self, code: int, name: str, text: str) -> None:
        super().__init__(f"CUDA error: {text} (`{name}` answered {code})")
        self.code = code


class Driver:
    """The driver's functions; handles are plain numbers.

    Raises:
        DeviceMissing: The driver's library is not here, or is too old for graphs.
    """

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(LIBRARY)
            self._functions = {
                name: _function(library, name, types) for name, types in _SIGNATURES.items()
            }
        except (OSError, AttributeError) as error:
            raise DeviceMissing(
                f"the NVIDIA driver's library `{LIBRARY}` cannot be used ({error}); install the "
                "driver (R515 or newer), or measure kernels in C++ (`--backend cpp`)"
            ) from error
        for name, types in _LATER.items():
            if hasattr(library, name):
                self._functions[name] = _function(library, name, types)
        self._ask("cuInit", 0)

    @property
    def version(self) -> tuple[int, int]:
        """The CUDA version that it knows, e.g. (13, 0)."""
        number = c_int()
        self._ask("cuDriverGetVersion", byref(number))
        return number.value // 1000, number.value % 1000 // 10

    @property
    def context(self) -> int:
        """The context that is current in this thread; 0 is none."""
        return self._made("cuCtxGetCurrent")

    def enter(self, context: int) -> None:
        """Make a context the current one of this thread."""
        self._ask("cuCtxSetCurrent", context)

    def synchronize(self) -> None:
        """Wait until everything on every stream of the current context is done.

        Raises:
            DriverError: A kernel failed.
        """
        self._ask("cuCtxSynchronize")

    def forget_persisting(self) -> None:
        """Let no line of the L2 cache outlive others any more."""
        self._ask("cuCtxResetPersistingL2Cache")

    def forbid_persisting(self) -> None:
        """Set nothing of the L2 cache aside for lines that outlive others, until somebody does."""
        self._ask("cuCtxSetLimit", _PERSISTING_L2, 0)

    @property
    def persisting_bytes(self) -> int:
        """How much of the L2 cache is set aside for lines that outlive others."""
        size = c_size_t()
        self._ask("cuCtxGetLimit", byref(size), _PERSISTING_L2)
        return size.value

    def event(self) -> int:
        """A new event that takes the time."""
        return self._made("cuEventCreate", 0)

    def record(self, event: int, stream: int, flags: int = 0) -> None:
        """Have an event recorded when a stream comes to it."""
        if flags:
            self._ask("cuEventRecordWithFlags", event, stream, flags)
        else:
            self._ask("cuEventRecord", event, stream)

    @property
    def sees_all_streams(self) -> bool:
        """Whether an event can stand for all streams of a context (CUDA 12.5 and newer)."""
        return "cuCtxRecordEvent" in self._functions

    def record_all(self, event: int, context: int) -> None:
        """Have an event recorded when all that any stream of a context has to do now is done."""
        self._ask("cuCtxRecordEvent", context, event)

    def elapsed_ns(self, start: int, end: int) -> int:
        """Device time between two recorded events, nanoseconds."""
        found = c_float()
        self._ask("cuEventElapsedTime", byref(found), start, end)
        return round(found.value * 1e6)

    def wait(self, event: int) -> None:
        """Wait until an event has been recorded."""
        self._ask("cuEventSynchronize", event)

    def stream(self) -> int:
        """A new stream that waits for the legacy default stream, and it for this one.

        So whoever launches there while this one is captured gets an error instead of a graph in
        which the launch is missing. Streams of torch's pool do not wait.
        """
        return self._made("cuStreamCreate", 0)

    def captured(self, stream: int, work: Callable[[], None]) -> int:
        """What `work` launches on a stream, as a graph that can be launched; nothing runs yet.

        Raises:
            DriverError: It cannot be captured.
        """
        self._ask("cuStreamBeginCapture_v2", stream, _RELAXED)
        graph = c_void_p()
        try:
            work()
        except BaseException:
            self._functions["cuStreamEndCapture"](stream, byref(graph))
            self._drop(graph)
            raise
        self._ask("cuStreamEndCapture", stream, byref(graph))
        try:
            return self._made("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            self._drop(graph)

    def launch(self, graph: int, stream: int) -> None:
        """Launch a graph on a stream."""
        self._ask("cuGraphLaunch", graph, stream)

    def drop(self, graph: int) -> None:
        """Give up a graph that has run."""
        self._ask("cuGraphExecDestroy", graph)

    def _drop(self, graph: c_void_p) -> None:
        if graph.value:
            self._ask("cuGraphDestroy", graph)

    def _made(self, name: str, *arguments: Any) -> int:
        handle = c_void_p()
        self._ask(name, byref(handle), *arguments)
        return handle.value or 0

    def _ask(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code:
            raise DriverError(code, name, self._text(code))

    def _text(self, code: int) -> str:
        text = c_char_p()
        self._functions["cuGetErrorString"](code, byref(text))
        return (text.value or b"unknown error").decode()


def _function(library: ctypes.CDLL, name: str, types: tuple[Any, ...]) -> Callable[..., int]:
    function: Any = getattr(library, name)
    function.argtypes, function.restype = types, c_int
    called: Callable[..., int] = function
    return called
