"""Owns the passage of tensors between the parent and one worker; here through shared memory.

`gpu.gate.Gate` has the same methods for device memory.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from evokernel.bench.messages import WorkerSpec
from evokernel.bench.tensors import Package, pack
from evokernel.bench.wire import Message


class Passage(Protocol):
    """The parent's end."""

    def begin(self, ask: Callable[[Message], Message], spec: WorkerSpec) -> None:
        """Have the worker open its device, before anything foreign is in it.

        Args:
            ask: Makes the request with these wishes.
            spec: The worker's.

        Raises:
            WorkerError: It cannot.
        """

    def laid(
        self, args: Sequence[Any] | Package, room: int
    ) -> AbstractContextManager[tuple[Message, tuple[int, ...]]]:
        """Arguments of `forward` where the worker can take them, for as long as the block runs.

        Args:
            args: The arguments, or a package of them.
            room: Bytes of outputs that will come back.

        Returns:
            What to say of them, and files beside it.

        Raises:
            WorkerError: An argument that is neither a dense tensor nor a plain value.
        """

    def received(self, reply: Message, files: tuple[int, ...], limit: int) -> Package:
        """What the worker sent, where outputs are compared.

        Raises:
            BadTree, KeyError: It sent something else, or more than `limit` bytes.
        """

    def close(self) -> None:
        """Give up what is shared. Idempotent."""


class SharedMemory:
    """Sealed memory of the host, a file for each package."""

    def begin(self, ask: Callable[[Message], Message], spec: WorkerSpec) -> None:
        """Nothing: the processor is there."""

    @contextmanager
    def laid(
        self, args: Sequence[Any] | Package, room: int
    ) -> Iterator[tuple[Message, tuple[int, ...]]]:
        """A package is sent as it is; anything else is packed for the time of the block."""
        if isinstance(args, Package):
            yield {"package": args.message}, args.files
            return
        with pack(list(args)) as package:
            yield {"package": package.message}, package.files

    def received(self, reply: Message, files: tuple[int, ...], limit: int) -> Package:
        """In shared memory that the worker cannot change any more."""
        return Package.receive(reply["package"], files, limit)

    def close(self) -> None:
        """Nothing stays shared."""


def to_worker(device: str) -> Passage:
    """The passage to a worker on a device, as torch names it."""
    if device == "cpu":
        return SharedMemory()
    from evokernel.bench.gpu.gate import Gate

    return Gate(device)
