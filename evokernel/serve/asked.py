"""Owns the arguments of the tools; their schemas are what a client sees."""

from typing import Literal

from pydantic import ConfigDict, Field

from evokernel.attempt import Backend
from evokernel.frozen import Frozen

SOURCE_LIMIT = 1_000_000
"""Characters of a candidate or a task (ours)."""
LONGEST_WAIT_S = 600.0
"""How long `run_status` may wait, seconds (ours)."""


class Asked(Frozen):
    """The arguments of one tool."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Sitting(Asked):
    """Which run of the caller's own a call belongs to: one that goes on, or a task's."""

    task: str | None = Field(default=None, max_length=SOURCE_LIMIT)
    """Name of a built-in task (`softmax`), path of a task file, or its whole text: a Python module
    with `Model`, `get_inputs` and, where needed, `get_init_inputs`. Needed unless `run` is
    given."""
    run: str | None = None
    """Id of a run that an earlier `evaluate` or `recall` began, to go on with it after the server
    was started anew. Within one session `task` is enough."""
    backend: Backend | None = None
    """Language of the kernels; what fits the machine by default. `cuda` and `triton` need a GPU."""
    contract: Literal["own", "library"] = "own"
    """Who may compute: `own` kernels only, or the `library` (torch), too."""
    quick: bool = False
    """Measure roughly, within about a second, and against eager alone. For a first look; such a run
    is another than that of full measurements."""
    force: bool = False
    """Accept a task that fails its check; every result carries the label then."""


class Recall(Sitting):
    """Arguments of `recall`."""

    parent: int = Field(default=0, ge=0)
    """The attempt that you are about to edit or repair; 0 for a candidate from nothing."""


class Evaluate(Sitting):
    """Arguments of `evaluate`."""

    source: str = Field(max_length=SOURCE_LIMIT)
    """The candidate: a whole Python module with `class ModelNew(torch.nn.Module)`."""
    parent: int | None = Field(default=None, ge=0)
    """The attempt that it was made from, so that memory learns the edit; 0 for none. By default the
    most similar one of the run, if at least half of its lines are the same."""
    techniques: tuple[str, ...] = ()
    """Techniques that it applies, by their names in the resource `evokernel://techniques`."""
    note: str = Field(default="", max_length=2000)
    """What you changed and why, in a sentence or two."""
    used: tuple[str, ...] = ()
    """Ids of recalled experiences that you made use of."""


class StartRun(Asked):
    """Arguments of `start_run`."""

    task: str = Field(max_length=SOURCE_LIMIT)
    """Name of a built-in task, path of a task file, or its whole text."""
    attempts: int = Field(default=16, ge=1)
    """Candidates to judge at most."""
    minutes: float | None = Field(default=None, gt=0)
    """Minutes to spend at most; no limit by default."""
    backend: Backend | None = None
    """Language of the kernels; what fits the machine by default."""
    model: str | None = None
    """A model that writes the candidates, as `PROVIDER/NAME`, with a key in the server's
    environment; the built-in templates by default, which cost nothing."""
    usd: float | None = Field(default=None, gt=0)
    """US dollars that the model may cost at most; no limit by default."""
    seed: int = Field(default=0, ge=0)
    """Seed of every random choice."""
    quick: bool = False
    """Measure roughly."""
    force: bool = False
    """Run a task that fails its check all the same."""


class RunStatus(Asked):
    """Arguments of `run_status`."""

    run: str
    """Id of a run."""
    wait_s: float = Field(default=0.0, ge=0, le=LONGEST_WAIT_S)
    """Wait so many seconds at most for the end of the run; events come as progress meanwhile."""


class StopRun(Asked):
    """Arguments of `stop_run`."""

    run: str
    """Id of a run."""


class Best(Asked):
    """Arguments of `best`."""

    run: str
    """Id of a run."""
    confirm: bool = False
    """Look again, in fresh processes, at what was not looked at yet (10 to 60 seconds). Only what
    holds then becomes active in memory. For runs of your own evaluations; others do it by
    themselves."""


class Profile(Asked):
    """Arguments of `profile`."""

    run: str
    """Id of a run."""
    attempt: int | None = Field(default=None, ge=1)
    """Which attempt; the best one by default."""


class Remember(Asked):
    """Arguments of `remember`."""

    run: str
    """Id of the run that taught it."""
    note: str = Field(min_length=10, max_length=4000)
    """What was learned, as you would tell somebody who is about to write such a kernel."""
    techniques: tuple[str, ...] = ()
    """Techniques that it is about."""
    attempt: int | None = Field(default=None, ge=1)
    """The attempt that shows it."""


class Doctor(Asked):
    """Arguments of `doctor`."""

    checks: tuple[str, ...] = ()
    """Only these checks, by name; all by default."""
