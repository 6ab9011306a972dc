"""Owns `Drawer`: a run folder that lies in memory, for runs that nobody will look at again."""

from pathlib import Path

from evokernel.errors import RecordError
from evokernel.record.folder import Folder


class Drawer(Folder):
    """The files of one run, kept by this process and gone with it; there is nothing to lock."""

    def __init__(self, name: str) -> None:
        super().__init__(Path(name))
        self._texts: dict[str, str] = {}

    def make(self) -> None:
        """Nothing has to be there first."""

    def lock(self) -> None:
        """Nobody else can reach it."""

    def unlock(self) -> None:
        """Nobody else can reach it."""

    def write(self, name: str, text: str, *, precious: bool = False) -> None:
        """Replace a file."""
        self._texts[name] = text

    def append(self, name: str, line: str, *, precious: bool = False) -> None:
        """Leave a line out: nobody reads the events of such a run."""

    def has(self, name: str) -> bool:
        """Whether there is such a file, with something in it."""
        return bool(self._texts.get(name))

    def numbers(self, name: str) -> list[int]:
        """The numbers that entries of a subfolder have as names, sorted."""
        parts = (path.removeprefix(f"{name}/").split("/")[0] for path in self._inside(name))
        return sorted({int(stem) for part in parts if (stem := part.split(".")[0]).isdigit()})

    def read(self, name: str) -> str:
        """A file's text.

        Raises:
            RecordError: when it is missing.
        """
        if name not in self._texts:
            raise RecordError(f"`{name}` is not among the files of `{self.path}`")
        return self._texts[name]

    def _inside(self, name: str) -> list[str]:
        return [path for path in self._texts if path.startswith(f"{name}/")]
