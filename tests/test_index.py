"""The vector index: what it holds, who owns it, how it follows the journal, and its damage."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings

from evokernel.errors import StoreError
from evokernel.memory.embedding import StructuralEmbedder
from evokernel.memory.experience import ExperienceStatus
from evokernel.memory.index import Shift, VectorIndex
from evokernel.memory.store import Memory
from evokernel.memory.upkeep import WORTH_FLUSHING
from tests.memory_samples import config, edit, graph, keep, lesson, query

ROOT = Path(__file__).parent.parent
QUIET = Settings(anonymized_telemetry=False)
NAMES = [f"{number}" for number in range(20)]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("original") / "memory"
    with Memory.open(config(path)) as memory:
        memory.add([lesson(name) for name in NAMES], "old/1", graph())
        keep(memory, edit("waiting"))
        memory.flush()
    return path


@pytest.fixture
def filled(original, tmp_path):
    """A flushed memory of twenty active lessons and one edit in quarantine."""
    return shutil.copytree(original, tmp_path / "memory")


def collections(path: Path) -> dict[str, int]:
    """Number of items per collection, as Chroma itself says."""
    client = chromadb.PersistentClient(str(path / "index"), QUIET)
    found = {collection.name: collection.count() for collection in client.list_collections()}
    client.close()
    return found


def recalled(path: Path, step: str, exact_limit: int = 0, **changes) -> tuple:
    """Pool of a step, searched through Chroma unless there are few enough."""
    with Memory.open(config(path, pool_factor=4), exact_limit=exact_limit) as memory:
        return memory.recall(query(step, **changes)).pool


class TestContent:
    def test_active_ones_only_in_a_collection_per_backend_and_kind(self, filled):
        with Memory.open(config(filled)) as memory:
            keep(memory, lesson("cuda", backend="cuda"))
            memory.flush()
        assert collections(filled) == {"cpp-lesson": 20, "cuda-lesson": 1}

    def test_collections_say_how_they_were_made(self, filled):
        client = chromadb.PersistentClient(str(filled / "index"), QUIET)
        collection = client.get_collection("cpp-lesson", embedding_function=None)
        assert collection.metadata == {"embedder": "structural/1/256", "dimension": 256}
        assert collection.configuration_json["hnsw"]["space"] == "cosine"
        client.close()

    def test_withdrawn_ones_are_taken_out(self, filled):
        with Memory.open(config(filled)) as memory:
            (first, *_) = memory.list(kind="lesson")
            memory.set_status(first.experience.id, ExperienceStatus.TOMBSTONE, "why")
            memory.flush()
        assert collections(filled)["cpp-lesson"] == 19

    def test_it_finds_what_the_exact_search_finds(self, filled):
        exact, indexed = recalled(filled, "1", 100), recalled(filled, "2", 0)
        assert [item.id for item in exact] == [item.id for item in indexed]
        assert len(indexed) == 8
        for one, other in zip(exact, indexed, strict=True):
            assert one.similarity == pytest.approx(other.similarity, abs=1e-5)

    def test_own_quarantine_is_found_beside_it(self, filled):
        pool = recalled(filled, "1", run="old", techniques=("waiting",))
        assert pool[0].kind == "edit"

    def test_what_is_newer_than_the_index_is_found(self, filled):
        with Memory.open(config(filled), exact_limit=0) as memory:
            memory.recall(query("1"))  # opens the index
            (late,) = keep(memory, lesson("late"))
            near = query("2", techniques=("late",))
            assert memory.recall(near).pool[0].id == late

    def test_filters_that_leave_too_few_make_it_look_at_all(self, filled):
        with Memory.open(config(filled)) as memory:
            held = [lesson(f"held{n}", fingerprint="held") for n in range(40)]
            memory.add(held, "old/2", graph())
        holdout = config(filled, holdout=("held",), pool_factor=4)
        with Memory.open(holdout, exact_limit=0) as memory:
            pool = memory.recall(query("1")).pool
        assert len(pool) == 8
        assert not {item.id for item in pool} & {experience.id for experience in held}


class TestFollowing:
    def test_small_changes_wait(self, tmp_path):
        with Memory.open(config(tmp_path)) as memory:
            keep(memory, *(lesson(name) for name in NAMES[: WORTH_FLUSHING - 1]))
        assert not (tmp_path / "index").exists()
        with Memory.open(config(tmp_path)) as memory:
            assert memory.stats().index.behind == WORTH_FLUSHING - 1
            keep(memory, lesson("last"))
        assert (tmp_path / "index").exists()
        with Memory.open(config(tmp_path)) as memory:
            stats = memory.stats()
        assert (stats.index.watermark, stats.index.behind) == (stats.bank_version, 0)

    def test_reading_never_opens_it(self, filled):
        before = {file: file.stat().st_mtime_ns for file in filled.rglob("*") if file.is_file()}
        with Memory.open(config(filled)) as memory:
            memory.list()
            memory.search("softmax")
            memory.stats()
        for file, time in before.items():
            if "journal" not in file.name and "lock" not in file.name:
                assert file.stat().st_mtime_ns == time

    def test_a_kill_while_it_was_open_makes_it_anew(self, filled):
        code = """
