"""Owns what the reference makes of given inputs, at its own precision and in fp64."""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evokernel.bench import correctness, pieces, tolerance, weights
from evokernel.bench.correctness import Form
from evokernel.bench.tolerance import Limits
from evokernel.errors import TaskError
from evokernel.nested import leaves, map_leaves
from evokernel.opgraph import OpGraph
from evokernel.program import Program, to_dtype
from evokernel.program.estimate import ReferencePlan, plan_reference
from evokernel.task import Workload

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Expectation:
    """What the reference makes of one set of inputs."""

    skeleton: str
    """Structure of what it returns."""
    forms: tuple[Form, ...]
    """One per output tensor."""
    limits: tuple[Limits, ...]
    """One per output tensor."""
    modified: tuple[int, ...]
    """Indices of input tensors that the reference itself overwrites."""
    aliased: tuple[int, ...]
    """Indices of output tensors that share memory with an input in the reference."""

    @property
    def is_evidence(self) -> bool:
        """Whether a comparison with it shows anything."""
        return any(limits.is_evidence for limits in self.limits)

    @property
    def bytes(self) -> int:
        """Memory that it holds."""
        return sum(limits.bytes for limits in self.limits)

    @property
    def output_bytes(self) -> tuple[int, ...]:
        """Bytes of each output tensor."""
        return tuple(form.bytes for form in self.forms)


