"""Owns `VectorIndex`: the embedded Chroma index of active experiences, derived from the journal.

One collection per backend and kind, because a filter inside one large collection costs ten times
the query. Only the process that holds the lock file opens Chroma: two writers lose items without an
error. A folder that was not closed cleanly, as after a kill, is made anew from the journal; one
that was closed cleanly and looks different now is damaged and is refused, since a garbled index
file makes Chroma crash the process instead of raising.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evokernel.errors import StoreError
from evokernel.memory.events import Vector
from evokernel.memory.index_files import IndexFiles

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


class VectorIndex:
    """The index of one memory; does nothing until this process owns it."""

    def __init__(self, memory: Path, embedder: str, dimension: int) -> None:
        self._files = IndexFiles(memory, embedder)
        self._made_with = {"embedder": embedder, "dimension": dimension}
        self._client: Client | None = None
        self._opened: dict[str, Collection] = {}
        self._watermark = 0
        self.missing = ""
        """Why Chroma cannot be used on this machine; the memory works without."""

    @property
    def is_open(self) -> bool:
        """Whether this process owns the index and has Chroma open."""
        return self._client is not None

    @property
    def watermark(self) -> int:
        """Number of the last event that the index reflects; 0 where it has to be made anew."""
        return self._watermark if self.is_open else self._files.watermark

    @property
    def owner(self) -> str:
        """Process id of whoever owns it now; empty when nobody does."""
        return self._files.owner

    @property
    def names(self) -> list[str]:
        """Names of the collections."""
        return list(self._opened)

    def inspect(self) -> None:
        """Check the files without opening Chroma.

        Raises:
            StoreError: damaged, or made with another embedder.
        """
        self._files.inspect()

    def open(self) -> bool:
        """Acquire the index and open Chroma; a torn index is removed first, to be filled anew.

        Returns:
            False where another process owns it, or where Chroma is missing.

        Raises:
            StoreError: damaged, or made with another embedder.
        """
        if self.is_open:
            return True
        self.missing = _why_missing()
        if self.missing or not self._files.acquire():
            return False
        try:
            self._open()
        except BaseException:
            if self._client is not None:
                self._client.close()
                self._client = None
            self._files.release()
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
                answer = self._opened[name].query(
                    query_embeddings=np.asarray([vector], dtype=np.float32),
                    n_results=k,
                    include=["distances"],
                )
                distances = (answer["distances"] or [[]])[0]
                pairs = zip(answer["ids"][0], distances, strict=True)
                found += [(id, 1 - float(distance)) for id, distance in pairs]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]

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
        if not self._files.acquire():
            raise StoreError(self._files.taken())
        self._files.remove()
        self._files.release()

    def close(self) -> None:
        """Close Chroma, note what its files look like, and let others own them."""
        try:
            if self._client is not None:
                with self._explained():
                    self._client.close()
                self._client = None
                self._opened.clear()
                self._files.write_state(self._watermark, is_clean=True)
        finally:
            self._files.release()

    def _open(self) -> None:
        self._files.check()
        self._watermark = self._files.watermark
        state = self._files.state()
        if state is None or not state.is_clean:
            self._files.remove()
        self._files.write_state(self._watermark, is_clean=False)
        with self._explained():
            self._client = _client(self._files.folder)
            for collection in self._client.list_collections():
                self._collection(collection.name)

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
        collection = self._client.get_or_create_collection(
            name,
            metadata=self._made_with,
            embedding_function=None,  # never Chroma's own, which would fetch a model
            configuration={"hnsw": {"space": "cosine", "ef_search": BREADTH}},
        )
        self._files.compare_embedder(str((collection.metadata or {}).get("embedder")))
        self._opened[name] = collection
        return collection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from chromadb.errors import ChromaError

        try:
            yield
        except ChromaError as error:
            first = str(error).partition("\n")[0][:200]
            raise StoreError(self._files.damaged(first)) from error


def _why_missing() -> str:
    """Why Chroma cannot be imported, e.g. beside an SQLite that is too old for it."""
    try:
        import chromadb  # noqa: F401
    except (ImportError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    return ""


def _client(folder: Path) -> "Client":
    import chromadb
    from chromadb.api.client import Client
    from chromadb.config import Settings

    client = chromadb.PersistentClient(str(folder), Settings(anonymized_telemetry=False))
    assert isinstance(client, Client)  # the protocol that is promised has no `close`
    return client


def _batches(ids: list[str]) -> Iterator[list[Any]]:
    for first in range(0, len(ids), BATCH):
        yield ids[first : first + BATCH]
