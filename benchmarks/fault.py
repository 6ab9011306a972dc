"""Owns `Fault`: a kernel made wrong by one small change, and the classes of such changes."""

from typing import NamedTuple

CLASSES = {
    "tail": "elements after the last full vector, tile or run are left out",
    "off-by-one": "a loop begins one late or ends one early, or an index is shifted by one",
    "wrong stride": "a stride or dimension is wrong, or division and remainder are exchanged",
    "lost maximum": "the largest value is not subtracted before `exp`",
    "reduced precision": "an intermediate is rounded to bfloat16 or float16",
    "rough function": "an elementary function is replaced by a cheap approximation",
    "race": "threads share what each needs for itself, or a barrier is missing",
    "stale buffer": "an accumulator, input or output of an earlier call is used again",
    "swapped operands": "two tensors are exchanged",
    "sign": "a sum is a difference, a difference is turned round, or a negation is missing",
    "first calls only": "right in the first calls, or in most of them",
    "shape": "right for the declared number of rows only, or for multiples of something",
    "cancellation": "a formula or order of summation that loses digits where terms cancel",
    "lost epilogue": "a bias, scale, activation or last step is left out",
    "wrong broadcast": "one element of a parameter serves for all",
    "partial write": "some outputs are not written",
    "wrong constant": "an epsilon, factor or threshold has another value",
    "denominator": "a mean is divided by n - 1 or n + 1",
    "wrong start": "an accumulator does not begin at the neutral element",
    "padding": "the border has another value, or reads what lies beside it",
    "short loop": "a part of the terms of a reduction is left out",
    "input guard": "right for usual values only: clamped, skipped or assumed",
    "special values": "NaN or infinities are lost",
    "denormals": "denormal numbers become zero",
    "input overwritten": "an input is changed",
    "lost weight": "a weight is taken for what constructors leave: ones or zeros",
}


class Fault(NamedTuple):
    """A kernel with one fault."""

    kind: str
    """One of `CLASSES`."""
    what: str
    """The change, for people."""
    source: str
    """The whole text of the candidate."""


def told(text: str) -> str:
    """A piece of a kernel on one line, cut short."""
    return " ".join(text.split())[:90]
