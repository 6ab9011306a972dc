"""Owns the tracers: `torch.export` first, `torch.fx` as the fall-back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evokernel.errors import TaskError
from evokernel.nested import leaves
from evokernel.opgraph import CaptureFailed, Node, OpGraph
from evokernel.opgraph.reading import Kind, Origin, Trace, read
from evokernel.opgraph.writes import written_roots
from evokernel.program import Program
from evokernel.program.shapes import cut_rows, fake_inputs, shadow, silence
from evokernel.task import Workload

if TYPE_CHECKING:
    import torch


Change = Callable[[list[Any]], list[Any]]


def trace(program: Program, workload: Workload | None = None, change: Change = list) -> OpGraph:
    """Do what `evokernel.opgraph.capture` says, with inputs that `change` may cut first."""
    with silence():
        second = shadow(program)
        module = second.build()
        try:
            return read(_exported(module, change(fake_inputs(second, workload))))
        except TaskError:
            raise
        except Exception as error:  # foreign code meets torch.export: anything may come out
            first = error
        try:
            # What a failed trace left in the file's own caches must not be met again.
            second = shadow(program)
            return read(_symbolic(second.build(), change(second.make_inputs(workload))))
        except TaskError:
            raise
        except Exception as error:
            raise CaptureFailed(_both(program, first, error)) from error


def trace_rows(
    program: Program,
    workload: Workload | None,
    graph: OpGraph,
    positions: tuple[int, ...],
    rows: int,
) -> bool:
    """Do what `evokernel.opgraph.same_operators` says."""
    try:
        fewer = trace(program, workload, lambda inputs: cut_rows(inputs, positions, 0, rows))
    except CaptureFailed:
        return False
    if len(fewer.nodes) != len(graph.nodes):
        return False
    return all(_same_call(*pair) for pair in zip(fewer.nodes, graph.nodes, strict=True))


def _same_call(one: Node, other: Node) -> bool:
    """Equal but for the sizes of what comes out, which an argument `size` repeats."""
    if (one.kind, one.op, one.argnames) != (other.kind, other.op, other.argnames):
        return False
    triples = zip(one.argnames, one.args, other.args, strict=True)
    return all(name == "size" or mine == yours for name, mine, yours in triples)


def _both(program: Program, first: Exception, second: Exception) -> str:
    return (
        f"`{program.task.name}` cannot be captured as an operator graph: torch.export says "
        f"`{_first_line(first)}`; torch.fx says `{_first_line(second)}`. Typical causes are "
        "control flow or shapes that depend on tensor values, and writing into an input. The "
        "task still runs; what needs the graph (templates, similarity to other tasks, the "
        "operation count) is missing."
    )


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text[:160]}"


def _exported(module: "torch.nn.Module", inputs: list[Any]) -> Trace:
    import torch

    with torch.no_grad():
        exported = torch.export.export(module, tuple(inputs), strict=False)
        origins = _origins(exported, module)
        written, is_hidden = written_roots(exported.graph)
        _refuse_written_inputs(written, origins)
        if is_hidden:
            # An empty table decomposes nothing: it only makes the graph functional. It costs half
            # a second and splits a few composite operators, so that it is not done without need.
            exported = exported.run_decompositions({})
            origins = _origins(exported, module)
    returned = exported.graph_signature.user_outputs
    return Trace(exported.graph, origins, "export", returned=len(returned))


def _refuse_written_inputs(written: set[Any], origins: dict[str, Origin]) -> None:
    for node in written:
        if origins[node.name].kind == "input":
            raise CaptureFailed(f"forward writes into its own input `{node.name}`")


def _origins(
    exported: "torch.export.ExportedProgram", module: "torch.nn.Module"
) -> dict[str, Origin]:
    from torch.export.graph_signature import InputKind

    kinds: dict[InputKind, Kind] = {
        InputKind.USER_INPUT: "input",
        InputKind.PARAMETER: "parameter",
        InputKind.BUFFER: "parameter",
        InputKind.CONSTANT_TENSOR: "constant",
    }
    attributes = _tensor_attributes(module)
    origins: dict[str, Origin] = {}
    position = 0
    for spec in exported.graph_signature.input_specs:
        kind = kinds.get(spec.kind)
        if kind is None:
            raise CaptureFailed(f"forward needs `{spec.target}`, which is no tensor")
        name, value = str(spec.target), getattr(spec.arg, "value", None)
        if kind == "input":
            name, position = str(position), position + 1
        elif kind == "constant" and name not in attributes:
            name, value = "", exported.constants.get(name)
        origins[spec.arg.name] = Origin(kind, name, value)
    return origins


def _tensor_attributes(module: "torch.nn.Module") -> set[str]:
    """Qualified names of tensors that modules hold as plain attributes."""
    import torch

    return {
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def _symbolic(module: "torch.nn.Module", inputs: list[Any]) -> Trace:
    """Trace with `torch.fx`, which refuses control flow on values, then name the ATen calls.

    The second step runs the traced module once on real inputs.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    flat = leaves(inputs)
    strange = [path for path, leaf in flat if not isinstance(leaf, torch.Tensor)]
    if strange:
        raise CaptureFailed(f"it takes tensors only, which argument {strange[0]} is not")
    traced = torch.fx.symbolic_trace(module)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def stateless(weights: dict[str, torch.Tensor], arguments: list[Any]) -> Any:
        return torch.func.functional_call(traced, weights, tuple(arguments))

    _require_same(module, traced, inputs)
    with torch.no_grad():
        graph = make_fx(stateless, pre_dispatch=True, tracing_mode="real")(state, inputs).graph
    holders = [node.name for node in graph.nodes if node.op == "placeholder"]
    named = [Origin("parameter", name) for name in state]
    named += [Origin("input", str(position)) for position in range(len(flat))]
    origins = dict(zip(holders, named, strict=True))
    written, is_hidden = written_roots(graph)
    _refuse_written_inputs(written, origins)
    if is_hidden:
        raise CaptureFailed("memory is written under one name and read under another")
    return Trace(graph, origins, "fx")


def _require_same(
    module: "torch.nn.Module", traced: "torch.fx.GraphModule", inputs: list[Any]
) -> None:
    """`torch.fx` does not see context managers such as autocast, so compare what it traced."""
    import torch

    found: list[list[Any]] = []
    for target in (module, traced):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            found.append([leaf for _, leaf in leaves(target(*inputs)) if leaf is not None])
    for one, other in zip(*found, strict=True):
        if one.dtype != other.dtype or not torch.allclose(one, other, equal_nan=True):
            raise CaptureFailed("what it traced does not compute what forward computes")
