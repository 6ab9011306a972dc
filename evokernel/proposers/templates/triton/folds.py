"""Owns how reductions and scans accumulate in Triton."""

from __future__ import annotations

from evokernel.frozen import Frozen
from evokernel.proposers.templates.expressions import Reduce, Scan
from evokernel.proposers.templates.folds import PLACES
from evokernel.proposers.templates.triton.spelling import TYPES, held, identity
from evokernel.proposers.templates.triton.tile import Tile

_STEPS = {
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "any": "{0} | {1}",
    "all": "{0} & {1}",
    "max": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "min": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "fmax": "tl.maximum({0}, {1})",
    "fmin": "tl.minimum({0}, {1})",
}
_CALLS = {"prod": "times", "max": "larger", "min": "smaller"}
"""Functions of two numbers, for blocks."""


class Fold(Frozen):
    """How one reduction accumulates."""

    name: str
    op: str
    dtype: str

    @classmethod
    def of(cls, value: Reduce | Scan) -> Fold:
        """The fold of a value."""
        dtype = held(value.dtype)
        if isinstance(value, Scan) and value.op == "prod" and dtype == "float32":
            dtype = "float64"  # what underflowed must not meet what overflowed
        return cls(name=value.name, op=value.op, dtype=dtype)

    @property
    def nothing(self) -> str:
        """What it begins with."""
        return identity(self.op, self.dtype)

    def start(self, shape: str) -> str:
        """A block of accumulators."""
        return f"tl.full({shape or '()'}, {self.nothing}, {TYPES[self.dtype]})"

    def masked(self, value: str, mask: str) -> str:
        """The value, with nothing where there is no element."""
        return f"tl.where({mask}, {value}, {self.nothing})" if mask else value

    def step(self, accumulator: str, value: str) -> str:
        """Both together."""
        text = _STEPS[self.op]
        if not self.dtype.startswith("float"):
            text = text.replace(", propagate_nan=tl.PropagateNan.ALL", "")
        return text.format(accumulator, value)

    def total(self, tile: Tile, block: str) -> str:
        """All accumulators of a block to one number each."""
        if self.op == "sum":
            return tile.reduced("tl.sum", block)
        if self.op in ("any", "all"):
            call = "tl.max" if self.op == "any" else "tl.min"
            return f"{tile.reduced(call, f'({block}).to(tl.int32)')} != 0"
        is_plain = self.op in ("fmax", "fmin") or not self.dtype.startswith("float")
        if self.op != "prod" and is_plain:
            return tile.reduced("tl.max" if "max" in self.op else "tl.min", block)
        return tile.reduced("tl.reduce", block, _CALLS[self.op])

    def taken(self, value: Scan, name: str) -> str:
        """The argument of a scan in the dtype of the running result."""
        is_wide = self.dtype != held(value.dtype)
        return f"{name}.to({TYPES[self.dtype]})" if is_wide else name

    def given(self, value: Scan, result: str) -> str:
        """The running result in the scan's own dtype."""
        is_wide = self.dtype != held(value.dtype)
        return f"({result}).to({TYPES[held(value.dtype)]})" if is_wide else result

    def scanned(self, tile: Tile, block: str) -> str:
        """The running reduction within a block."""
        if self.op == "sum":
            return f"tl.cumsum({block}, {tile.axis})"
        call = _CALLS.get(self.op, "larger")
        return f"tl.associative_scan({block}, {tile.axis}, {call})"


class PlaceFold(Frozen):
    """How `argmax` and `argmin` accumulate: the best element, and where it is."""

    name: str
    op: str
    dtype: str
    """Of the elements."""

    @property
    def call(self) -> str:
        """The function that chooses between two elements with their places."""
        return "above" if self.op == "argmax" else "below"

    @property
    def nothing(self) -> str:
        """What no element loses against."""
        return identity(self.op, self.dtype)

    def starts(self, shape: str) -> tuple[str, str]:
        """Accumulators: elements and places; a place past the end loses against all others."""
        return (
            f"tl.full({shape}, {self.nothing}, {TYPES[self.dtype]})",
            f"tl.full({shape}, {2**31 - 1}, tl.int32)",
        )


def is_place(value: Reduce) -> bool:
    """Whether a reduction gives a place."""
    return value.op in PLACES
