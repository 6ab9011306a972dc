"""Checks the structural embedder: is the nearest other task one of the same family?

Every operator of `embedder_tasks` is written in several spellings, with renamed variables, with
independent statements in another order, and in other shapes. Each variant is captured and embedded
as memory would do it. The nearest neighbour of a variant is looked for among the variants of all
*other* operators, so that its own copies cannot help it.

    python benchmarks/embedder.py [--json]

Two figures are reported: with everything that memory embeds, which includes the family that the
operator graph is given by `opgraph.family`, and without that family and what follows from it. It
takes two minutes at most; the target is 90 % with everything.
"""

import argparse
import ast
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from embedder_tasks import OPERATORS, Operator
from numpy.typing import NDArray

from evokernel.memory.embedding import Situation, StructuralEmbedder, label
from evokernel.opgraph import OpGraph, capture
from evokernel.task import Task

TARGET = 0.9
FILE = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

{sizes}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{construction}

    def forward(self, {arguments}):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


class Variant(NamedTuple):
    """One way to write an operator down."""

    operator: str
    family: str
    kind: str
    """`first`, `spelling`, `renamed`, `reordered` or `shape`."""
    origin: int
    """Which spelling it is, or was made of."""
    source: str


class Point(NamedTuple):
    """A variant, captured and embedded."""

    variant: Variant
    graph: OpGraph
    whole: NDArray[np.float64]
    """With everything that memory embeds."""
    bare: NDArray[np.float64]
    """Without the family."""


def variants(operator: Operator) -> Iterator[Variant]:
    """All ways in which an operator is written; the first one first."""
    for number, spelling in enumerate(operator.spellings):

        def made(kind: str, source: str, number: int = number) -> Variant:
            return Variant(operator.name, operator.family, kind, number, source)

        source = written(operator, spelling)
        yield made("spelling" if number else "first", source)
        yield made("renamed", renamed(source))
        if (other := reordered(spelling)) is not None:
            yield made("reordered", written(operator, other))
        if number == 0:
            for place in range(1, len(operator.sizes)):
                yield made("shape", written(operator, spelling, place))


def written(operator: Operator, spelling: str, place: int = 0) -> str:
    """A task file in the format of KernelBench."""
    construction, divider, body = spelling.rpartition("---\n")
    return FILE.format(
        sizes="\n".join(f"{name} = {value}" for name, value in operator.sizes[place].items()),
        construction=_indented(construction) if divider else "",
        arguments=", ".join(operator.inputs),
        body=_indented(body),
        inputs=", ".join(operator.inputs.values()),
    )


def renamed(source: str) -> str:
    """The same file with other names for everything that it names itself."""
    tree = ast.parse(source)
    kept = {"torch", "nn", "F", "self", "super", "Model", "get_inputs", "get_init_inputs"}
    kept |= {"__init__", "forward"}
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    names |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    own = sorted(names - kept)
    fresh = {name: f"value_{number}_of_{len(own)}" for number, name in enumerate(own)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = fresh.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = fresh.get(node.arg, node.arg)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            node.attr = f"part_{node.attr}"
    return ast.unparse(tree)


def reordered(spelling: str) -> str | None:
    """The body with independent statements in another order; None where there are none."""
    construction, divider, body = spelling.rpartition("---\n")
    statements = ast.parse(f"def f():\n{_indented(body)}").body[0].body  # type: ignore[attr-defined]
    made = {s.targets[0].id for s in statements if isinstance(s, ast.Assign)}  # type: ignore[attr-defined]
    waiting, known, order = list(statements), set[str](), list[ast.stmt]()
    while waiting:
        for statement in reversed(waiting):
            used = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} & made
            own = {statement.targets[0].id} if isinstance(statement, ast.Assign) else set()
            if used - own <= known and (own or len(waiting) == 1):
                break
        waiting.remove(statement)
        known |= own
        order.append(statement)
    if order == statements:
        return None
    return construction + divider + "\n".join(map(ast.unparse, order))


def _indented(text: str) -> str:
    return "\n".join(f"        {line}" for line in text.strip().splitlines())


def point(variant: Variant, folder: Path, embedder: StructuralEmbedder) -> Point:
    """Capture and embed one variant as memory would."""
    path = folder / "task.py"
    path.write_text(variant.source)
    graph = capture(Task.load(path).program())
    situations = (Situation(graph=graph, family=graph.family), Situation(graph=graph))
    whole, bare = (np.asarray(embedder.embed(situation)) for situation in situations)
    return Point(variant, graph, whole, bare)


class Score(NamedTuple):
    """How often the nearest variant of another operator has the family of the one asked for."""

    right: dict[str, int]
    """By family."""
    asked: dict[str, int]
    mistakes: Counter[str]

    @property
    def share(self) -> float:
        """Of all lookups."""
        return sum(self.right.values()) / sum(self.asked.values())


def score(points: Sequence[Point], vectors: NDArray[np.float64]) -> Score:
    """Look up every variant among those of all other operators."""
    likeness = vectors @ vectors.T
    right, asked = Counter[str](), Counter[str]()
    mistakes = Counter[str]()
    operators = np.array([p.variant.operator for p in points])
    for row, asking in enumerate(points):
        others = np.where(operators == asking.variant.operator, -np.inf, likeness[row])
        found = points[int(np.argmax(others))].variant
        asked[asking.variant.family] += 1
        if found.family == asking.variant.family:
            right[asking.variant.family] += 1
        else:
            spelt = f"{asking.variant.operator} (spelling {asking.variant.origin + 1})"
            mistakes[f"{asking.variant.family}: {spelt} is nearest to {found.operator}"] += 1
    return Score(right, asked, mistakes)