import os, signal, sys
from pathlib import Path
from tests.memory_samples import *
memory = Memory.open(config(Path(sys.argv[1])), exact_limit=0)
memory.recall(query("1"))
keep(memory, lesson("late"))
os.kill(os.getpid(), signal.SIGKILL)
"""
        done = subprocess.run([sys.executable, "-c", code, str(filled)], cwd=ROOT, check=False)
        assert done.returncode == -9
        with Memory.open(config(filled)) as memory:
            assert memory.stats().index.behind == 21
            memory.flush()
            assert memory.stats().index.behind == 0
        assert collections(filled)["cpp-lesson"] == 21

    def test_a_lost_item_is_noticed(self, filled):
        index = VectorIndex(filled, "structural/1/256", 256)
        assert index.open()
        lost = lesson("3").id
        index.write([Shift(lost, "cpp-lesson", None)], index.watermark)
        index.close()
        with Memory.open(config(filled)) as memory:
            memory.flush()
        assert collections(filled)["cpp-lesson"] == 20


class TestOwner:
    def test_the_second_searches_exactly(self, filled):
        settings = config(filled, pool_factor=4)
        with (
            Memory.open(settings, exact_limit=0) as one,
            Memory.open(settings, exact_limit=0) as two,
        ):
            first = one.recall(query("1"))
            assert one.stats().index.owner == str(os.getpid())
            second = two.recall(query("2"))
            assert [item.id for item in second.pool] == [item.id for item in first.pool]
            two.flush()  # does nothing: the index has an owner
            with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
                two.rebuild()
        with Memory.open(settings) as memory:
            assert memory.stats().index.owner == ""

    def test_two_processes_that_flush_lose_nothing(self, tmp_path):
        code = """
import sys
from pathlib import Path
from tests.memory_samples import *
for turn in range(2):
    with Memory.open(config(Path(sys.argv[1]))) as memory:
        keep(memory, *(lesson(f"{turn}-{n}", sys.argv[2]) for n in range(16)))
        memory.flush()
