"""Owns the five answers about a candidate, each with its evidence in one sentence.

Compiles, right, contract, faster, coverage: they are never mixed into one number, and what was not
asked because of an earlier answer says so. Every output shows these, and nothing of its own.
"""

from typing import Literal

from evokernel.evaluation import Correctness, Evaluation, Status, Timing
from evokernel.frozen import Frozen
from evokernel.wording import counted, with_interval

Name = Literal["compiles", "right", "contract", "faster", "coverage"]
Verdict = Literal["yes", "no", "unknown", "not asked"]

BASELINES = {"eager": "eager", "compile": "torch.compile"}
"""Names of the baselines as people know them."""
MOST = 0.5
"""Share of a call inside its own kernels from which on they do most of the work."""

_BUILDING = {Status.INVALID_SOURCE, Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT}


class Answer(Frozen):
    """One of the five answers."""

    name: Name
    """`compiles`: every kernel was built. `right`: its numbers are. `contract`: it did the work by
    the means that it may use. `faster`: than eager and than torch.compile. `coverage`: most of a
    call passes inside kernels of its own."""
    verdict: Verdict
    """`unknown`: asked, and not to be told; `not asked`: an earlier answer ended the judgement."""
    evidence: str
    """What the verdict rests on, one sentence."""

    def in_words(self) -> str:
        """Verdict and evidence in one line."""
        return f"{self.verdict}: {self.evidence}"


def answers(evaluation: Evaluation) -> tuple[Answer, ...]:
    """All five, in the order in which they are asked."""
    found = (
        _compiles(evaluation),
        _right(evaluation),
        _contract(evaluation),
        _faster(evaluation),
        _coverage(evaluation),
    )
    failed = _failed(evaluation)
    return tuple(
        Answer(name=answer.name, verdict=_ended(evaluation), evidence=_why(evaluation, answer))
        if answer.name == failed
        else answer
        for answer in found
    )


def _failed(evaluation: Evaluation) -> Name | None:
    """The answer that ended the judgement."""
    match evaluation.status:
        case Status.PASSED:
            return None
        case status if status in _BUILDING:
            return "compiles"
        case Status.CONTRACT:
            return "contract"
        case Status.INFRASTRUCTURE if evaluation.contract is not None:
            return "faster"
        case Status.INFRASTRUCTURE if evaluation.compiles is None:
            return "compiles"
    return "right"


def _ended(evaluation: Evaluation) -> Verdict:
    return "unknown" if evaluation.status is Status.INFRASTRUCTURE else "no"


def _why(evaluation: Evaluation, answer: Answer) -> str:
    """The reason first; then what was seen nevertheless."""
    reason = f"{evaluation.status}: {evaluation.reason}".rstrip(": .")
    return reason if answer.verdict == "not asked" else f"{reason}; {answer.evidence}"


def _not_asked(name: Name, evaluation: Evaluation) -> Answer:
    ended = f"the judgement ended with `{evaluation.status}`"
    return Answer(name=name, verdict="not asked", evidence=ended)


def _compiles(evaluation: Evaluation) -> Answer:
    match evaluation.compiles:
        case True:
            seconds = evaluation.seconds.get("compile")
            took = "" if seconds is None else f" ({seconds:.1f} s)"
            return Answer(name="compiles", verdict="yes", evidence=f"every kernel was built{took}")
        case False:
            return Answer(name="compiles", verdict="no", evidence="the compiler refused it")
    return _not_asked("compiles", evaluation)


def _right(evaluation: Evaluation) -> Answer:
    found = evaluation.correctness
    if found is None:
        return _not_asked("right", evaluation)
    verdict: Verdict = "yes" if found.is_right else "no"
    return Answer(name="right", verdict=verdict, evidence=_compared(found))


def _compared(found: Correctness) -> str:
    inputs = f"{', '.join(found.families)} inputs"
    if len(found.workloads) > 1:
        inputs += f" of {counted(len(found.workloads), 'workload')}"
    worst = f"largest error {found.worst_ratio:.3g} of what is allowed"
    said = f"{counted(found.comparisons, 'output')} compared with fp64 on {inputs}, {worst}"
    return f"{said}; {found.mismatches[0].detail}" if found.mismatches else said


def _contract(evaluation: Evaluation) -> Answer:
    found = evaluation.contract
    if found is None:
        return _not_asked("contract", evaluation)
    own = f"own kernels: {', '.join(found.own_kernels) or 'none seen'}"
    library = f"library: {', '.join(found.library_calls) or 'no computing operator'}"
    verdict: Verdict = "yes" if found.is_kept else "no"
    return Answer(name="contract", verdict=verdict, evidence=f"{found.policy}; {own}; {library}")


def _faster(evaluation: Evaluation) -> Answer:
    timing = evaluation.timing
    if timing is None:
        return _not_asked("faster", evaluation)
    measured = [s for s in timing.speedups if s.against in BASELINES]
    missing = [f"{BASELINES[n]} was not timed" for n in BASELINES if timing.against(n) is None]
    said = [f"{with_interval(s.ratio)} as fast as {BASELINES[s.against]}" for s in measured]
    verdict: Verdict = "yes" if all(s.is_faster for s in measured) else "no"
    if not measured:
        verdict = "unknown"
    return Answer(name="faster", verdict=verdict, evidence="; ".join([*said, *missing]))


def _coverage(evaluation: Evaluation) -> Answer:
    found = evaluation.contract
    if found is None:
        return _not_asked("coverage", evaluation)
    if found.coverage is None:
        evidence = "the time inside its own kernels cannot be measured here"
        return Answer(name="coverage", verdict="unknown", evidence=evidence)
    verdict: Verdict = "yes" if found.coverage >= MOST else "no"
    evidence = f"{found.coverage:.0%} of a call inside its own kernels"
    return Answer(name="coverage", verdict=verdict, evidence=evidence)


def memory_in_words(timing: Timing) -> str:
    """Peak memory of one call, of the candidate and of each baseline; empty where unknown."""
    if timing.peak_bytes is None:
        return ""
    others = [f"{BASELINES.get(n, n)} {mebibytes(b)}" for n, b in timing.baseline_bytes.items()]
    return ", ".join([f"{mebibytes(timing.peak_bytes)} extra at the peak of a call", *others])


def mebibytes(count: int) -> str:
    """Bytes in MiB, e.g. `1.5 MiB`."""
    return f"{count / 2**20:.1f} MiB"
