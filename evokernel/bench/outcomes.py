"""Owns the making of an `Outcome` of what a worker sent, or of what was read out of it."""

from typing import Any

from evokernel.bench.correctness import tensors
from evokernel.bench.hold import Hold
from evokernel.bench.messages import Launch, Outcome, TensorFacts, Turn
from evokernel.bench.places import fetch
from evokernel.bench.tensors import Layout
from evokernel.bench.trees import BadTree
from evokernel.bench.wire import Message
from evokernel.wording import plain


def outcome(outputs: Any, layouts: tuple[Layout, ...], reply: Message) -> Outcome:
    """Put together what a worker sent; where a figure can be had from the tensors, it is.

    Raises:
        BadTree, KeyError, TypeError, ValueError, AttributeError: It sent something else.
    """
    facts = [TensorFacts.model_validate(item) for item in reply["facts"]]
    return Outcome(
        outputs=outputs,
        facts=_placed(outputs, layouts, facts),
        changed_inputs=tuple(int(number) for number in reply["changed"]),
        seconds=float(reply["seconds"]),
        operators={str(name): int(count) for name, count in reply["operators"].items()},
        launches=tuple(Launch(kernel=str(k), seconds=float(s)) for k, s in reply["launches"]),
        threads_left=int(reply["left"]),
    )


def read_out(hold: Hold, turn: Turn, limit: int) -> Outcome:
    """The outcome of a timed call, read from outside.

    Args:
        hold: Its worker, stopped.
        turn: What is known of the call.
        limit: Bytes that the output may have.

    Raises:
        BadTree: It is damaged or too large.
        Unreachable: The memory cannot be read.
    """
    outputs, layouts = fetch(hold, turn, limit)
    return Outcome(
        outputs=outputs,
        facts=_placed(outputs, layouts, [place.facts for place in turn.places]),
        changed_inputs=(),
        seconds=1e-9 * turn.repetition.nanoseconds,
        operators={},
        launches=(),
        threads_left=0,
    )


def _placed(
    outputs: Any, layouts: tuple[Layout, ...], facts: list[TensorFacts]
) -> tuple[TensorFacts, ...]:
    paths = [path for path, _ in tensors(outputs)]
    if not len(paths) == len(layouts) == len(facts):
        raise BadTree("a structure that does not name each tensor once")
    pairs = zip(paths, layouts, facts, strict=True)
    return tuple(
        f.model_copy(update={"path": plain(p), "shape": lay.shape, "dtype": lay.dtype})
        for p, lay, f in pairs
    )
