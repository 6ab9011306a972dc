"""Owns the removal of operators: does each one of the reference change what comes out?

An operator is taken out while `forward` runs: the call hands one of its arguments on, or zeros. So
it works for every reference, also for those that cannot be captured as an operator graph.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from evokernel.bench import families
from evokernel.bench.correctness import tensors
from evokernel.bench.oracle import Case
from evokernel.bench.reference import Expectation, copied
from evokernel.bench.rehearsal import Finding, Rehearsal, accepts
from evokernel.errors import TaskError
from evokernel.opgraph.operators import kind_of
from evokernel.wording import counted

COMPUTING = frozenset(
    [
        "pointwise",
        "reduction",
        "softmax",
        "normalization",
        "scan",
        "loss",
        "contraction",
        "attention",
        "convolution",
        "pooling",
    ]
)
"""Kinds of operators that are taken out; what moves data or makes constants computes nothing."""
SPELLINGS = {"truediv": "div", "rtruediv": "div", "rdiv": "div", "itruediv": "div", "divide": "div"}
SPELLINGS |= {"rsub": "sub", "isub": "sub", "subtract": "sub", "radd": "add", "iadd": "add"}
SPELLINGS |= {"rmul": "mul", "imul": "mul", "multiply": "mul", "rpow": "pow", "rmatmul": "matmul"}
"""Names of Python's own operators and of torch's synonyms."""


GUARDS = frozenset({"nan_to_num", "clamp", "where", "masked_fill"})
"""Operators that may be there for special values alone."""


class Call(NamedTuple):
    """One operator that `forward` calls, and what stands in for it."""

    number: int
    """Place among all calls."""
    name: str
    stand_ins: tuple[int, ...]
    """Places of the arguments that look like the result; -1 is zeros."""


class _Calls(TorchFunctionMode):
    """Notes every call of a torch function that `forward` makes, or takes one of them out."""

    def __init__(self, module: torch.nn.Module, target: int = -1, stand_in: int = -1) -> None:
        super().__init__()
        self._state = {id(value) for value in (*module.parameters(), *module.buffers())}
        self.found: list[Call] = []
        self._count = 0
        self._target = target
        self._stand_in = stand_in

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        number, self._count = self._count, self._count + 1
        if number == self._target and self._stand_in >= 0:
            return args[self._stand_in]
        result = func(*args, **(kwargs or {}))
        if number == self._target:
            return torch.zeros_like(result)
        self._note(number, func, args, result)
        return result

    def _note(self, number: int, func: Any, args: Sequence[Any], result: Any) -> None:
        name = _plain(getattr(func, "__name__", ""))
        if name == "to" or kind_of(name) not in COMPUTING or not isinstance(result, torch.Tensor):
            return
        if id(result) in self._state:  # what it counts or averages is not read by this call
            return
        places = [place for place, arg in enumerate(args) if _looks_like(arg, result)]
        if any(map(self._is_weight, args)):  # ones and zeros are usual; `weights` looks at them
            places = []
        if places and args[places[0]] is result:  # it writes into its argument: nothing to zero
            self.found.append(Call(number, name, tuple(places)))
        elif result.dtype.is_floating_point:
            self.found.append(Call(number, name, (*places, -1)))

    def _is_weight(self, arg: Any) -> bool:
        """Whether it is a parameter or buffer, or a view of one."""
        if not isinstance(arg, torch.Tensor):
            return False
        return id(arg if arg._base is None else arg._base) in self._state


def of_operators(rehearsal: Rehearsal, seconds: float) -> Finding:
    """Take one operator after the other out, and see whether the comparison notices.

    Every family of inputs is tried until one notices: the ReLU of positive numbers, or what guards
    a division, shows on some inputs only.

    Args:
        rehearsal: The task.
        seconds: After which no further operator is begun with.
    """
    limit = time.monotonic() + seconds
    noting = _Calls(rehearsal.module)
    _run(rehearsal, noting, rehearsal.inputs)
    idle: list[str] = []
    done = 0
    for call in noting.found:
        if done and time.monotonic() > limit:
            break
        done += 1
        idle += [_told(call, place) for place in call.stand_ins if _is_idle(rehearsal, call, place)]
    if idle:
        return Finding(
            False,
            f"{'; '.join(dict.fromkeys(idle))}: with it taken out the output stays within the "
            "tolerance on the inputs of every family; leave it out, or choose inputs and weights "
            "for which it matters",
        )
    left = len(noting.found) - done
    late = f"; no time was left for {counted(left, 'more operator')}" if left else ""
    return Finding(True, f"taking out any of {counted(done, 'operator')} is noticed{late}")


def _is_idle(rehearsal: Rehearsal, call: Call, place: int) -> bool:
    """Whether no family tells the reference from itself without this operator.

    Special values pass through almost everything: they would notice what nothing else does.
    """
    chosen = families.FAMILIES if call.name in GUARDS else families.TELLING
    return not any(_notices(rehearsal, case, call, place) for case in rehearsal.cases(chosen))


def _notices(rehearsal: Rehearsal, case: Case, call: Call, place: int) -> bool:
    want = rehearsal.oracle.expected(case)
    if not any(limits.is_evidence for limits in want.limits):
        return False
    try:
        found = _run(
            rehearsal, _Calls(rehearsal.module, call.number, place), rehearsal.oracle.inputs(case)
        )
    except (TaskError, IndexError, TypeError):  # without it the rest makes no sense
        return True
    return len(found) != len(want.limits) or not _passes(want, found)


def _passes(want: Expectation, found: list[torch.Tensor]) -> bool:
    return all(accepts(want, number, value) for number, value in enumerate(found))


def _run(rehearsal: Rehearsal, mode: _Calls, inputs: list[Any]) -> list[torch.Tensor]:
    given = copied(inputs)
    with mode:
        made = rehearsal.program.call(rehearsal.module, given)
    return [value for _, value in tensors(made)]


def _looks_like(arg: Any, result: torch.Tensor) -> bool:
    return isinstance(arg, torch.Tensor) and arg.shape == result.shape and arg.dtype == result.dtype


def _plain(name: str) -> str:
    bare = name.strip("_")
    return SPELLINGS.get(bare, bare)


def _told(call: Call, place: int) -> str:
    how = "zeros" if place < 0 else f"argument {place + 1} alone"
    return f"`{call.name}` (call {call.number + 1}) might as well give {how}"
