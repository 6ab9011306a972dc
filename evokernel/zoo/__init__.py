"""Owns the zoo: candidates that cheat or are broken, honest ones beside them, and their tasks.

Exhibits are data. `tasks.toml` holds small tasks with an honest kernel each; every other file holds
exhibits. What an exhibit leaves out is the task's honest kernel, put before its own text, so that
only what is special about it stands there.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from evokernel.attempt import Backend, Candidate
from evokernel.evaluation import Status
from evokernel.frozen import Frozen
from evokernel.task import Task

FOLDER = Path(__file__).parent
TASKS = "tasks.toml"
PLAIN = "\n\nclass ModelNew(Honest):\n    pass\n"
"""What makes a candidate of a habitat's kernel."""

Kind = Literal["hostile", "broken", "honest"]
Policy = Literal["own_kernels_only", "library_allowed"]


class Habitat(Frozen):
    """A task of the zoo, small enough for a verdict in about a second."""

    name: str
    source: str
    """The task's file."""
    kernel: str
    """An honest candidate without its `ModelNew`: a class `Honest` that is right and its own
    work."""
    cuda: str = ""
    """The same with kernels in CUDA; empty where no exhibit needs it."""
    triton: str = ""
    """The same in Triton."""

    def honest(self, backend: Backend) -> str:
        """The honest candidate in a language."""
        return {"cpp": self.kernel, "cuda": self.cuda, "triton": self.triton}[backend]

    def task(self, policy: Policy) -> Task:
        """The task under a policy."""
        made = Task.from_source(self.source, self.name)
        options = made.options.model_copy(update={"contract": policy})
        return made.model_copy(update={"options": options})


class Exhibit(Frozen):
    """One candidate of the zoo, and what has to become of it."""

    name: str
    """Unique, e.g. `slow-clock`."""
    kind: Kind
    """`hostile` wants to be believed, `broken` is an honest mistake, `honest` has to pass."""
    code: str = ""
    """Which mechanism, A1 to H8 as in `docs/hacks.md`; empty for honest ones."""
    mechanism: str
    """How it cheats, what is broken, or why it looks suspicious: one sentence."""
    task: str
    """Name of its habitat."""
    expected: tuple[Status, ...]
    """Verdicts that are right."""
    in_text: bool = False
    """A rule that reads the source could see it."""
    wants_time: bool = False
    """It computes what the habitat's honest kernel does and wants a better time for it: where it
    passes with the same time as that, it has come to nothing."""
    quick: bool = False
    """One of those of its code, or of the honest ones of its task, that are looked at where time is
    short: the way of catching it is its own, or it is told in less time than the others."""
    alone: bool = False
    """The source is complete; otherwise the habitat's kernel goes before it."""
    needs: tuple[str, ...] = ()
    """Fields of `Protections`, one of which has to hold for it to be stopped."""
    policy: Policy = "own_kernels_only"
    """Contract under which it is judged."""
    backend: Backend = "cpp"
    """Language of its kernels."""
    source: str
    """What is its own of the candidate's text."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        is_honest = self.kind == "honest"
        if is_honest != (self.expected == (Status.PASSED,)) or Status.INFRASTRUCTURE in (
            self.expected
        ):
            raise ValueError(f"`{self.name}` is {self.kind}, but expects {self.expected}")
        if is_honest == bool(self.code):
            raise ValueError(f"`{self.name}`: who cheats or is broken has a code, and nobody else")
        return self

    @property
    def needs_gpu(self) -> bool:
        """Whether it runs on a CUDA device only."""
        return self.backend != "cpp"

    @property
    def labels(self) -> tuple[str, ...]:
        """By which it can be chosen."""
        return tuple(filter(None, (self.name, self.code, self.kind, self.backend)))

    @property
    def twin(self) -> Candidate:
        """What its time is compared with: the habitat's honest kernel and nothing else."""
        honest = habitats()[self.task].honest(self.backend)
        return Candidate(source=honest + PLAIN, backend=self.backend)

    def candidate(self) -> Candidate:
        """The whole candidate."""
        honest = habitats()[self.task].honest(self.backend)
        kernel = "" if self.alone else honest + "\n\n"
        return Candidate(source=kernel + self.source, backend=self.backend)


@cache
def habitats() -> dict[str, Habitat]:
    """The tasks by name."""
    found = (Habitat.model_validate(item) for item in _read(TASKS)["task"])
    return {habitat.name: habitat for habitat in found}


@cache
def exhibits() -> tuple[Exhibit, ...]:
    """Every exhibit: cheats and mistakes by code, then the honest ones."""
    files = sorted(path.name for path in FOLDER.glob("*.toml") if path.name != TASKS)
    found = [Exhibit.model_validate(item) for name in files for item in _read(name)["exhibit"]]
    return tuple(sorted(found, key=lambda exhibit: (exhibit.code or "Z", exhibit.name)))


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))
