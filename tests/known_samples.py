"""Two months of a memory, with every status there is and foreign text wherever it can stand."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from evokernel.attempt import Stage
from evokernel.evaluation import Interval, Promotion
from evokernel.memory.experience import ExperienceStatus, Measurement
from evokernel.memory.revision import Revision
from evokernel.memory.store import Memory
from tests.memory_samples import BAD, GOOD, config, edit, experience, keep, lesson, query
from tests.report_samples import HOSTILE

SINCE = "2033-06-01"
BEFORE = datetime(2033, 5, 1, 12, tzinfo=UTC).timestamp()
AFTER = datetime(2033, 7, 1, 12, tzinfo=UTC).timestamp()
NOW = datetime(2033, 8, 1, tzinfo=UTC).timestamp()

DIFF = "--- a\n+++ b\n@@ -1 +1 @@\n-slow\n+fast\n"
ROOT = experience(
    "tiling",
    kind="kernel",
    measurement=Measurement(median_ms=2.0, speedup=Interval(value=2, low=1.9, high=2.1)),
    payload={"source": "x = 1  # the kernel\n"},
)
EDIT = edit(
    "vectorized-loads",
    techniques=("vectorized-loads",),
    parents=("sha-tiling",),
    context=(ROOT.id,),
    payload={"source": "x = 2\n", "diff": DIFF},
)
CHILD = experience(
    "vectorized-loads",
    kind="kernel",
    techniques=("vectorized-loads", "tiling"),
    parents=("sha-tiling",),
    payload={"source": "x = 2\n", "feedback": "bound by memory"},
)
FAILED = lesson("unrolling", family="scan", payload={"error": HOSTILE, "source": "x = 3\n"})
ALIEN = lesson(
    "alien",
    run=f"alien{HOSTILE}",
    family=f"family{HOSTILE}",
    techniques=(f"technique{HOSTILE}",),
    task=f"task{HOSTILE}",
    summary=f"summary{HOSTILE}",
    payload={"source": f"source = {HOSTILE!r}", "diff": f"+{HOSTILE}", HOSTILE: HOSTILE},
)
WRONG = experience("wrong", kind="kernel", payload={"source": "x = 4\n"})

MADE_OF_WRONG = experience(
    "of-wrong", kind="kernel", parents=("sha-wrong",), payload={"source": "x = 5\n"}
)


def known_memory(path: Path) -> Path:
    """Write it: claims and a reward in May; in July a promotion, a retraction, a note and a pin."""
    with pytest.MonkeyPatch.context() as patch, Memory.open(config(path)) as memory:
        patch.setattr("time.time", lambda: BEFORE)
        _begin(memory)
        patch.setattr("time.time", lambda: AFTER)
        _go_on(memory)
    return path


def _begin(memory: Memory) -> None:
    keep(memory, ROOT, EDIT, CHILD, FAILED, WRONG, MADE_OF_WRONG)
    memory.set_status(ROOT.id, ExperienceStatus.ACTIVE, "held in 3 fresh processes", "old/p")
    memory.set_status(WRONG.id, ExperienceStatus.ACTIVE, "held once", "old/w")
    memory.recall(query("1", exclude=(FAILED.id,)))
    memory.reinforce("new/1", Stage.REFINE, GOOD)


def _go_on(memory: Memory) -> None:
    ratio = Interval(value=1.3, low=1.2, high=1.4)
    claim = {"claim": "edit", "holds": True, "ratio": ratio, "processes": 3}
    promotion = Promotion(candidate="sha-vectorized-loads", parent=None, **claim)
    memory.promote("old", [promotion], "old/9")
    keep(memory, ALIEN)
    memory.recall(query("2", exclude=(FAILED.id, EDIT.id, ALIEN.id, WRONG.id)))
    memory.reinforce("new/2", Stage.REFINE, BAD)
    memory.set_status(FAILED.id, ExperienceStatus.RETIRED, "too much of it")
    memory.forget(memory.withdrawal([WRONG.id]), "it reads past the end")
    memory.revise(ROOT.id, Revision(note=f"mind the tail {HOSTILE}"), "I saw it")
    memory.pin(ROOT.id)
