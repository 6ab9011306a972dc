"""Small recordings with invented times: what a technique gains is the same on every task."""

import ast
from collections.abc import Iterable
from functools import cache

from evokernel.evaluation import Status
from evokernel.opgraph import capture
from evokernel.proposers.templates.template import Template
from evokernel.study.recording import Point, Recording, Subject, Times
from evokernel.study.space import plans, thinned
from evokernel.task import Task
from evokernel.task.constants import with_constants

GAINS = {
    "vectorized-math": 3.0,
    "compiler-vectorization": 1.5,
    "shorter-functions": 1.2,
    "row-caching": 1.1,
    "nontemporal-stores": 0.8,
    "software-prefetch": 0.9,
    "wide-accumulators": 1.3,
    "loop-unrolling": 1.1,
}


@cache
def invented(name: str, limit: int = 24, broken: str = "") -> Recording:
    """A recording of a built-in task; kernels with the technique `broken` fail."""
    task = Task.load(name)
    graph = capture(task.program())
    template = Template(task, graph, "cpp")
    space = thinned(template.space, template.promise, limit, ("threads", "schedule"))
    subject = Subject(
        name=name,
        sizes={},
        source=task.source,
        graph=graph.model_dump(mode="json"),
        backend="cpp",
        threads=1,
        space=space,
        limit=limit,
    )
    points = []
    for plan in plans(space):
        techniques = space.techniques(plan)
        ms = 10.0
        for technique in techniques:
            ms /= GAINS.get(technique, 1.0)
        fails = broken in techniques
        times = tuple(round(ms * (1 + 0.01 * (k % 3 - 1)), 5) for k in range(6))
        process = Times(times_ms=times, eager_ms=(8.0,) * 6, dropped=0, foreign=0.0)
        points.append(
            Point(
                plan=plan,
                candidate="0" * 16,
                status=Status.WRONG_VALUES if fails else Status.PASSED,
                reason="it is invented" if fails else "",
                bound_by="compute",
                techniques=techniques,
                times=() if fails else (process, process),
            )
        )
    return Recording(
        subject=subject,
        device="none",
        machine="none",
        harness="none",
        tools="none",
        made="2026-01-01",
        points=tuple(points),
    )


def sized(task: Task, **sizes: int) -> Task:
    """The same task with other sizes."""
    source = with_constants(task.source, ast.parse(task.source), sizes, task.name)
    return Task.from_source(source, name=task.name)


def with_points(made: Recording, points: Iterable[Point]) -> Recording:
    """The recording with other points, and nothing that was computed from the old ones."""
    known = {name: getattr(made, name) for name in Recording.model_fields}
    return Recording(**known | {"points": tuple(points)})
