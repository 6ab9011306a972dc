"""Owns `Experience`: the record that memory keeps of what was tried, and how it ended."""

import hashlib
import math
from enum import StrEnum
from functools import cached_property
from typing import Literal

from evokernel.answers import Answer
from evokernel.attempt import Backend, Stage
from evokernel.evaluation import Interval
from evokernel.frozen import Frozen

Kind = Literal["kernel", "edit", "fix", "lesson", "technique", "api"]
Outcome = Literal["success", "failure"]


class ExperienceStatus(StrEnum):
    """Whether an experience may be shown."""

    QUARANTINE = "quarantine"
    """Not confirmed yet: may be shown inside its own run only."""
    ACTIVE = "active"
    """Confirmed: in the index, may be shown to every task."""
    SUSPECT = "suspect"
    """Something it rests on fell; hidden until looked at again."""
    RETIRED = "retired"
    """Left the bounded bank for others: right, but not shown; `reinstate` brings it back."""
    TOMBSTONE = "tombstone"
    """Withdrawn for good; kept for the record."""


BELIEVED = frozenset(
    {ExperienceStatus.QUARANTINE, ExperienceStatus.ACTIVE, ExperienceStatus.RETIRED}
)
"""Statuses of what nothing speaks against."""


class Origin(Frozen):
    """Where an experience comes from."""

    run: str
    """Id of the run."""
    step: str
    """Unique id of the step, `<run>/<number>`."""
    task: str
    """Name of the task."""
    candidate: str = ""
    """Hash of the candidate that the step made; by it descendants are found and claims promoted."""
    parents: tuple[str, ...] = ()
    """Hashes of the candidates it was made from."""
    context: tuple[str, ...] = ()
    """Ids of the experiences that were shown when it was made."""
    proposer: str = "templates"
    """Who wrote it: `templates`, `external`, or a model's name."""


class Measurement(Frozen):
    """The numbers that go with an experience."""

    median_ms: float | None = None
    """Median time of one call, milliseconds."""
    speedup: Interval | None = None
    """Over the parent for an edit, over eager for a kernel."""
    device: str = ""
    """Fingerprint of the device."""
    tools: str = ""
    """Fingerprint of compiler, torch and harness."""


class Experience(Frozen):
    """What memory keeps; immutable but for its status, which the journal owns."""

    kind: Kind
    """`kernel`: a feasible source. `edit`: parent to child with its gain. `fix`: an error and its
    repair. `lesson`: what failed or slowed down, and why. `technique`: a note. `api`: looked up by
    exact name, outside the value loop."""
    stage: Stage
    """The stage whose step made it."""
    backend: Backend | Literal["neutral"]
    """`neutral` only for `technique` and `lesson`."""
    family: str
    """Family of the task's operator graph."""
    fingerprint: str
    """Fingerprint of the task's operator graph."""
    bottleneck: str = "unknown"
    """What bound the kernel: as `Profile.bound_by`."""
    techniques: tuple[str, ...] = ()
    """Techniques it applies (an edit: those it changed)."""
    outcome: Outcome = "success"
    """A failure is what did not pass, or an edit that made it slower."""
    summary: str
    """A view in one sentence, without the numbers of `measurement`; the payload never changes."""
    payload: dict[str, str] = {}
    """Immutable texts: `source`, `diff`, `error`, `feedback`, `note`; an `api` has its `name`."""
    note: str = ""
    """A remark that a person added later."""
    features: tuple[float, ...] = ()
    """The embedding of its situation; filled by `Memory`."""
    origin: Origin
    """Where it comes from."""
    measurement: Measurement = Measurement()
    """What was measured of it; None where nothing was."""
    answers: tuple[Answer, ...] = ()
    """The five answers of the verdict that it rests on; none in what no verdict made."""
    key: str = ""
    """Its id, where a person has changed what the id is made of."""

    @cached_property
    def id(self) -> str:
        """`<kind>-` and 12 hex digits of the hash of kind, step, techniques and payload."""
        if self.key:
            return self.key
        text = "\n".join(
            [self.kind, self.origin.step, *self.techniques, *map(str, sorted(self.payload.items()))]
        )
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def gain_of(measurement: Measurement) -> float | None:
    """Logarithm of the measured ratio, or None where nothing was compared."""
    ratio = measurement.speedup
    return math.log(ratio.value) if ratio is not None and ratio.value > 0 else None


def edit_outcome(speedup: Interval | None) -> Outcome:
    """Whether an edit with this ratio of parent to child helped."""
    return "failure" if speedup is not None and speedup.value < 1 else "success"


class Entry(Frozen):
    """One experience as it stands in the memory now."""

    experience: Experience
    """With the measurement of its promotion, once there is one, and the outcome by that."""
    status: ExperienceStatus
    """Whether it may be shown now."""
    reason: str
    """Why it has this status."""
    version: int
    """Number of the event that added it; later ones are newer."""
    is_pinned: bool = False
    """Whether a person wants it in every pool that it fits into."""
