"""The structural embedder: stable, of length one, and near what is alike."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evokernel.memory.embedding import Situation, StructuralEmbedder, label
from evokernel.memory.retrieval import GATE
from tests.memory_samples import graph

EMBEDDER = StructuralEmbedder()


def situation(*ops: str, family: str = "softmax", **changes) -> Situation:
    kept = {name: changes.pop(name) for name in ("bottleneck", "techniques") if name in changes}
    return Situation(graph=graph(*ops, family=family, **changes), family=family, **kept)


def alike(one: Situation, other: Situation) -> float:
    return float(np.dot(EMBEDDER.embed(one), EMBEDDER.embed(other)))


def test_name_version_and_dimension():
    assert label(EMBEDDER) == "structural/1/256"
    assert len(EMBEDDER.embed(situation())) == 256


def test_length_is_one():
    full = situation("mul", "softmax", bottleneck="memory", techniques=("tiling",))
    assert np.linalg.norm(EMBEDDER.embed(full)) == pytest.approx(1)


def test_nothing_known_is_zero():
    assert set(EMBEDDER.embed(Situation())) == {0.0}
    assert set(EMBEDDER.embed(Situation(family="unknown", bottleneck="unknown"))) == {0.0}


def test_the_same_in_every_process():
    code = """
from evokernel.memory.embedding import *
from tests.memory_samples import graph
print(repr(StructuralEmbedder().embed(Situation(graph=graph("exp", "sum"), family="softmax"))))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent,
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == repr(EMBEDDER.embed(situation("exp", "sum")))


def test_likeness_is_graded():
    here = situation("mul", "softmax", size=4096)
    other_size = situation("mul", "softmax", size=32)
    other_ops = situation("add", "softmax", size=4096)
    other_family = situation("layer_norm", "gelu", family="normalization", size=4096)
    alien = situation("gather", family="indexing", size=3, dtype="int64")
    grades = [alike(here, s) for s in (here, other_size, other_ops, other_family, alien)]
    assert grades == sorted(grades, reverse=True)
    assert grades[0] == pytest.approx(1)
    assert grades[3] > GATE  # another family with the same shapes and dtype may still teach
    assert grades[4] < 1 / 16  # the noise of hashing into 256 places


def test_close_sizes_stay_close():
    here = situation(size=4096)
    assert alike(here, situation(size=4000)) > alike(here, situation(size=2048)) > 0.8


def test_order_of_operators_matters_a_little():
    same = alike(situation("exp", "sum"), situation("exp", "sum"))
    swapped = alike(situation("exp", "sum"), situation("sum", "exp"))
    foreign = alike(situation("exp", "sum"), situation("tanh", "max"))
    assert same > swapped > foreign


def test_techniques_and_bottleneck_draw_near():
    note = Situation(family="softmax", techniques=("tiling",), bottleneck="memory")
    near = situation(techniques=("tiling",), bottleneck="memory")
    assert alike(note, near) > alike(note, situation(bottleneck="compute")) > GATE
