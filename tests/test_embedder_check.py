"""Neighbours of real operators are of their family, and spelling does not move them."""

import numpy as np
import pytest
from embedder import point, renamed, reordered, score, variants, written
from embedder_tasks import OPERATORS

from evokernel.memory.embedding import StructuralEmbedder

CHOSEN = (
    *("gelu", "hard_swish", "softmax", "log_softmax", "rms_norm", "residual_norm", "cumsum"),
    *("masked_cumsum", "mse", "huber", "matmul", "linear_gelu", "attention", "biased_attention"),
    *("conv2d", "conv1d", "max_pool2d", "avg_pool2d", "column_sum", "norm"),
)
BY_NAME = {operator.name: operator for operator in OPERATORS}


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """The first spelling of every chosen operator, captured and embedded."""
    folder, embedder = tmp_path_factory.mktemp("tasks"), StructuralEmbedder()
    return [point(next(variants(BY_NAME[name])), folder, embedder) for name in CHOSEN]


def test_labelled_set_is_large_and_wide():
    families = {operator.family for operator in OPERATORS}
    assert len(families) >= 10
    assert sum(1 for operator in OPERATORS for _ in variants(operator)) >= 100
    assert all(len([o for o in OPERATORS if o.family == family]) >= 4 for family in families)


def test_nearest_other_operator_has_the_same_family(points):
    found = score(points, np.stack([p.whole for p in points]))
    assert sum(found.asked.values()) == len(CHOSEN)
    assert found.share >= 0.9, found.mistakes


def test_names_and_order_do_not_move_it(points, tmp_path):
    first = points[CHOSEN.index("residual_norm")]
    spelling = BY_NAME["residual_norm"].spellings[0]
    other_order = reordered(spelling)
    assert other_order not in {None, spelling}
    for source in (renamed(first.variant.source), written(BY_NAME["residual_norm"], other_order)):
        assert source != first.variant.source
        moved = point(first.variant._replace(source=source), tmp_path, StructuralEmbedder())
        assert moved.whole @ first.whole == pytest.approx(1)
        assert moved.graph.fingerprint == first.graph.fingerprint


def test_shape_and_operator_move_it(points, tmp_path):
    softmax = points[CHOSEN.index("softmax")]
    shape = next(v for v in variants(BY_NAME["softmax"]) if v.kind == "shape")
    wider = point(shape, tmp_path, StructuralEmbedder())
    relative = points[CHOSEN.index("log_softmax")]
    stranger = points[CHOSEN.index("matmul")]
    likeness = [p.whole @ softmax.whole for p in (wider, relative, stranger)]
    assert 1 > likeness[0] > likeness[1] > likeness[2]
    assert len({p.graph.fingerprint for p in (*points, wider)}) == len(points) + 1
