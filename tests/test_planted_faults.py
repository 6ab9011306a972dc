"""Faults that are planted into right kernels are found, and the right kernels are not refused."""

from collections import Counter
from collections.abc import Iterator

import pytest
from fault import CLASSES
from fault_bench import Bench
from fault_subjects import Subject
from mutations import faults
from planted_faults import chosen

from evokernel.attempt import Candidate
from evokernel.evaluation import Status


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("layer_norm")


@pytest.fixture
def bench(subject: Subject, warm: None) -> Iterator[Bench]:
    with Bench(subject) as bench:
        yield bench


def test_faults_are_of_many_classes_and_spread_over_tasks(subject):
    subjects = [subject, Subject("matmul"), Subject("max_pool2d")]
    planted = chosen(subjects, each=4, limit=None)
    count = Counter(p.fault.kind for p in planted)
    assert set(count) <= set(CLASSES)
    assert len(count) >= 20
    assert max(count.values()) <= 0.15 * len(planted)
    assert {p.task for p in planted} == {"layer_norm", "matmul", "max_pool2d"}
    assert len({p.fault.source for p in planted}) == len(planted)
    assert all(p.fault.source != p.right for p in planted)


def test_what_has_no_kernel_is_refused():
    with pytest.raises(ValueError, match="no kernel in the source"):
        list(faults("import torch"))


CHOSEN = {
    "rows is taken for at most": Status.WRONG_VALUES,
    "the mean square less the squared mean": Status.WRONG_VALUES,
    "the first call is given back again": Status.WRONG_VALUES,
    "wrong after forty calls": Status.WRONG_VALUES,
    "`1e-05f` -> ": Status.WRONG_VALUES,
    "const_cast<float*>(x_row)[c] = 0.0f": Status.INPUT_MODIFIED,
}
"""Changes that only a hidden workload, a special family or a later call shows."""


def test_planted_faults_are_found_and_the_right_kernel_passes(subject, bench):
    right = subject.kernels["plain"]
    verdict = bench.evaluate(Candidate(source=right, backend="cpp"))
    assert verdict.status is Status.PASSED, verdict.reason
    planted = list(faults(right, subject.rows))
    for words, status in CHOSEN.items():
        fault = next(fault for fault in planted if words in fault.what)
        found = bench.evaluate(Candidate(source=fault.source, backend="cpp"))
        assert found.status is status, f"{fault.what}: {found.reason}"
