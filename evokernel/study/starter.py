"""Owns the starter bank: technique notes and verified exemplars, made from the shipped recordings.

Nothing of it is written by hand. An exemplar is the fastest recorded plan of a task, and only where
its source is still, letter by letter, the one that was checked. A note says what a technique gained
in otherwise equal plans of one family.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import quantiles

from evokernel import __version__
from evokernel.attempt import Stage
from evokernel.evaluation import Interval
from evokernel.memory.exchange import Bank, BankHeader, Held
from evokernel.memory.experience import (
    Experience,
    ExperienceStatus,
    Measurement,
    Origin,
    Outcome,
)
from evokernel.opgraph import OpGraph
from evokernel.proposers.templates.choices import Plan, Space
from evokernel.study.draws import ratio_of
from evokernel.study.recording import Recording
from evokernel.study.replay import DeclaredTemplate

RUN = "starter"
"""Run that all of it says it comes from: `memory forget --run starter` takes it out again."""
PAIRS = 4
"""Pairs of plans behind a note, at least (ours)."""
TELLING = 1.05
"""Median ratio from which a technique counts as a gain; its inverse as a loss (ours)."""


def starter_bank(recordings: Sequence[Recording]) -> Bank:
    """The bank, always the same for the same recordings and templates."""
    made = max((recording.made for recording in recordings), default="")
    bank = Bank(BankHeader(made=made, by=__version__, sources=("the starter bank",)))
    experiences = [*_exemplars(recordings), *_notes(recordings)]
    for number, experience in enumerate(experiences, 1):
        bank.held[experience.id] = Held(
            experience=experience,
            step=experience.origin.step,
            slot=f"{experience.kind}:{number}",
            status=ExperienceStatus.ACTIVE,
            reason="comes with EvoKernel, from recordings of ours",
        )
    for recording in recordings:
        graph = recording.graph()
        bank.graphs[graph.fingerprint] = graph.model_dump_json()
    return bank


def _exemplars(recordings: Sequence[Recording]) -> Iterator[Experience]:
    for recording in recordings:
        best = min(
            (p for p in recording.points if p.typical_ms is not None),
            key=lambda point: point.typical_ms or 0.0,
        )
        candidate = DeclaredTemplate(recording).candidate(best.plan)
        if candidate.sha != best.candidate:
            continue  # the templates write it otherwise by now: nobody has checked that
        graph, name = recording.graph(), recording.subject.name
        yield Experience(
            kind="kernel",
            stage=Stage.REFINE,
            backend=recording.subject.backend,
            family=graph.family,
            fingerprint=graph.fingerprint,
            bottleneck=best.bound_by,
            techniques=best.techniques,
            summary=f"the fastest of {len(recording.points)} recorded plans of `{name}`",
            payload={"source": candidate.source},
            origin=_origin(name, name, candidate.sha),
            measurement=Measurement(
                median_ms=best.typical_ms,
                speedup=ratio_of(list(best.eager_ms), list(best.times_ms)),
                device=recording.device,
                tools=recording.tools,
            ),
        )


def _notes(recordings: Sequence[Recording]) -> Iterator[Experience]:
    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    graphs: dict[str, OpGraph] = {}
    for recording in recordings:
        graph = recording.graph()
        graphs.setdefault(graph.family, graph)
        for technique, gain in _gains(recording):
            gains[graph.family, technique].append(gain)
    for (family, technique), found in sorted(gains.items()):
        if len(found) < PAIRS:
            continue
        low, middle, high = quantiles(found, n=4)
        if 1 / TELLING < middle < TELLING:
            continue
        outcome: Outcome = "success" if middle > 1 else "failure"
        text = (
            f"In {len(found)} pairs of recorded {family} kernels that differ in `{technique}` "
            f"alone, it made them {middle:.2f}x as fast (quartiles {low:.2f}, {high:.2f})."
        )
        yield Experience(
            kind="technique",
            stage=Stage.REFINE,
            backend=recordings[0].subject.backend,
            family=family,
            fingerprint=f"family/{family}",
            techniques=(technique,),
            outcome=outcome,
            summary=f"`{technique}` in {family} kernels: {middle:.2f}x",
            payload={"note": text},
            origin=_origin(f"{family}/{technique}", family, ""),
            measurement=Measurement(speedup=Interval(value=middle, low=low, high=high)),
        )


def _gains(recording: Recording) -> Iterator[tuple[str, float]]:
    """For every move between recorded plans that brings a technique in: what it gained."""
    space = recording.subject.space
    for point in recording.points:
        if (before := point.typical_ms) is None:
            continue
        for technique, child in _brought_in(space, point.plan):
            after = recording.by_plan[child.line].typical_ms
            if after is not None:
                yield technique, before / after


def _brought_in(space: Space, plan: Plan) -> Iterator[tuple[str, Plan]]:
    have = set(space.techniques(plan))
    for move in space.moves(plan):
        child = move.on(space, plan)
        if move.applies and set(space.techniques(child)) == have | {move.technique} != have:
            yield move.technique, child


def _origin(step: str, task: str, candidate: str) -> Origin:
    return Origin(run=RUN, step=f"{RUN}/{step}", task=task, candidate=candidate)