def likenesses(points: Sequence[Point]) -> dict[str, list[float]]:
    """Cosine of every variant with what it was made of, by kind."""
    origin = {
        (p.variant.operator, p.variant.origin): p
        for p in points
        if p.variant.kind in {"first", "spelling"}
    }
    found: dict[str, list[float]] = defaultdict(list)
    for p in points:
        if p.variant.kind == "first":
            continue
        other = 0 if p.variant.kind == "spelling" else p.variant.origin
        found[p.variant.kind].append(float(p.whole @ origin[p.variant.operator, other].whole))
    names = np.array([p.variant.operator for p in points])
    families = np.array([p.variant.family for p in points])
    likeness = np.stack([p.whole for p in points]) @ np.stack([p.whole for p in points]).T
    foreign = families[:, None] != families[None, :]
    related = ~foreign & (names[:, None] != names[None, :])
    found["other operator, same family"] = likeness[related].tolist()
    found["other family"] = likeness[foreign].tolist()
    return found


def fingerprints(points: Sequence[Point]) -> dict[str, tuple[int, int]]:
    """How many pairs behave as promised, of how many."""
    first = {p.variant.operator: p for p in points if p.variant.kind == "first"}
    spelt = {(p.variant.operator, p.variant.origin): p for p in points if p.variant.kind in _OWN}

    def same(kind: str) -> list[bool]:
        chosen = [p for p in points if p.variant.kind == kind]
        return [
            spelt[p.variant.operator, p.variant.origin].graph.fingerprint == p.graph.fingerprint
            for p in chosen
        ]

    prints = [p.graph.fingerprint for p in first.values()]
    others = [a != b for i, a in enumerate(prints) for b in prints[:i]]
    shapes = [not equal for equal in same("shape")]
    told = {
        "renamed: equal": same("renamed"),
        "reordered: equal": same("reordered"),
        "other shape: different": shapes,
        "other operator: different": others,
    }
    return {name: (sum(flags), len(flags)) for name, flags in told.items()}


_OWN = {"first", "spelling"}


def examine() -> tuple[list[Point], Score, Score]:
    """Everything, for the report and for programs."""
    embedder = StructuralEmbedder()
    with tempfile.TemporaryDirectory() as folder:
        points = [
            point(variant, Path(folder), embedder)
            for operator in OPERATORS
            for variant in variants(operator)
        ]
    whole, bare = (np.stack([getattr(p, name) for p in points]) for name in _EMBEDDED)
    return points, score(points, whole), score(points, bare)


_EMBEDDED = ("whole", "bare")


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    as_json = parser.parse_args().json
    points, whole, bare = examine()
    if as_json:
        shares = {"share": whole.share, "share_without_family": bare.share, "graphs": len(points)}
        print(json.dumps(shares | {"fingerprints": fingerprints(points)}, indent=2))
    else:
        print("\n".join(report(points, whole, bare)))
    sys.exit(whole.share < TARGET)


def report(points: Sequence[Point], whole: Score, bare: Score) -> Iterator[str]:
    """The lines that people read."""
    kinds = Counter(p.variant.kind for p in points)
    yield f"embedder {label(StructuralEmbedder())}"
    yield (
        f"{len(points)} graphs of {len(OPERATORS)} operators in {len(whole.asked)} families: "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    )
    agreed = sum(p.graph.family == p.variant.family for p in points)
    yield f"the graph's own family is that of the label for {agreed} of {len(points)}"
    yield ""
    yield "Nearest variant of another operator has the same family"
    yield f"{'':16}{'with family':>16}{'without':>16}"
    for family, count in whole.asked.items():
        cells = (f"{s.right[family]} of {count}" for s in (whole, bare))
        yield f"{family:16}" + "".join(f"{cell:>16}" for cell in cells)
    yield f"{'all':16}" + "".join(f"{s.share:>16.1%}" for s in (whole, bare))
    once = list({p.graph.fingerprint: p for p in reversed(points)}.values())
    shares = (score(once, np.stack([getattr(p, n) for p in once])).share for n in _EMBEDDED)
    yield f"{f'{len(once)} unlike':16}" + "".join(f"{share:>16.1%}" for share in shares)
    for name, of in (("with family", whole), ("without", bare)):
        yield ""
        yield f"Mistakes, {name}: {of.mistakes.total() or 'none'}"
        yield from (f"  {count:2} x {text}" for text, count in of.mistakes.most_common())
    yield ""
    yield "Cosine with what it was made of (spelling: with the first one)"
    for kind, values in likenesses(points).items():
        low, middle, high = np.percentile(values, (0, 50, 100))
        yield f"  {kind:30} lowest {low:.3f}  median {middle:.3f}  highest {high:.3f}"
    yield ""
    yield "Fingerprints"
    for name, (held, of_all) in fingerprints(points).items():
        yield f"  {name:30} {held} of {of_all}"


if __name__ == "__main__":
    main()
