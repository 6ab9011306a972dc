"""Owns how episodes go, and what an author sees of them."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from evokernel.answers import Answer
from evokernel.attempt import Backend
from evokernel.config import MemoryConfig
from evokernel.evaluation import Outcome, Status
from evokernel.frozen import Frozen
from evokernel.training.returns import Form


class EnvironmentConfig(Frozen):
    """How episodes go."""

    turns: int = Field(default=4, ge=1)
    """Turns of an episode (Kevin trains with 4 and tests with 8)."""
    reward: str = "kevin"
    """Name of the reward."""
    form: Form = "sum"
    """How later turns count for earlier ones in `Observation.returns`."""
    gamma: float | None = None
    """Discount; None is Kevin's for the form."""
    edits: Literal["last", "best"] = "last"
    """Which attempt a turn is shown and asked to change: the last one, or the fastest right one."""
    backend: Backend = "cpp"
    """Language of the kernels."""
    contract: Literal["own_kernels_only", "library_allowed"] = "own_kernels_only"
    """What a candidate may call."""
    measurement: Literal["standard", "quick"] = "standard"
    """`quick` is rough and several times faster."""
    compile: bool = False
    """Time torch.compile as well; `milestone` and `sigmoid` are made for it. Preparing it takes
    half a minute a task."""
    threads: int = Field(default=0, ge=0)
    """CPU threads; 0 is all."""
    runs: Path = Path("runs")
    """Folder that receives a run folder per episode."""
    memory: MemoryConfig = MemoryConfig(policy="none")
    """What memory shows. By default nothing: the author alone is to learn. What it keeps dies with
    the episode unless `path` names a folder."""
    force: bool = False
    """Accept tasks that fail their check."""
    evaluators: int = Field(default=2, ge=1)
    """Tasks that stay prepared; each holds some 600 MB."""


class Text(Frozen):
    """One message of a chat."""

    role: Literal["system", "user"]
    content: str


class Observation(Frozen):
    """Where an episode stands: after `reset`, or what became of a reply."""

    episode: str
    """Its id, and that of its run."""
    task: str
    turn: int
    """Replies judged so far."""
    done: bool
    """No more replies are taken."""
    messages: tuple[Text, ...]
    """What to answer next; none when done."""
    reward: float | None = None
    """Of the last reply; None after `reset`, and where the rule needs what was not measured."""
    returns: tuple[float, ...] = ()
    """When done: what each turn and those after it earned, discounted."""
    feedback: str = ""
    """What became of the last reply, in words."""
    status: Status | None = None
    outcome: Outcome | None = None
    answers: tuple[Answer, ...] = ()
    """Compiles, right, contract, faster, coverage: for rewards of your own."""
    median_ms: float | None = None
    """Of one call, milliseconds."""
    speedups: dict[str, float] = {}
    """Over `eager` and, where it was timed, `compile`."""
    best: float | None = None
    """Largest speedup over eager of the episode so far."""
