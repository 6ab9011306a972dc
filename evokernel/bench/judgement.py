"""Owns the judgement on one outcome: form, inputs, then every element of every output."""

from dataclasses import dataclass

from evokernel.bench import correctness, pieces
from evokernel.bench.correctness import Fault
from evokernel.bench.messages import Outcome
from evokernel.bench.reference import Expectation
from evokernel.evaluation import Mismatch, Status


@dataclass(frozen=True)
class Judgement:
    """The comparison of one outcome."""

    worst_ratio: float
    """Largest error as a share of its limit."""
    comparisons: int
    """Output tensors compared."""
    fault: Fault | None = None
    mismatch: Mismatch | None = None


def judge(
    workload: str,
    family: str,
    want: Expectation,
    outcome: Outcome,
    are_inputs_told: bool = True,
    briefly: bool = False,
) -> Judgement:
    """Compare one outcome with what was expected; the first fault returns.

    Args:
        workload: Name of the workload, for the message.
        family: Input family, for the message.
        want: What the reference makes of the same inputs.
        outcome: What the candidate's worker sent.
        are_inputs_told: The outcome tells which inputs changed.
        briefly: Only whether it is right: what is wrong is not counted to the end.
    """
    fault = correctness.check_form(want.skeleton, want.forms, outcome.outputs, outcome.facts)
    if fault is None and are_inputs_told:
        fault = check_inputs(want, outcome)
    if fault is not None:
        said = Mismatch(workload=workload, family=family, output=fault.path, detail=fault.detail)
        return Judgement(0.0, 0, fault, said)
    with pieces.calm_threads():
        return _compare(workload, family, want, outcome, briefly)


def _compare(
    workload: str, family: str, want: Expectation, outcome: Outcome, briefly: bool
) -> Judgement:
    worst, count = 0.0, 0
    found = correctness.tensors(outcome.outputs)
    for form, limits, (_, got) in zip(want.forms, want.limits, found, strict=True):
        compared = correctness.compare(limits, got, briefly)
        worst, count = max(worst, compared.worst_ratio), count + 1
        if compared.wrong:
            wrong = correctness.mismatch(workload, family, form, compared)
            fault = Fault(Status.WRONG_VALUES, form.path, wrong.detail)
            return Judgement(worst, count, fault, wrong)
    return Judgement(worst, count)


def check_inputs(want: Expectation, outcome: Outcome) -> Fault | None:
    """Whether a call overwrote an input that the reference leaves alone."""
    changed = sorted(set(outcome.changed_inputs) - set(want.modified))
    if not changed:
        return None
    text = f"`forward` overwrote input tensor {changed[0]}, which the reference leaves alone"
    return Fault(Status.INPUT_MODIFIED, str(changed[0]), text)
