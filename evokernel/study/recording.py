"""Owns `Recording`: what was measured of every plan of a task's declared template space."""

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evokernel.attempt import Backend
from evokernel.errors import ConfigError
from evokernel.evaluation import Status
from evokernel.frozen import Frozen
from evokernel.profile import Bound, Limit
from evokernel.proposers.templates.choices import Plan, Space

if TYPE_CHECKING:
    from evokernel.opgraph import OpGraph
    from evokernel.task import Task

QUARTILE = 0.25
"""Of its times, a kernel counts by this one: what disturbs a call only ever makes it longer."""
LEAST = 10
"""Clean times that a feasible plan needs before it may be replayed."""
PROCESSES = 3
"""Fresh processes that they come from, at least."""
DIGITS = 4
"""Significant digits of a kept time: the clocks' noise lies in the second or third."""
SUFFIX = ".json.gz"


class Subject(Frozen):
    """What was measured: a task at given sizes, in one language, and which plans of it."""

    name: str
    """Name of the task."""
    sizes: dict[str, int]
    """Constants of the task's file that were replaced; they make the inputs small."""
    source: str
    """The task's file with these sizes."""
    graph: dict[str, Any]
    """Its operator graph, as JSON."""
    backend: Backend
    threads: int
    """CPU threads of kernels and reference."""
    space: Space
    """The declared space: every plan of it is recorded."""
    plain: tuple[str, ...] = ()
    """Choices that were not varied at all."""
    limit: int
    """Most plans that the space was thinned to."""

    @property
    def key(self) -> str:
        """Knows again a recording of the same subject."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]


class Times(Frozen):
    """What one fresh process of a kernel took, beside the reference."""

    times_ms: tuple[float, ...]
    """Clean times of one call, milliseconds."""
    eager_ms: tuple[float, ...]
    """The reference's clean times in the same blocks, milliseconds."""
    dropped: int
    """Blocks in which the kernel had to wait for a core."""
    foreign: float
    """Cores that other programs kept busy meanwhile, on average."""


class Point(Frozen):
    """One plan, and what became of its kernel."""

    plan: Plan
    candidate: str
    """Hash of the candidate as it was written then."""
    status: Status
    reason: str = ""
    """Why it failed, in one sentence."""
    bound_by: Bound = "unknown"
    limits: tuple[Limit, ...] = ()
    techniques: tuple[str, ...] = ()
    seconds: float = 0.0
    """Wall seconds that building and checking it took."""
    times: tuple[Times, ...] = ()
    """One entry per process."""

    @property
    def is_feasible(self) -> bool:
        """Whether its kernel passed."""
        return self.status is Status.PASSED

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing for a replay."""
        return not self.is_feasible or (
            len(self.times_ms) >= LEAST and len(self.times) >= PROCESSES
        )

    @cached_property
    def times_ms(self) -> tuple[float, ...]:
        """All its clean times, milliseconds."""
        return tuple(ms for times in self.times for ms in times.times_ms)

    @cached_property
    def eager_ms(self) -> tuple[float, ...]:
        """The reference in the same blocks, milliseconds."""
        return tuple(ms for times in self.times for ms in times.eager_ms)

    @cached_property
    def typical_ms(self) -> float | None:
        """The lower quartile of all its times, milliseconds; None where it failed."""
        return typical(self.times_ms) if self.is_feasible and self.times_ms else None


class Recording(Frozen):
    """A task's declared template space, measured whole; replayed by drawing from its times."""

    subject: Subject
    device: str
    """Fingerprint of the device."""
    machine: str
    """The device in words."""
    harness: str
    tools: str
    """Compiler and torch."""
    made: str
    """Day of the last measurement."""
    points: tuple[Point, ...]

    @cached_property
    def by_plan(self) -> dict[str, Point]:
        """Each point by the line that its plan leaves in a source."""
        return {point.plan.line: point for point in self.points}

    @cached_property
    def best_ms(self) -> float:
        """The fastest plan's time, milliseconds."""
        return min(p.typical_ms for p in self.points if p.typical_ms is not None)

    @cached_property
    def plain_ms(self) -> float | None:
        """Time of the plan without any technique: what is drafted where nothing is known."""
        point = self.by_plan.get(self.subject.space.plain().line)
        return point.typical_ms if point else None

    @property
    def headroom(self) -> float:
        """Time of the plain plan over the fastest one's; 0 where the plain plan fails."""
        return self.plain_ms / self.best_ms if self.plain_ms else 0.0

    def task(self) -> "Task":
        """The task as it was measured."""
        from evokernel.task import Task

        return Task.from_source(self.subject.source, name=self.subject.name)

    def graph(self) -> "OpGraph":
        """Its operator graph."""
        from evokernel.opgraph import OpGraph

        return OpGraph.model_validate(self.subject.graph)


def typical(times: Sequence[float]) -> float:
    """By what a number of times counts: their lower quartile."""
    return sorted(times)[int(QUARTILE * len(times))]


def write(recording: Recording, folder: Path) -> Path:
    """Pack a recording into one file of a folder, always with the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    subject = recording.subject
    path = folder / f"{subject.backend}-{subject.name}{SUFFIX}"
    text = json.dumps(recording.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def read(path: Path) -> Recording:
    """Unpack a recording.

    Raises:
        ConfigError: it is none.
    """
    try:
        return Recording.model_validate_json(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(f"`{path}` is no recording of this version: {first}") from error


def shipped(backend: Backend = "cpp") -> tuple[Recording, ...]:
    """The recordings that come with the package, by name of the task."""
    folder = files("evokernel.study") / "recordings"
    return tuple(_in(Path(str(folder)), backend))


def recorded(folder: Path | None, names: Sequence[str], backend: Backend) -> tuple[Recording, ...]:
    """Recordings of a folder, or of the package, of the named tasks or of all.

    Raises:
        ConfigError: there is none, or none of a named task.
    """
    found = shipped(backend) if folder is None else tuple(_in(folder, backend))
    known = {recording.subject.name: recording for recording in found}
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise ConfigError(
                f"no recording of `{name}` for `{backend}`: there are {listed}; "
                f"`evokernel memory record {name}` makes one"
            )
    if not known:
        place = folder or "the package"
        raise ConfigError(f"no recordings for `{backend}` in `{place}`: see `memory record`")
    return tuple(known[name] for name in names) if names else found


def _in(folder: Path, backend: str) -> Iterator[Recording]:
    for path in sorted(folder.glob(f"{backend}-*{SUFFIX}")):
        yield read(path)
