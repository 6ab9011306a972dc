"""Owns the parent's end of the way to a worker's device memory: a window, or host memory.

The window is the worker's own: what a candidate writes into it reaches nobody else. Where the
system shares no device memory, tensors go through the host, which is slower and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from evokernel.bench.gpu.parcel import Parcel
from evokernel.bench.gpu.sharing import Refused
from evokernel.bench.gpu.window import Window
from evokernel.bench.messages import Faulted, WorkerSpec
from evokernel.bench.tensors import Package, pack
from evokernel.bench.trees import BadTree
from evokernel.bench.wire import Message
from evokernel.errors import WorkerError

_SLACK_BYTES = 1 << 16
"""Room for the alignment of many small outputs."""


class Gate:
    """One worker's window, made when it is needed and made anew when it is too small.

    Args:
        device: The GPU, as torch names it.
    """

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._window: Window | None = None
        self._is_known = False
        self.refusal = ""
        """Why there is none, in words."""

    def begin(self, ask: Callable[[Message], Message], spec: WorkerSpec) -> None:
        """Make the worker's context.

        Raises:
            WorkerError: It cannot be made.
        """
        try:
            ask({"is_tf32": spec.is_tf32, "device_bytes": spec.device_bytes})
        except Faulted as error:
            fault = error.fault
            text = f"a worker cannot use `{spec.device}`: {fault.reason}\n{fault.log}"
            raise WorkerError(text.strip()) from error

    @contextmanager
    def laid(
        self, args: Sequence[Any] | Package, room: int
    ) -> Iterator[tuple[Message, tuple[int, ...]]]:
        """Arguments where the worker can take them: what to say of them, and files beside it.

        Args:
            args: Arguments of `forward`, or a package of them.
            room: Bytes of outputs, for which the window has to be large enough as well.
        """
        if isinstance(args, Parcel) and self._opened(max(args.bytes, room + _SLACK_BYTES)):
            window = self._window
            assert window is not None
            args.lay_into(window)
            files = () if self._is_known or window.file is None else (window.file,)
            yield {"package": args.message, "window": window.size}, files
            self._is_known = True
            return
        with _hosted(args) as package:
            yield {"package": package.message}, package.files

    def received(self, reply: Message, files: tuple[int, ...], limit: int) -> Package:
        """What the worker sent, on the GPU in memory of this process.

        Raises:
            BadTree, KeyError: It sent something else.
        """
        if reply.get("in_window") is True:
            if self._window is None:
                raise BadTree("tensors in a window that it does not have")
            return Parcel.taken(reply["package"], self._window)
        with Package.receive(reply["package"], files, limit) as package:
            return Parcel.packed(package.value(), self._device)

    def close(self) -> None:
        """Give the window up. Idempotent."""
        if self._window is not None:
            window, self._window = self._window, None
            window.close()

    def _opened(self, size: int) -> bool:
        """Whether there is a window that is large enough."""
        if self._window is not None and self._window.size >= size:
            return True
        if self.refusal:
            return False
        self.close()
        self._is_known = False
        try:
            self._window = Window.made(self._device.index or 0, size)
        except Refused as error:
            self.refusal = str(error)
        return self._window is not None


def _hosted(args: Sequence[Any] | Package) -> Package:
    """In shared memory of the host; a package that is there is opened anew."""
    if isinstance(args, Parcel):
        return args.hosted()
    return pack(args.value() if isinstance(args, Package) else list(args))