"""
        command = [sys.executable, "-c", code, str(tmp_path)]
        started = [subprocess.Popen([*command, run], cwd=ROOT) for run in ("a", "b")]
        assert [process.wait(120) for process in started] == [0, 0]
        with Memory.open(config(tmp_path)) as memory:
            memory.flush()
            assert memory.stats().index.behind == 0
        assert collections(tmp_path)["cpp-lesson"] == 64


def garble(name: str):
    def harm(path: Path) -> None:
        (file,) = (path / "index").rglob(name)
        file.write_bytes(os.urandom(file.stat().st_size))

    return harm


def cut(path: Path) -> None:
    file = path / "index" / "chroma.sqlite3"
    os.truncate(file, file.stat().st_size // 2)


def lose(path: Path) -> None:
    (path / "index" / "chroma.sqlite3").unlink()


def spoil_state(path: Path) -> None:
    (path / "index.json").write_text('{"watermark": "many"}')


class TestDamage:
    @pytest.mark.parametrize(
        "harm", [garble("chroma.sqlite3"), garble("data_level0.bin"), cut, lose, spoil_state]
    )
    def test_it_is_named_and_rebuilt(self, filled, harm):
        before = recalled(filled, "1")
        harm(filled)
        with pytest.raises(StoreError, match="evokernel memory rebuild") as caught:
            Memory.open(config(filled))
        assert f"`{filled}` is damaged" in str(caught.value)
        with Memory.open(config(filled), to_repair=True) as memory:
            made = memory.rebuild()
            assert (made.embedded, made.indexed, made.missing) == (21, 20, "")
        after = recalled(filled, "2")
        assert [item.id for item in after] == [item.id for item in before]

    def test_a_deleted_index_is_made_again(self, filled):
        for file in sorted((filled / "index").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        (filled / "index.json").unlink()
        with Memory.open(config(filled)) as memory:
            memory.flush()
        assert collections(filled)["cpp-lesson"] == 20


class TestEmbedder:
    def test_another_one_is_refused_with_both_names(self, filled):
        other = StructuralEmbedder(dimension=128)
        with pytest.raises(StoreError) as caught:
            Memory.open(config(filled), embedder=other)
        message = str(caught.value)
        assert "`structural/1/256`" in message
        assert "`structural/1/128`" in message
        assert "evokernel memory rebuild" in message

    def test_rebuild_embeds_with_the_new_one(self, filled):
        other = StructuralEmbedder(dimension=128)
        with Memory.open(config(filled), embedder=other, to_repair=True) as memory:
            memory.rebuild()
        with Memory.open(config(filled), embedder=other, exact_limit=0) as memory:
            retrieval = memory.recall(query("1"))
            assert len(memory.get(retrieval.ids[0]).experience.features) == 128
            assert retrieval.pool[0].similarity > 0.8  # the graphs were kept
        with pytest.raises(StoreError, match=r"`structural/1/128`.*`structural/1/256`"):
            Memory.open(config(filled))

    def test_an_index_from_elsewhere_is_refused_too(self, tmp_path):
        index = VectorIndex(tmp_path, "other/7/256", 256)
        assert index.open()
        index.write([Shift("a", "cpp-edit", np.ones(256, dtype=np.float32))], 1)
        index.close()
        with pytest.raises(StoreError, match=r"`other/7/256`.*`structural/1/256`"):
            Memory.open(config(tmp_path))


def test_without_chroma_the_memory_still_works(tmp_path):
    code = """
import sys
from pathlib import Path
sys.modules["chromadb"] = None  # what a failed import looks like
from tests.memory_samples import *
with Memory.open(config(Path(sys.argv[1])), exact_limit=0) as memory:
    keep(memory, *(lesson(str(n)) for n in range(20)))
    assert memory.recall(query("1")).ids
    made = memory.rebuild()
    assert (made.embedded, made.indexed) == (20, 0)
    assert "chromadb" in made.missing
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)


def test_nothing_calls_home(tmp_path):
    """Even where the user's environment asks Chroma to."""
    code = """
import sys
from pathlib import Path
def hear(event, given):
    if event in ("socket.connect", "socket.getaddrinfo"):
        print(event, given, flush=True)
sys.addaudithook(hear)
from tests.memory_samples import *
with Memory.open(config(Path(sys.argv[1])), exact_limit=0) as memory:
    keep(memory, *(lesson(str(n)) for n in range(20)))
    memory.flush()
    assert memory.recall(query("1")).ids
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"ANONYMIZED_TELEMETRY": "True"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
