"""Owns `Series`: the blocks of a timing, and what can be read off them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evokernel.bench.disturbance import Disturbance
from evokernel.bench.gpu.monitor import GpuDisturbance
from evokernel.bench.messages import Outcome, Turn, Way
from evokernel.bench.oracle import Case

CANDIDATE = "candidate"
IDLE = "idle"
"""The side of the calls that only show what the way there and back takes."""


@dataclass(frozen=True)
class Block:
    """One repetition of each side."""

    seconds: dict[str, float]
    """Wall time of one call by side."""
    clean: dict[str, bool]
    """Whether the repetition was left alone, by side."""
    turns: dict[str, Turn] = field(default_factory=dict)
    """What was seen from outside, by side; `IDLE` too where all of it was supplied from there."""
    walls: dict[str, float] = field(default_factory=dict)
    """On a GPU, by side: wall time of one call from launch to end; `seconds` is device time."""
    late: dict[str, float] = field(default_factory=dict)
    """On a GPU, by side: device time for which other streams went on after the call's own."""
    signs: GpuDisturbance | None = None
    """On a GPU: clocks, temperature and others meanwhile."""

    @property
    def is_watched(self) -> bool:
        """Whether inputs and empty caches came from outside; otherwise each side made its own."""
        return IDLE in self.turns


@dataclass
class Series:
    """The blocks of one process of each side."""

    blocks: list[Block] = field(default_factory=list)
    outputs: dict[str, list[tuple[Case, Outcome]]] = field(default_factory=dict)
    """By candidate, outputs of timed repetitions with the case that says what is right."""
    noise: Disturbance | GpuDisturbance | None = None
    """What the machine or the GPU showed in the whole section."""
    restless: Disturbance | GpuDisturbance | None = None
    """What it showed when waiting for a quiet moment was given up."""
    is_outside: bool = True
    """Inputs were written and outputs read from outside; on a GPU, workers can be read."""
    way: Way | None = None
    """How a GPU timed the calls; None for a processor."""
    on_walls: set[str] = field(default_factory=set)
    """Sides whose wall time counts, since nothing from outside shows their device time."""

    @property
    def counted(self) -> list[Block]:
        """The blocks that make the number: one kind of them, as caches and threads differ."""
        return [block for block in self.blocks if not block.is_watched] or self.blocks

    def pairs(
        self, opponent: str, side: str = CANDIDATE, tolerant: bool = False
    ) -> list[tuple[float, float]]:
        """Times of (opponent, side) from the blocks in which both are clean, or from all."""
        return [
            (block.seconds[opponent], block.seconds[side])
            for block in self.counted
            if tolerant or (block.clean[opponent] and block.clean[side])
        ]

    def kept(self, side: str = CANDIDATE) -> tuple[tuple[Case, Outcome], ...]:
        """Outputs of one candidate's timed repetitions, with the case that says what is right."""
        return tuple(self.outputs.get(side, ()))

    def clean(self, sides: Sequence[str] = ()) -> int:
        """Blocks in which all of these sides, or simply all, were left alone."""
        return sum(all(b.clean[side] for side in sides or b.clean) for b in self.counted)

    def times(self, side: str = CANDIDATE, tolerant: bool = False) -> list[float]:
        """Times of one side, seconds per call."""
        return [block.seconds[side] for block in self.counted if tolerant or block.clean[side]]

    def count_walls(self, side: str) -> None:
        """Let the wall time of a side count instead of its device time."""
        self.on_walls.add(side)
        self.blocks = [
            replace(block, seconds={**block.seconds, side: block.walls[side]})
            for block in self.blocks
        ]

    def walls(self, side: str = CANDIDATE, tolerant: bool = False) -> list[float]:
        """Wall times of one side, seconds per call; none for a processor, whose times they are."""
        blocks = [block for block in self.blocks if side in block.walls]
        return [block.walls[side] for block in blocks if tolerant or block.clean[side]]

    def dropped(self, side: str = CANDIDATE) -> int:
        """Disturbed repetitions of one side."""
        return sum(not block.clean[side] for block in self.counted)
