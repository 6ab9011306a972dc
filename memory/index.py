"""Owns `VectorIndex`: the embedded Chroma index of active experiences, derived from the journal.

One collection per backend and kind, because a filter inside one large collection costs ten times
the query. Only the process that holds the lock file opens Chroma: two writers lose items without an
error. A folder that was not closed cleanly, as after a kill, is made anew from the journal; one
that was closed cleanly and looks different now is damaged and is refused, since a garbled index
file makes Chroma crash the process instead of raising.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from evokernel.errors import StoreError
from evokernel.frozen import Frozen
from evokernel.memory.journal import Vector

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.models.Collection import Collection

BATCH = 1000
"""Items per write; Chroma takes 5461 at most."""

BREADTH = 256
"""`ef_search` of the graph: must exceed the number of results, Chroma's own default is 100."""


class Shift(NamedTuple):
    """One experience that must be in the index, or must not be."""

    id: str
    collection: str
    vector: Vector | None
    """Its embedding; None to take it out."""


class IndexState(Frozen):
    """What the index holds, written beside it."""

    embedder: str
    watermark: int = 0
    """Number of the last event of the journal that it reflects."""
    is_clean: bool = False
    """Whether it was closed properly; the digests hold only then."""
    digests: dict[str, str] = {}
    """Hash of every file."""


