"""Compares a kernel with a fault and the right one on random inputs, against fp64.

A fault that the evaluation has not found is either real and missed, or none: this tells which. It
runs in a process of its own, since the kernel may do anything:

    python benchmarks/random_inputs.py TASK.json RIGHT.py FAULTY.py INPUTS [THREADS]
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from evokernel.bench import correctness, families
from evokernel.bench.families import Nature
from evokernel.bench.oracle import Oracle
from evokernel.nested import leaves, map_leaves
from evokernel.opgraph import capture
from evokernel.task import Task

SEED = 20_260
WITH_SPECIAL = 20
"""Every so many calls, a few of the task's own values are NaN, infinite, denormal or zero."""


class Difference(NamedTuple):
    """What the comparison gave."""

    inputs: int
    """Independent inputs: rows of dimension 0 where these are independent, else whole calls."""
    differing: int
    """Calls whose results were not the same bits."""
    wrong: int
    """Calls with a result beyond the limits."""
    worst: float
    """Largest error as a share of its limit."""


def difference(task: Task, right: str, faulty: str, inputs: int) -> Difference:
    """Call both on the same random inputs until there were enough of them."""
    program = task.program()
    graph = capture(program)
    oracle = Oracle(program, SEED, graph)
    one, two = (_built(oracle, text) for text in (right, faulty))
    count = differing = wrong = 0
    worst = 0.0
    for made in _draws(oracle):
        count += made[0].shape[0] if graph.row_inputs is not None else 1
        with torch.no_grad():
            results = [kernel(*map_leaves(_copied, made)) for kernel in (one, two)]
        if correctness.same_bits(*results) is not None:
            differing += 1
            ratio = _ratio(oracle, made, results[1])
            worst, wrong = max(worst, ratio), wrong + (ratio > 1)
        if count >= inputs or wrong >= 3:
            break
    return Difference(count, differing, wrong, worst)


def _built(oracle: Oracle, text: str) -> Any:
    names: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(text, "candidate.py", "exec"), names)
    torch.manual_seed(oracle.reference.weights_seed)
    model = names["ModelNew"](*oracle.init_args, **oracle.init_kwargs)
    state = oracle.reference.state
    if {k: v.shape for k, v in model.state_dict().items()} == {
        k: v.shape for k, v in state.items()
    }:
        model.load_state_dict(state)
    return model.train(oracle.program.task.options.mode == "train")


def _draws(oracle: Oracle) -> Iterator[list[Any]]:
    """Inputs of the task's own distribution, each row at a scale, sign and offset of its own."""
    workload = oracle.timed_workload
    for number in itertools.count():
        made = oracle.program.make_inputs(workload, SEED + number)
        draw = torch.Generator().manual_seed(number)
        kinds = iter(families.natures(made))

        def change(leaf: Any, draw: Any = draw, kinds: Any = kinds, number: int = number) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return _changed(leaf, next(kinds), draw, number)

        yield map_leaves(change, made)


def _changed(leaf: torch.Tensor, kind: Nature, draw: torch.Generator, number: int) -> torch.Tensor:
    if kind not in {Nature.GENERIC, Nature.UNIFORM, Nature.NONNEGATIVE}:
        return leaf
    shape = (leaf.shape[0] if leaf.dim() else 1, *[1] * max(leaf.dim() - 1, 0))
    scale = torch.pow(10.0, torch.rand(shape, generator=draw) * 5 - 3)
    offset = torch.randn(shape, generator=draw) * (torch.rand(shape, generator=draw) < 0.3)
    if kind is Nature.NONNEGATIVE:
        return leaf * scale
    sign = torch.randint(0, 2, shape, generator=draw) * 2 - 1
    if number % WITH_SPECIAL == WITH_SPECIAL - 1:
        return _sprinkled(leaf, draw)
    return (leaf * sign + offset) * scale


def _sprinkled(values: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    flat = values.clone().reshape(-1)
    specials = (float("nan"), float("inf"), -float("inf"), 1e-40, 0.0)
    for special in specials:
        flat[torch.randint(flat.numel(), (1,), generator=draw)] = special
    return flat.reshape(values.shape)


def _ratio(oracle: Oracle, inputs: list[Any], got: Any) -> float:
    """Largest error of a result as a share of its limit."""
    want = oracle.reference.expect(inputs, oracle.timed_workload)
    pairs = zip(want.limits, [leaf for _, leaf in leaves(got)], strict=True)
    return max(correctness.compare(limits, value).worst_ratio for limits, value in pairs)


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def main() -> None:
    """Compare, and print the answer as JSON."""
    where, right, faulty, inputs, *threads = sys.argv[1:]
    torch.set_num_threads(int(threads[0]) if threads else 1)
    task = Task.model_validate_json(Path(where).read_text())
    found = difference(task, Path(right).read_text(), Path(faulty).read_text(), int(inputs))
    print(json.dumps(found._asdict()))


if __name__ == "__main__":
    main()
