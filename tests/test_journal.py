"""The journal: several processes, kills, damage, and places that cannot be written."""

import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from evokernel.attempt import Stage
from evokernel.errors import StoreError
from evokernel.memory.database import FILE, Database
from evokernel.memory.store import Memory
from tests.memory_samples import GOOD, config, edit, graph, keep, lesson, query

ROOT = Path(__file__).parent.parent


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run code in a process of its own, with the samples at hand."""
    head = "import os, sys\nfrom pathlib import Path\nfrom tests.memory_samples import *\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


WORK = """
path, run, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Memory.open(config(path)) as memory:
    for number in range(steps):
        keep(memory, lesson(f"{number}", run))
        memory.recall(query(f"{number}", run=run))
        memory.reinforce(f"{run}/{number}", Stage.REFINE, GOOD)
        memory.record_start(run, f"{run}/{number}", f"sha-{number}", 1.0)
"""


class TestSeveralProcesses:
    def test_nothing_is_lost(self, tmp_path):
        """All begin with no memory there, and so race to make it."""
        for process in [start(WORK, tmp_path / "m", run, 25) for run in ("a", "b", "c")]:
            finish(process)
        with Memory.open(config(tmp_path / "m"), create=False) as memory:
            entries = memory.list()
            assert len(entries) == 75
            assert all(len(memory.list(run=run)) == 25 for run in "abc")
            assert [len(memory.start_points(run)) for run in "abc"] == [25, 25, 25]
            refine = memory.stats().stages[1]
            assert (refine.retrievals, refine.rewards) == (75, 75)
            shown = sum(memory.value(entry.experience.id, Stage.REFINE).visits for entry in entries)
            assert shown == refine.shown
            assert memory.refit().changes == ()

    def test_the_same_step_twice_at_once_counts_once(self, tmp_path):
        for process in [start(WORK, tmp_path / "m", "same", 12) for _ in range(2)]:
            finish(process)
        with Memory.open(config(tmp_path / "m"), create=False) as memory:
            refine = memory.stats().stages[1]
            assert (refine.retrievals, refine.rewards, len(memory.list())) == (12, 12, 12)

    def test_a_killed_process_loses_nothing_it_was_told_is_kept(self, tmp_path):
        code = """
        import signal
        memory = Memory.open(config(Path(sys.argv[1])))
        for number in range(20):
            keep(memory, lesson(f"{number}"))
            memory.recall(query(f"{number}"))
            memory.reinforce(f"new/{number}", Stage.REFINE, GOOD)
        os.kill(os.getpid(), signal.SIGKILL)
        """
        process = start(code, tmp_path)
        process.communicate(timeout=120)
        assert process.returncode == -9
        with Memory.open(config(tmp_path), create=False) as memory:
            assert len(memory.list()) == 20
            assert memory.stats().stages[1].rewards == 20
            assert not memory.reinforce("new/19", Stage.REFINE, GOOD)
            stats = memory.stats()
            assert (stats.index.watermark, stats.index.behind) == (0, 20)
            memory.flush()
            stats = memory.stats()
            assert (stats.index.watermark, stats.index.behind) == (stats.bank_version, 0)

    def test_a_lock_that_stays_is_named(self, tmp_path):
        Memory.open(config(tmp_path)).close()
        other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        database = Database.open(tmp_path, busy_s=0.1)
        with pytest.raises(StoreError, match=r"locked by another process"), database.write():
            pass
        other.close()
        with database.write():
            pass  # and it is usable again
        database.close()


def filled(path: Path) -> Path:
    """A memory with something in it; returns its journal."""
    with Memory.open(config(path)) as memory:
        keep(memory, *(lesson(f"{number}") for number in range(5)))
    return path / FILE


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def scramble(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xa5" * (file.stat().st_size - 4096))


def behead(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(b"\0" * 100)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def make_text(file: Path) -> None:
    file.write_text("these are my notes, not a database")


def drop_table(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE meta")
    connection.close()


class TestDamage:
    @pytest.mark.parametrize("harm", [truncate, scramble, behead, empty, make_text, drop_table])
    def test_it_is_refused_and_left_as_it_is(self, tmp_path, harm):
        file = filled(tmp_path)
        harm(file)
        before = file.read_bytes()
        with pytest.raises(StoreError) as caught:
            Memory.open(config(tmp_path))
        message = str(caught.value)
        assert f"`{file}` is damaged" in message
        assert ".recover" in message
        assert "--memory" in message
        assert file.read_bytes() == before

    def test_tables_of_another_version(self, tmp_path):
        file = filled(tmp_path)
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
        connection.close()
        with pytest.raises(StoreError, match="version `99`, this EvoKernel reads version `3`"):
            Memory.open(config(tmp_path))

    def test_an_older_version_is_brought_up_to_this_one(self, tmp_path):
        """Version 1 had every text in its experience, and knew no changes by hand."""
        file = filled(tmp_path)
        source = "an old source, " * 50
        with sqlite3.connect(file) as connection:
            for table in ("texts", "revisions", "queries"):
                connection.execute(f"DROP TABLE {table}")
            connection.execute("UPDATE meta SET value = '1' WHERE name = 'schema'")
            (body,) = connection.execute("SELECT body FROM experiences WHERE seq = 1").fetchone()
            old = body.replace("source of 0", source)
            connection.execute("UPDATE experiences SET body = ? WHERE seq = 1", (old,))
        connection.close()
        with Memory.open(config(tmp_path)) as memory:
            keep(memory, lesson("new", payload={"source": "a new source, " * 50}))
            sources = [entry.experience.payload["source"] for entry in memory.list()]
            assert sources[0] == "a new source, " * 50
            assert sources[-1] == source
            memory.recall(query("1"))
            assert memory.explain("new/1").asked is not None

    def test_a_file_that_breaks_while_it_is_open(self, tmp_path):
        with Memory.open(config(tmp_path)) as memory:  # larger than what SQLite keeps at hand
            for number in range(40):
                keep(memory, lesson(f"{number}", payload={"source": os.urandom(50_000).hex()}))
        with Memory.open(config(tmp_path)) as memory:
            scramble(tmp_path / FILE)
            with pytest.raises(StoreError, match="damaged"):
                memory.list()


class TestPlaces:
    def test_none_is_made_unless_wanted(self, tmp_path):
        with pytest.raises(StoreError, match=r"no memory at .*evokernel run"):
            Memory.open(config(tmp_path / "typo"), create=False)
        assert not (tmp_path / "typo").exists()

    def test_a_file_in_the_way(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError, match=r"cannot be opened for writing"):
            Memory.open(config(tmp_path / "file" / "memory"))

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_may_not_be_written(self, tmp_path):
        tmp_path.chmod(0o500)
        with pytest.raises(StoreError, match=r"cannot be opened for writing"):
            Memory.open(config(tmp_path / "memory"))

    def test_a_full_disk_is_named_and_what_was_saved_stays(self, tmp_path):
        code = """
        import resource
        from evokernel.errors import StoreError
        path = Path(sys.argv[1])
        with Memory.open(config(path)) as memory:
            keep(memory, lesson("before"))
            room = sum(file.stat().st_size for file in path.iterdir())
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            try:
                for number in range(500):
                    keep(memory, lesson(f"{number}", payload={"source": os.urandom(9000).hex()}))
            except StoreError as error:
                print(error)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            keep(memory, lesson("after"))
        """
        said = finish(start(code, tmp_path))
        assert str(tmp_path / FILE) in said
        assert "disk is full" in said
        with Memory.open(config(tmp_path)) as memory:
            names = {entry.experience.techniques[0] for entry in memory.list()}
            assert {"before", "after"} <= names

    def test_a_fresh_memory_is_complete_or_absent(self, tmp_path):
        Memory.open(config(tmp_path)).close()
        assert {file.name for file in tmp_path.iterdir()} == {FILE}


class TestTransactions:
    def test_what_is_written_together_is_kept_whole_or_not_at_all(self, tmp_path):
        with Memory.open(config(tmp_path)) as memory:
            with suppress(RuntimeError), memory.together():
                keep(memory, lesson("A"))
                memory.record_start("r", "r/1", "sha", 1.0)
                raise RuntimeError
            assert memory.list() == ()
            assert memory.start_points("r") == ()
            with memory.together():
                keep(memory, lesson("A"))
                memory.record_start("r", "r/1", "sha", 1.0)
            assert len(memory.list()) == 1
            assert len(memory.start_points("r")) == 1

    def test_an_interrupt_that_tears_a_transaction_does_not_spoil_the_next(self, tmp_path):
        Memory.open(config(tmp_path)).close()
        database = Database.open(tmp_path)
        torn = database.write()
        journal = torn.__enter__()
        journal.driver.execute("INSERT INTO meta VALUES ('torn', 'x')")
        database.reset()
        with database.write() as journal:
            journal.driver.execute("INSERT INTO meta VALUES ('whole', 'x')")
        with database.read() as journal:
            kept = {name for (name,) in journal.driver.execute("SELECT name FROM meta")}
        database.close()
        assert "whole" in kept
        assert "torn" not in kept

    def test_an_interrupt_anywhere_leaves_a_memory_that_closes(self, tmp_path):
        """Interrupts come up in the middle of writes, as a second Ctrl-C does."""
        code = """
        import signal
        path, interrupts = Path(sys.argv[1]), 0
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        for round in range(30):
            try:
                with Memory.open(config(path)) as memory:
                    keep(memory, lesson(f"{round}-first"))  # prepares every statement
                    signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0007 * round)
                    for number in range(200):
                        keep(memory, lesson(f"{round}-{number}"))
            except KeyboardInterrupt:
                interrupts += 1
            except Exception as error:  # a serializer in C makes an error of its own of it
                assert "KeyboardInterrupt" in str(error)
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        print(interrupts)
        """
        # A few are swallowed where Python ignores exceptions, e.g. while it collects garbage.
        assert int(finish(start(code, tmp_path))) > 20
        with Memory.open(config(tmp_path), create=False) as memory:
            entries = memory.list()
            assert memory.stats().bank_version == 2 * len(entries)
            assert len(memory.recall(query("1")).pool) == 8


def test_a_long_text_is_kept_once(tmp_path):
    source = "\n".join(f"out[{line}] = in[{line}];" for line in range(300))
    with Memory.open(config(tmp_path)) as memory:
        both = [edit("A", kind=kind, payload={"source": source}) for kind in ("kernel", "edit")]
        memory.add(both, "old/A", graph())
    with sqlite3.connect(tmp_path / FILE) as journal:
        ((size,),) = journal.execute("SELECT length(content) FROM texts").fetchall()
    journal.close()
    assert size < len(source) / 3
    with Memory.open(config(tmp_path)) as memory:
        assert [e.experience.payload["source"] for e in memory.list()] == [source, source]


def test_many_threads_share_one_memory(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    for path in (tmp_path / "m", None):
        with Memory.open(config(path)) as memory, ThreadPoolExecutor(8) as threads:

            def step(number: int, memory: Memory = memory) -> bool:
                keep(memory, lesson(f"{number}"))
                memory.recall(query(f"{number}"))
                return memory.reinforce(f"new/{number}", Stage.REFINE, GOOD)

            assert all(threads.map(step, range(40)))
            assert len(memory.list()) == 40
            assert memory.stats().stages[1].rewards == 40