class Reference:
    """The task's reference with one set of weights, run in this process.

    Args:
        program: The task's file, executed.
        weights_seed: Seed of the weights.
        graph: Operator graph of its first workload, if it could be captured; it tells how long
            reductions are, and whether rows are independent.
        memory_bytes: Memory for a call at both precisions; None is half of what is free on the
            device.
        redraw: Give weights that are constant other values (see `weights`).
        device: Where it runs.
    """

    def __init__(
        self,
        program: Program,
        weights_seed: int,
        graph: OpGraph | None = None,
        memory_bytes: int | None = None,
        redraw: bool = False,
        device: str = "cpu",
    ) -> None:
        import torch

        self.program = program
        self.graph = graph
        self.weights_seed = weights_seed
        self._module = program.build(weights_seed)
        self._exact_module = program.build(weights_seed, torch.float64)
        if redraw:
            other = weights.redrawn(self._module.state_dict(), weights_seed)
            for module in (self._module, self._exact_module):
                module.load_state_dict(other, strict=False)
        self.state = {name: value.clone() for name, value in self._module.state_dict().items()}
        """Its weights, on the processor."""
        if device != "cpu":
            from evokernel.bench.gpu import placing

            for module in (self._module, self._exact_module):
                placing.move(module, device)
        self.notes: list[str] = []
        """What limits the checks."""
        self.is_deterministic = True
        """No call so far gave other bits than an earlier one on the same inputs."""
        self.depth = 1
        """Upper estimate of the longest reduction behind an output element."""
        self._has_exact = True
        self._memory_bytes = memory_bytes or free_bytes(device) // 2
        self._plans: dict[str, ReferencePlan] = {}
        self._repeated: set[str] = set()

    def plan(self, workload: Workload) -> ReferencePlan:
        """How the fp64 reference of a workload is made to fit.

        Raises:
            TaskError: Nothing fits; the message holds both figures.
        """
        if workload.name not in self._plans:
            graph = self.graph if workload.index == 0 else None
            found = plan_reference(self.program, workload, graph, self._memory_bytes)
            if found.label:
                self.notes.append(f"workload `{workload.name}`: {found.label}")
            self._plans[workload.name] = found
        return self._plans[workload.name]

    def expect(
        self,
        inputs: list[Any],
        workload: Workload,
        is_hard: bool = False,
        is_exact: bool = False,
    ) -> Expectation:
        """Run it at both precisions and set the limits.

        Args:
            inputs: Arguments of `forward`; they are left alone.
            workload: Which workload's they are.
            is_hard: Allow for what one rounding of the inputs does to the results (see
                `tolerance`).
            is_exact: Allow no error where every value is a whole number; a task that sets its own
                limits keeps them.

        Raises:
            TaskError: It refuses these inputs, two calls on them differ, or they do not fit.
        """
        plan = self.plan(workload)
        passed = copied(inputs)
        own = self.program.call(self._module, passed)
        found = correctness.tensors(own)
        modified = _modified(inputs, passed)
        aliased = _aliased([value for _, value in found], passed)
        if workload.name not in self._repeated:
            self._repeated.add(workload.name)
            self._repeat(inputs, own)
        self.depth = max(self.depth, self._depth(inputs, found))
        limits = self._limits(inputs, own, plan, is_hard)
        return Expectation(
            skeleton=correctness.skeleton(own),
            forms=tuple(correctness.form(path, value) for path, value in found),
            limits=tuple(one.exact() for one in limits) if is_exact and self._is_ours else limits,
            modified=modified,
            aliased=aliased,
        )

    @property
    def _is_ours(self) -> bool:
        """Whether the limits follow our rule, not the task's own numbers."""
        return not tolerance.is_given(self.program.task.options.tolerance)

    def _limits(
        self, inputs: list[Any], own: Any, plan: ReferencePlan, is_hard: bool
    ) -> tuple[Limits, ...]:
        """Limits from fp64 on everything, or from the error on some rows where no more fits."""
        if plan.mode != "reduced":
            exact = self._exact(inputs, own, plan)
            moved = self._exact(shaken(inputs, self.depth), own, plan) if is_hard else None
            return self._compared(own, exact, moved)
        (cut,) = plan.pieces(inputs)
        some = self.program.call(self._module, copied(cut))
        seen = self._compared(some, self._exact(cut, some, plan))
        return tuple(
            limits.raised(2 * float(part.reach.max()) if part.reach.numel() else 0.0)
            for limits, part in zip(self._compared(own, own), seen, strict=True)
        )

    def _compared(self, own: Any, exact: Any, moved: Any = None) -> tuple[Limits, ...]:
        options = self.program.task.options
        follow = options.special_values == "follow"
        mine, truth, other = (_values(tree) for tree in (own, exact, moved))
        with pieces.calm_threads():
            return tuple(
                tolerance.limits(one, two, options.tolerance, self.depth, follow, three)
                for one, two, three in itertools.zip_longest(mine, truth, other)
            )

    def _exact(self, inputs: list[Any], own: Any, plan: ReferencePlan) -> Any:
        """The fp64 reference's outputs; where it cannot run in fp64, its own at its precision."""
        if self._has_exact:
            try:
                if plan.mode != "chunked":
                    return self._wide(inputs)
                return plan.join([self._wide(piece) for piece in plan.pieces(inputs)])
            except TaskError as error:
                self._has_exact = False
                self.notes.append(
                    "the reference does not run in fp64: its results at its own precision are the "
                    f"truth, and the floor is the tolerance ({str(error).splitlines()[0]:.160})"
                )
        return own

    def _wide(self, inputs: list[Any]) -> Any:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        wide = to_dtype(inputs, torch.float64)
        spared = {id(value) for _, value in correctness.tensors(inputs)}
        args = map_leaves(lambda leaf: leaf.clone() if id(leaf) in spared else leaf, wide)
        # By its formula: the fused kernels of some processors take a row of NaN for a masked one.
        with sdpa_kernel(SDPBackend.MATH):
            return self.program.call(self._exact_module, args)

    def _repeat(self, inputs: list[Any], first: Any) -> None:
        """Find out whether the reference itself gives the same bits twice."""
        again = self.program.call(self._module, copied(inputs))
        if correctness.same_bits(first, again) is None:
            return
        self.is_deterministic = False
        pairs = zip(correctness.tensors(first), correctness.tensors(again), strict=True)
        for (path, one), (_, two) in pairs:
            if not agree(one, two):
                raise TaskError(
                    f"`{self.program.task.name}`: output `{path}` of the reference differs from "
                    "one call to the next on the same inputs, so that nothing can be compared with "
                    "it; expected a deterministic reference (with dropout, say "
                    '`EVOKERNEL = {"mode": "eval"}`)'
                )

    def _depth(self, inputs: list[Any], found: list[tuple[str, torch.Tensor]]) -> int:
        """The longest dimension or ratio of sizes that a reduction can run over."""
        import torch

        if self.graph is not None and self.graph.family == "elementwise":
            return 1
        args = [leaf for _, leaf in leaves(inputs) if isinstance(leaf, torch.Tensor)]
        read = [*args, *self.state.values()]
        written = max(1, min((value.numel() for _, value in found), default=1))
        longest = max((size for value in read for size in value.shape), default=1)
        folded = max((value.numel() // written for value in args), default=1)
        return max(1, longest, folded, self._worked(found))

    def _worked(self, found: list[tuple[str, torch.Tensor]]) -> int:
        """Multiply-adds per output element."""
        if self.graph is None:
            return 1
        return self.graph.flops // (2 * max(1, sum(value.numel() for _, value in found)))


def free_bytes(device: str = "cpu") -> int:
    """Memory of a device that could be had now; of the host's, what it gives without swapping."""
    if device != "cpu":
        from evokernel.bench.gpu import memory

        return memory.free_bytes(device)
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def copied(inputs: Any) -> Any:
    """The same nesting with tensors of its own."""
    import torch

    return map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, inputs)


def shaken(inputs: list[Any], depth: int) -> Any:
    """Inputs in fp64 of which half, drawn at random, are off by what `tolerance.shake` says."""
    import torch

    draws: dict[torch.device, torch.Generator] = {}

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        place = leaf.device
        draw = draws.setdefault(place, torch.Generator(place).manual_seed(0))
        chosen = torch.randint(0, 2, leaf.shape, generator=draw, device=place)
        return leaf.double() * (1 + chosen * tolerance.shake(leaf.dtype, depth))

    return map_leaves(change, inputs)


def _values(outputs: Any) -> list[torch.Tensor]:
    return [value for _, value in correctness.tensors(outputs)]


def _modified(before: Any, after: Any) -> tuple[int, ...]:
    pairs = zip(correctness.tensors(before), correctness.tensors(after), strict=True)
    return tuple(
        index for index, (one, two) in enumerate(pairs) if correctness.same_bits(one[1], two[1])
    )


def _aliased(outputs: list[torch.Tensor], inputs: Any) -> tuple[int, ...]:
    owned = {value.untyped_storage().data_ptr() for _, value in correctness.tensors(inputs)}
    return tuple(
        index
        for index, value in enumerate(outputs)
        if value.numel() and value.untyped_storage().data_ptr() in owned
    )


def agree(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two results differ by rounding only."""
    import torch

    if one.shape != two.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, two)
    reach = 16 * math.sqrt(float(torch.finfo(one.dtype).eps))
    largest = float(one.double().abs().nan_to_num(0, 0, 0).max()) if one.numel() else 0.0
    gap = (one.double() - two.double()).abs().nan_to_num(0, 0, 0)
    return not gap.numel() or float(gap.max()) <= reach * largest
