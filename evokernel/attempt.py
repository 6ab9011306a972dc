"""Owns one step of a run: `Stage`, `Candidate`, `Proposal`, `Attempt`."""

import hashlib
import tokenize
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from evokernel.evaluation import Evaluation
from evokernel.frozen import Frozen
from evokernel.tuning import Tuning

Backend = Literal["cpp", "cuda", "triton"]


class Stage(StrEnum):
    """Which of the two phases a step belongs to."""

    DRAFT = "draft"
    """Get something feasible; repairing a failed draft belongs here."""
    REFINE = "refine"
    """Make a feasible kernel faster."""


class Candidate(Frozen):
    """Proposed source, unproven; the same source is the same candidate."""

    source: str
    """A Python module with `ModelNew`."""
    backend: Backend
    """The language its kernels are written in."""

    @cached_property
    def sha(self) -> str:
        """First 16 hex digits of the SHA-256 of backend and source."""
        return hashlib.sha256(f"{self.backend}\n{self.source}".encode()).hexdigest()[:16]


NO_TEXT = "it is not text in UTF-8, or in the encoding that its first lines declare"
"""Why `source_of` raised `ValueError`, in words."""


def source_of(path: Path) -> str:
    """The text of a Python file in the encoding that it declares, as the interpreter reads it.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not text in that encoding, or the encoding is unknown.
    """
    try:
        with tokenize.open(path) as file:
            return file.read()
    except SyntaxError as error:
        raise ValueError(str(error)) from error


class Usage(Frozen):
    """What a proposal cost."""

    tokens_in: int = 0
    """Prompt tokens."""
    tokens_out: int = 0
    """Completion tokens."""
    usd: float | None = 0.0
    """US dollars; None means that the price is unknown."""
    seconds: float = 0.0
    """Wall seconds the proposer took."""
    is_estimated: bool = False
    """The server did not count the tokens; these are estimated from the length of the texts."""
    calls: int = 1
    """Replies that these figures are the sum of."""
    tokens_cached: int = 0
    """Prompt tokens that the provider had kept from an earlier call; they are cheaper."""
    tokens_thought: int = 0
    """Tokens of the replies that were spent on reasoning, as far as the server says so."""

    def plus(self, other: "Usage") -> "Usage":
        """Both together; with one unknown price the sum is unknown."""
        prices = (self.usd, other.usd)
        return Usage(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            usd=None if None in prices else sum(price or 0.0 for price in prices),
            seconds=self.seconds + other.seconds,
            is_estimated=self.is_estimated or other.is_estimated,
            calls=self.calls + other.calls,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_thought=self.tokens_thought + other.tokens_thought,
        )


class Fault(Frozen):
    """Why a reply holds no candidate that could be judged."""

    kind: Literal["empty", "cut_off", "filtered", "no_candidate", "diff", "unchanged"]
    """`empty`: no text at all. `cut_off`: it ended at a limit, amid the code. `filtered`: ended by
    a content filter. `no_candidate`: no code block defines `ModelNew`. `diff`: changes or parts in
    place of the whole file. `unchanged`: the code that it was to change."""
    reason: str
    """One sentence in words, for the record and for whoever replies next."""


class ToolUse(Frozen):
    """One tool that an author had used while it wrote."""

    tool: str
    outcome: str
    """In a few words."""
    seconds: float = 0.0
    """Wall seconds."""
    is_error: bool = False
    """It was called wrongly; what is wrong with a candidate is none."""


class Proposal(Frozen):
    """What a proposer hands over: a candidate and what it says about it."""

    candidate: Candidate
    """A comment in place of a kernel where there is a `fault`."""
    stage: Stage
    """What was asked for."""
    parents: tuple[str, ...] = ()
    """Hashes of the candidates it was made from: none, one (mutation) or two (recombination)."""
    techniques: tuple[str, ...] = ()
    """Names of the techniques it applies, from the catalogue."""
    changed: tuple[str, ...] = ()
    """Techniques or parameters that differ from the first parent."""
    used: tuple[str, ...] = ()
    """Ids of the shown experiences that it says it used."""
    rationale: str = ""
    """Why, in a sentence or two."""
    analysis: str = ""
    """What its author makes of the facts that it was shown."""
    predicted: float | None = None
    """How many times as fast its author expects it to be as what it was made from."""
    author: str = ""
    """The model that wrote it; empty where the run's proposer did."""
    prompt: str = ""
    """What the author was shown, in full; empty for authors that read no prompt."""
    texts: str = ""
    """Hash of the texts that the prompt was made of; empty without a prompt."""
    reply: str = ""
    """What the author answered, in full."""
    fault: Fault | None = None
    """Why nothing can be judged: the attempt ends as `invalid_source`."""
    remark: str = ""
    """What was odd about a reply that can be judged, for whoever replies next."""
    usage: Usage = Usage()
    """What writing it took."""
    tools: tuple[ToolUse, ...] = ()
    """What its author had done for it before, in order."""
    tuning: Tuning | None = None
    """How the harness chose the values in the candidate; None where it declared nothing to tune."""


class Attempt(Frozen):
    """Candidate, evaluation, parents, and what was shown to the proposer: one step of a run."""

    number: int
    """One-based; charged and uncharged attempts alike."""
    step: str
    """Unique id of the step, `<run>/<number>`; every write to memory carries it."""
    trajectory: int
    """Which of the `width` trajectories it belongs to."""
    proposal: Proposal
    """What its author handed in."""
    evaluation: Evaluation
    """What was found of it."""
    shown: tuple[str, ...] = ()
    """Ids of the experiences that were shown."""
    reward: float | None = None
    """Reward of the step; None where it was not charged."""

    @model_validator(mode="after")
    def _same_candidate(self) -> Self:
        if self.evaluation.candidate != self.proposal.candidate.sha:
            raise ValueError("the evaluation belongs to another candidate")
        return self

    @property
    def median_ms(self) -> float | None:
        """Median time of one call in milliseconds, or None if it is not feasible."""
        timing = self.evaluation.timing
        return timing.median_ms if timing else None