class VectorIndex:
    """The index in one folder; does nothing until this process has acquired it."""

    def __init__(self, memory: Path, embedder: str, dimension: int) -> None:
        self.folder = memory / "index"
        self._lock_path = memory / "index.lock"
        self._state_path = memory / "index.json"
        self._embedder = embedder
        self._dimension = dimension
        self._lock: IO[str] | None = None
        self._client: Client | None = None
        self._opened: dict[str, Collection] = {}
        self._watermark = 0

    @property
    def is_open(self) -> bool:
        """Whether this process owns the index and has Chroma open."""
        return self._client is not None

    @property
    def watermark(self) -> int:
        """Number of the last event that the index reflects; 0 where it has to be made anew."""
        if self.is_open:
            return self._watermark
        state = self._state()
        return state.watermark if state and state.is_clean else 0

    @property
    def owner(self) -> str:
        """Process id of whoever owns it now; empty when nobody does."""
        if self._lock:
            return str(os.getpid())
        if not self._lock_path.exists():
            return ""
        if self._acquire():
            self._release()
            return ""
        return self._lock_path.read_text().strip()

    def inspect(self) -> None:
        """Compare the files with what was written last, without opening Chroma.

        Raises:
            StoreError: damaged, or made with another embedder.
        """
        if self._lock or not self._state_path.exists() or not self._acquire():
            return
        try:
            self._check()
        finally:
            self._release()

    def open(self) -> bool:
        """Acquire the index and open Chroma; a torn index is removed first, to be filled anew.

        Returns:
            False where another process owns it.

        Raises:
            StoreError: damaged, or made with another embedder.
        """
        if self.is_open:
            return True
        if not self._acquire():
            return False
        try:
            self._check()
            state = self._state()
            if state is None or not state.is_clean:
                shutil.rmtree(self.folder, ignore_errors=True)
            self._watermark = state.watermark if state and state.is_clean else 0
            self._write_state(is_clean=False)
            with self._explained():
                self._client = _client(self.folder)
                for collection in self._client.list_collections():
                    self._collection(collection.name)
        except BaseException:
            self._release()
            raise
        return True

    def write(self, shifts: Iterable[Shift], upto: int) -> None:
        """Put in and take out; afterwards the index reflects all events up to `upto`."""
        groups: dict[str, list[Shift]] = {}
        for shift in shifts:
            groups.setdefault(shift.collection, []).append(shift)
        with self._explained():
            for name, group in groups.items():
                self._write_group(self._collection(name), group)
        self._watermark = upto

    def search(self, vector: Vector, collections: Sequence[str], k: int) -> list[tuple[str, float]]:
        """The nearest items of several collections with their cosine similarity, best first.

        Approximate: a caller that needs all of `k` compares with what there must be.
        """
        found: list[tuple[str, float]] = []
        with self._explained():
            for name in collections:
                collection = self._opened[name]
                answer = collection.query(
                    query_embeddings=np.asarray([vector], dtype=np.float32),
                    n_results=k,
                    include=["distances"],
                )
                distances = (answer["distances"] or [[]])[0]
                pairs = zip(answer["ids"][0], distances, strict=True)
                found += [(id, 1 - float(distance)) for id, distance in pairs]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]

    @property
    def names(self) -> list[str]:
        """Names of the collections."""
        return list(self._opened)

    def counts(self) -> dict[str, int]:
        """Number of items in each collection."""
        with self._explained():
            return {name: collection.count() for name, collection in self._opened.items()}

    def remove(self) -> None:
        """Delete the index, to be made anew.

        Raises:
            StoreError: another process owns it.
        """
        self.close()
        if not self._acquire():
            raise StoreError(
                f"the index of the memory `{self.folder.parent}` is in use by process "
                f"{self._lock_path.read_text().strip()}: wait until it has ended, then try again"
            )
        shutil.rmtree(self.folder, ignore_errors=True)
        self._state_path.unlink(missing_ok=True)
        self._release()

    def close(self) -> None:
        """Close Chroma, note what its files look like, and let others own them."""
        if self._client is not None:
            with self._explained():
                self._client.close()
            self._client = None
            self._opened.clear()
            self._write_state(is_clean=True)
        self._release()

    def _write_group(self, collection: "Collection", group: Sequence[Shift]) -> None:
        kept = {shift.id: shift.vector for shift in group if shift.vector is not None}
        gone = [shift.id for shift in group if shift.vector is None]
        for ids in _batches(list(kept)):
            collection.upsert(ids=ids, embeddings=np.stack([kept[id] for id in ids]))
        for ids in _batches(gone):
            collection.delete(ids=ids)

    def _collection(self, name: str) -> "Collection":
        if name in self._opened:
            return self._opened[name]
        assert self._client is not None
        made = {"embedder": self._embedder, "dimension": self._dimension}
        collection = self._client.get_or_create_collection(
            name,
            metadata=made,
            embedding_function=None,  # never Chroma's own, which would fetch a model
            configuration={"hnsw": {"space": "cosine", "ef_search": BREADTH}},
        )
        self._compare_embedder(str((collection.metadata or {}).get("embedder")))
        self._opened[name] = collection
        return collection

    def _check(self) -> None:
        state = self._state()
        if state is None:
            return
        self._compare_embedder(state.embedder)
        if state.is_clean and _digests(self.folder) != state.digests:
            raise StoreError(self._damaged("its files are not those that were written last"))

    def _compare_embedder(self, found: str) -> None:
        if found != self._embedder:
            raise StoreError(
                f"the index of the memory `{self.folder.parent}` was made with the embedder "
                f"`{found}`, this EvoKernel uses `{self._embedder}`: `evokernel memory rebuild` "
                "embeds everything anew"
            )

    def _state(self) -> IndexState | None:
        if not self._state_path.exists():
            return None
        try:
            return IndexState.model_validate_json(self._state_path.read_bytes())
        except ValidationError as error:
            raise StoreError(self._damaged("`index.json` cannot be read")) from error

    def _write_state(self, is_clean: bool) -> None:
        state = IndexState(
            embedder=self._embedder,
            watermark=self._watermark,
            is_clean=is_clean,
            digests=_digests(self.folder) if is_clean else {},
        )
        fresh = self._state_path.with_suffix(".json.new")
        try:
            fresh.write_text(state.model_dump_json())
            fresh.replace(self._state_path)
        except OSError as error:
            raise StoreError(self._unwritable(error)) from error

    def _acquire(self) -> bool:
        try:
            lock = self._lock_path.open("a+")
        except OSError as error:
            raise StoreError(self._unwritable(error)) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        return True

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from chromadb.errors import ChromaError

        try:
            yield
        except ChromaError as error:
            raise StoreError(self._damaged(str(error).partition("\n")[0][:200])) from error

    def _unwritable(self, error: OSError) -> str:
        return (
            f"the index of the memory `{self.folder.parent}` cannot be written "
            f"({error.strerror}): make room or change its rights, nothing is lost"
        )

    def _damaged(self, detail: str) -> str:
        return (
            f"the index of the memory `{self.folder.parent}` is damaged ({detail}): nothing is "
            "lost, the journal has everything; `evokernel memory rebuild` makes the index anew"
        )


def _client(folder: Path) -> "Client":
    import chromadb
    from chromadb.api.client import Client
    from chromadb.config import Settings

    client = chromadb.PersistentClient(str(folder), Settings(anonymized_telemetry=False))
    assert isinstance(client, Client)  # the protocol that is promised has no `close`
    return client


def _digests(folder: Path) -> dict[str, str]:
    """Hash of every file below `folder` by its relative name."""
    return {
        str(path.relative_to(folder)): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def _batches(ids: list[str]) -> Iterator[list[Any]]:
    for first in range(0, len(ids), BATCH):
        yield ids[first : first + BATCH]
