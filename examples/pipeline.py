"""Profile a small transformer, make its slowest operators fast, patch them in, and measure.

    python examples/pipeline.py                    # CPU, a few minutes
    python examples/pipeline.py --backend cuda     # the same on a GPU

What is printed at the end is the whole model, before and after, called in alternation.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import evokernel
from evokernel import EvoKernelError, RunConfig


class Norm(nn.Module):
    """Root mean square norm, as it is written in most repositories."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Weights(nn.Module):
    """Scaled, causally masked attention scores."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.scale = width**-0.5
        self.register_buffer("mask", torch.ones(tokens, tokens).triu(1).bool(), persistent=False)

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax((scores * self.scale).masked_fill(self.mask, -1e9), -1)


class Gate(nn.Module):
    """The gated activation between the two products of a feed-forward block."""

    def forward(self, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return gate * torch.sigmoid(gate) * value


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm."""

    def __init__(self, tokens: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_2 = Norm(width), Norm(width)
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.weights = Weights(tokens, width // heads)
        self.out = nn.Linear(width, width, bias=False)
        self.wide, self.gated = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.gate = Gate()
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.project(self.norm(x)).view(batch, tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = self.weights((query @ key.transpose(-2, -1)).contiguous())
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, tokens, width))
        y = self.norm_2(x)
        return x + self.narrow(self.gate(self.gated(y), self.wide(y)))


class Transformer(nn.Module):
    """A few blocks."""

    def __init__(self, tokens: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(tokens, width, heads) for _ in range(depth)))
        self.norm = Norm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(x))


class Operator(NamedTuple):
    """All parts of one class that were called with the same shapes."""

    path: str
    """Of the first of them."""
    part: nn.Module
    inputs: tuple[torch.Tensor, ...]
    seconds: float
    """Of all of them in one call of the model."""
    count: int


def profiled(model: nn.Module, x: torch.Tensor, calls: int = 5) -> list[Operator]:
    """Parts without parts of their own, slowest first."""
    found: dict[Any, Operator] = {}
    begun: dict[int, float] = {}

    def before(part: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        begun[id(part)] = now()

    def after(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(part: nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
            took = (now() - begun[id(part)]) / calls
            key = (type(part), *(tuple(each.shape) for each in inputs))
            known = found.get(key, Operator(path, part, inputs, 0.0, 0))
            found[key] = known._replace(seconds=known.seconds + took, count=known.count + 1)

        return note

    with ExitStack() as hooks, torch.no_grad():
        model(x)
        for path, part in model.named_modules():
            if not list(part.children()):
                for handle in (
                    part.register_forward_pre_hook(before),
                    part.register_forward_hook(after(path)),
                ):
                    hooks.callback(handle.remove)
        for _ in range(calls):
            model(x)
    each = (operator._replace(count=operator.count // calls) for operator in found.values())
    return sorted(each, key=lambda operator: -operator.seconds)


def now() -> float:
    """Seconds, once the device has done what it was asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def alternated(first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> list[float]:
    """Median milliseconds of two calls that take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, taken in zip((first, second), times, strict=True):
            begin = now()
            call()
            taken.append(1000 * (now() - begin))
    return [statistics.median(taken) for taken in times]


def made_fast(operator: Operator, given: argparse.Namespace) -> evokernel.RunResult | None:
    """The run of one operator; None where there is no kernel, or none that is faster."""
    config = RunConfig(
        backend=given.backend,
        runs=given.runs,
        budget={"attempts": given.attempts},
        bench={"measurement": "quick" if given.quick else "standard", "baselines": ("eager",)},
    )
    try:
        result = evokernel.optimize(operator.part, config, inputs=operator.inputs)
    except EvoKernelError as error:
        print(f"  {operator.path}: left as it is: {str(error)[:150]}")
        return None
    speedup = result.speedup("eager")
    if result.best is None or speedup is None or speedup.low <= 1:
        print(f"  {operator.path}: left as it is: no kernel is measurably faster")
        return None
    print(f"  {operator.path}: {speedup.value:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}]")
    return result


def main() -> None:
    """Do all of it, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="cpp", choices=("cpp", "cuda", "triton"))
    parser.add_argument("--attempts", type=int, default=6, help="for each operator")
    parser.add_argument("--top", type=int, default=3, help="operators to make fast")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--quick", action="store_true", help="rough measurements")
    given = parser.parse_args()

    torch.manual_seed(0)
    device = "cpu" if given.backend == "cpp" else "cuda"
    model = Transformer(given.tokens, given.width, 8, given.depth).eval().to(device)
    x = torch.randn(given.batch, given.tokens, given.width, device=device)

    operators = profiled(model, x)
    whole = sum(operator.seconds for operator in operators)
    print("profile: share of the time of all parts")
    for operator in operators:
        name = f"{operator.count} x {type(operator.part).__name__}"
        print(f"  {operator.seconds / whole:4.0%}  {name:12} {tuple(operator.inputs[0].shape)}")

    # Products are the library's best: what is left for a kernel of one's own lies between them.
    chosen = [each for each in operators if not isinstance(each.part, nn.Linear)][: given.top]
    print(f"making {len(chosen)} operators fast")
    results = [result for each in chosen if (result := made_fast(each, given))]

    original = Transformer(given.tokens, given.width, 8, given.depth).eval().to(device)
    original.load_state_dict(model.state_dict())
    with ExitStack() as patches, torch.no_grad():
        entered = [patches.enter_context(evokernel.patch(model, result)) for result in results]
        parts = sum(len(patch.parts) for patch in entered)
        error = float((model(x) - original(x)).abs().max())
        before, after = alternated(lambda: original(x), lambda: model(x), given.rounds)
        fallbacks = sum(patch.fallbacks for patch in entered)
    print(f"patched {parts} parts; largest difference of the output {error:.2e}")
    print(f"calls outside of what was verified: {fallbacks}")
    print(f"end to end: {before:.2f} ms -> {after:.2f} ms, {before / after:.2f}x")


if __name__ == "__main__":
    main()
