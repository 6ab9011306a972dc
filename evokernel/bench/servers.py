"""Owns the warm servers of a process: one for each kind of worker, whichever pool asks for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from evokernel.bench.scratch import Quarters
from evokernel.bench.warm import Kind, WarmServer


class WarmServers:
    """Starts each server at the first need; a context manager that ends them all.

    Importing torch takes seconds, so that pools which come one after the other, or live side by
    side, may share them: workers are forked, and what one does never reaches its server. Not for
    use by several threads at once.

    Args:
        base: Folder for scratch folders; None is the system's folder for temporary files.
    """

    def __init__(self, base: Path | None = None) -> None:
        self._quarters = Quarters(base)
        self._servers: dict[Kind, WarmServer] = {}

    @property
    def folder(self) -> Path:
        """Where scratch folders of workers are made; what is left there is removed at the end."""
        return self._quarters.path

    @property
    def pids(self) -> Mapping[Kind, int]:
        """The servers' processes by kind."""
        return {kind: server.pid for kind, server in self._servers.items()}

    def of(self, kind: Kind) -> WarmServer:
        """The server of this kind, which may be importing still; one that ended is replaced."""
        server = self._servers.get(kind)
        if server is None or not server.is_usable:
            if server is not None:
                server.close()
            server = self._servers[kind] = WarmServer(kind, self.folder)
        return server

    def settle(self) -> None:
        """Wait until none of them keeps a core busy any more, which importing does.

        Raises:
            WorkerError: One cannot start.
        """
        for server in self._servers.values():
            if server.is_usable:
                server.await_ready()

    def close(self) -> None:
        """End them, and every worker of theirs. Idempotent.

        Raises:
            WorkerError: A process or a file survived.
        """
        try:
            for server in self._servers.values():
                server.hang_up()  # all of them first, so that they leave side by side
            for server in self._servers.values():
                server.close()
        finally:
            self._servers.clear()
            self._quarters.remove()

    def __enter__(self) -> Self:
        """Enter a block at whose end all servers are ended."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End all servers."""
        self.close()
