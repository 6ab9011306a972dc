"""Processes killed while they write: nothing they were told is kept gets lost or doubled."""

import os
import signal
import subprocess
import sys
import textwrap

from evokernel.attempt import Stage
from evokernel.memory.store import Memory
from tests.memory_samples import config, keep, lesson

STEPS = """
import sys
from pathlib import Path
from evokernel.attempt import Stage
from evokernel.memory.store import Memory
from tests.memory_samples import GOOD, config, keep, lesson, query
memory = Memory.open(config(Path(sys.argv[1])))
for number in range(10_000):
    with memory.together():
        keep(memory, lesson(f"{number}"))
        memory.reinforce(f"new/{number}", Stage.REFINE, GOOD)
    print(number, flush=True)
"""
BANK = """
import sys
from pathlib import Path
from evokernel.memory.exchange import read
from evokernel.memory.store import Memory
from tests.memory_samples import config
bank = read(Path(sys.argv[2]))
with Memory.open(config(Path(sys.argv[1]))) as memory:
    print("begin", flush=True)
    memory.take_over(bank, is_trusted=True)
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def test_a_kill_amid_writing_loses_no_step_and_halves_none(tmp_path):
    process = start(STEPS, tmp_path / "m")
    told = int(process.stdout.readline())
    while told < 60:
        told = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)  # it is at the next step, or the one after
    with process:  # `communicate` would lose what `readline` has read ahead
        rest = process.stdout.read().splitlines()
    acknowledged = int((rest or [told])[-1]) + 1
    with Memory.open(config(tmp_path / "m"), create=False) as memory:
        rewards = memory.stats().stages[1].rewards
        assert acknowledged <= rewards <= acknowledged + 1
        assert len(memory.list()) == rewards
        assert memory.refit().changes == ()
        (id,) = keep(memory, lesson(f"{acknowledged - 1}"))
        assert len(memory.list()) == rewards, "a step that was told it is kept is there already"
        assert memory.value(id, Stage.REFINE).visits == 0


def test_a_bank_is_taken_over_whole_or_not_at_all(tmp_path):
    from evokernel.memory.exchange import write

    with Memory.open(config(tmp_path / "first")) as memory:
        with memory.together():
            for number in range(200):
                keep(memory, lesson(f"{number}"))
        write(memory.bank(name="first"), tmp_path / "bank.jsonl")
    sizes = set()
    for pause in (0.0, 0.05):
        process = start(BANK, tmp_path / "second", tmp_path / "bank.jsonl")
        assert process.stdout.readline() == "begin\n"
        try:
            process.wait(timeout=pause)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        with Memory.open(config(tmp_path / "second"), create=False) as memory:
            sizes.add(len(memory.list()))
    assert sizes <= {0, 200}
    with Memory.open(config(tmp_path / "second")) as memory:
        memory.take_over(memory.bank(), is_trusted=True)
        assert len(memory.list()) in {0, 200}
