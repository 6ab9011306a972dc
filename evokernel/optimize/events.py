"""Owns what happens in a run as typed records, made of the plain values of `events.jsonl`.

`events.jsonl` and `on_event` speak plain dictionaries, so that any program can read them. Fields
that a later version adds are left out here; a kind that this version does not know is a `RunEvent`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict

from evokernel.attempt import Stage, Usage
from evokernel.evaluation import Status
from evokernel.frozen import Frozen


class RunEvent(Frozen):
    """Something that happened in a run."""

    model_config = ConfigDict(extra="ignore")

    kind: str
    """The name of the class in lower case."""
    at: float
    """Seconds since 1970."""
    elapsed: float
    """Seconds of the run, all sessions together."""


class Began(RunEvent):
    """The run folder is there."""

    run: str
    path: str
    task: str


class Resumed(Began):
    """A run that was stopped goes on."""


class Note(RunEvent):
    """Something to know about the run."""

    text: str


class Examined(Note):
    """What the check of the task found."""


class Phase(Note):
    """What the evaluator is doing now."""


class Baselines(RunEvent):
    """The times to beat."""

    median_ms: dict[str, float]
    seconds: float


class Step(RunEvent):
    """A step was planned."""

    number: int
    stage: Stage
    trajectory: int
    why: str
    parents: tuple[str, ...] = ()
    """Hashes of the candidates to start from."""
    shown: tuple[str, ...] = ()
    """Ids of the experiences that memory brought back."""


class Skipped(RunEvent):
    """The proposer had nothing new for a step."""

    number: int
    why: str


class Proposed(RunEvent):
    """A candidate is there."""

    number: int
    candidate: str
    """Its hash."""
    techniques: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    rationale: str = ""
    usage: Usage = Usage()


class Try(RunEvent):
    """One combination of the values that a candidate leaves open was tried."""

    number: int
    status: Status
    ratio: float | None = None
    is_best: bool = False


class Tuned(RunEvent):
    """The values that a candidate left open were chosen."""

    number: int
    candidate: str
    text: str


class Repeats(RunEvent):
    """A candidate was proposed before; its verdict is used again."""

    number: int
    of: int


class Compiled(RunEvent):
    """Every kernel of a candidate was built."""

    number: int


class Disturbed(RunEvent):
    """The machine spoiled an evaluation; it is made again."""

    number: int
    attempt: int
    reason: str


class Evaluated(RunEvent):
    """A candidate was judged."""

    number: int
    status: Status
    reason: str
    median_ms: float | None = None
    speedups: dict[str, float] = {}


class Profiled(RunEvent):
    """What bounds a kernel is known."""

    number: int
    bound_by: str
    limits: tuple[str, ...] = ()


class AttemptClosed(RunEvent):
    """A step counts as an attempt now; memory has learned from it. Its `kind` is `attempt`."""

    number: int
    reward: float | None
    is_best: bool


class Promoting(RunEvent):
    """Results get a second look in fresh processes."""

    claims: int


class Promoted(Promoting):
    """What the second look said."""

    answered: int
    hold: int


class Stopping(RunEvent):
    """A rule ends the run; what is still open is settled."""

    rule: str
    reason: str


class Ended(RunEvent):
    """The run is over."""

    reason: str


class Stopped(RunEvent):
    """The run was stopped, and can be resumed."""


class Failed(RunEvent):
    """The run cannot go on; it is kept and can be resumed."""

    error: str


KINDS: dict[str, type[RunEvent]] = {
    **{
        kind.__name__.lower(): kind
        for kind in (
            *(
                Began,
                Resumed,
                Note,
                Examined,
                Phase,
                Baselines,
                Step,
                Skipped,
                Proposed,
                Try,
                Tuned,
            ),
            *(Repeats, Compiled, Disturbed, Evaluated, Profiled, Promoting, Promoted, Ended),
            *(Stopping, Stopped, Failed),
        )
    },
    "attempt": AttemptClosed,
}
"""What `RunEvent.kind` stands for."""


def typed(event: Mapping[str, Any]) -> RunEvent:
    """The record of a plain event, as `on_event` and the lines of `events.jsonl` give it."""
    return KINDS.get(str(event["kind"]), RunEvent).model_validate(event)
