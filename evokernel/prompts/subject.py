"""Owns what a prompt says of the task and of the machine: the same at every step of a run."""

import ast
import re

from evokernel.opgraph import Argument, Node, OpGraph, Ref, TensorSpec
from evokernel.prompts.section import Item, Section, line
from evokernel.prompts.situation import Situation
from evokernel.wording import milliseconds

BASELINES = {"eager": "PyTorch eager", "compile": "torch.compile", "parent": "its parent"}
"""How opponents are called."""
_LINE = 500


def task(situation: Situation) -> Section:
    """The task's file, and further shapes."""
    task = situation.task
    mode = f"The module is used in mode `{task.options.mode}`; only `forward` counts."
    return Section(
        name="task",
        title=f"The task: {line(task.title, _LINE)}",
        items=(Item(text="", code=_shown_source(task.source), language="python", what="the task"),),
        outro="\n".join([mode, *situation.workloads]),
        budget=6000,
        least=1000,
    )


def operators(situation: Situation) -> Section:
    """The task's operators with shapes, its work and least traffic."""
    graph = situation.graph
    return Section(
        name="operators",
        title="Its operators",
        intro="" if graph is None else _work(graph),
        items=() if graph is None else (Item(text="", code=_listing(graph), what="the operators"),),
        budget=1500,
    )


def machine(situation: Situation) -> Section:
    """Where it runs, and the times to beat."""
    facts = [f"- {fact}" for fact in situation.machine]
    facts += [
        f"- {BASELINES.get(name, name)} takes {milliseconds(median_ms)} a call"
        for name, median_ms in situation.baselines.items()
    ]
    return Section(
        name="machine",
        title="The machine, and the times to beat",
        items=tuple(Item(text=fact) for fact in facts),
        budget=500,
        least=300,
        what="facts",
    )


def _shown_source(source: str) -> str:
    """The task's file without what is told in words, and without workloads that are hidden."""
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        note: list[str] | None = None
        if (
            isinstance(node, ast.FunctionDef)
            and node.name == "get_workloads"
            and "hidden" in source
        ):
            note = ["# get_workloads(): further shapes, some of them not shown"]
        if isinstance(node, ast.Assign) and _assigns(node, "EVOKERNEL"):
            note = []
        if note is not None:
            lines[node.lineno - 1 : node.end_lineno] = note
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n")


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _work(graph: OpGraph) -> str:
    flops, moved = graph.flops, graph.min_bytes
    density = flops / max(moved, 1)
    return (
        "As recorded for the shapes of `get_inputs`. A call takes "
        f"{_counted(flops)} floating-point operations and moves at least {_counted(moved)} bytes "
        "(inputs and parameters read once, results written once): "
        f"{density:.{0 if density >= 10 else 2}f} operations a byte."
    )


def _counted(number: float) -> str:
    """With three digits and a word for the thousands."""
    for size, word in (
        (1e12, " trillion"),
        (1e9, " billion"),
        (1e6, " million"),
        (1e3, " thousand"),
    ):
        if number >= size:
            return f"{number / size:.3g}{word}"
    return f"{number:.0f}"


def _listing(graph: OpGraph) -> str:
    results = ", ".join(_argument(ref) for ref in graph.results)
    return "\n".join([*map(_node, graph.nodes), f"return {results}"])


def _node(node: Node) -> str:
    made = ", ".join(_spec(spec) for spec in node.outputs)
    if node.kind != "call":
        value = "" if node.value is None else f" = {node.value}"
        return f"{node.name}: {made}  ({node.kind} {node.op}{value})"
    names = node.argnames or ("",) * len(node.args)
    pairs = zip(names, node.args, strict=False)
    given = ", ".join(f"{name}={_argument(a)}" if name else _argument(a) for name, a in pairs)
    return f"{node.name} = {node.op}({given}): {made}"


def _argument(value: Argument) -> str:
    if isinstance(value, Ref):
        return f"{value.node}[{value.index}]" if value.index else value.node
    if isinstance(value, tuple):
        return f"[{', '.join(map(_argument, value))}]"
    return repr(value)


def _spec(spec: TensorSpec) -> str:
    strides = f" strides {list(spec.strides)}" if spec.strides else ""
    return f"{spec.dtype}{list(spec.shape)}{strides}"
