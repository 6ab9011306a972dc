"""Owns the capture of a reference as an `OpGraph`: by `torch.export`, else by `torch.fx`."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from evokernel.errors import TaskError
from evokernel.nested import leaves
from evokernel.opgraph import (
    Argument,
    CaptureFailed,
    Node,
    OpGraph,
    Ref,
    TensorSpec,
)
from evokernel.opgraph.family import family
from evokernel.opgraph.fingerprint import fingerprint
from evokernel.opgraph.lowering import canonical, plain
from evokernel.opgraph.rows import row_inputs
from evokernel.opgraph.work import flops, min_bytes
from evokernel.program import Program, spec_of
from evokernel.task import Workload

if TYPE_CHECKING:
    import torch

Kind = Literal["input", "parameter", "constant"]


class Origin(NamedTuple):
    """What a placeholder of a trace stands for."""

    kind: Kind
    name: str
    """Position of an input, qualified name of a parameter, empty for a constant without a home."""
    value: Any = None
    """The value, where it is known and needed."""


class Trace(NamedTuple):
    """ATen calls as some tracer recorded them."""

    graph: "torch.fx.Graph"
    origins: dict[str, Origin]
    """By name of the placeholder or attribute."""
    source: Literal["export", "fx"]


def trace(program: Program, workload: Workload | None = None) -> OpGraph:
    """Do what `evokernel.opgraph.capture` says."""
    with _silence():
        module, inputs = program.build(), _inputs(program, workload)
        try:
            return _graph(_exported(module, inputs))
        except (CaptureFailed, TaskError):
            raise
        except Exception as error:  # whatever torch.export meets in foreign code
            return _by_fx(program, workload, module, error)


def _by_fx(
    program: Program, workload: Workload | None, module: "torch.nn.Module", first: Exception
) -> OpGraph:
    try:
        return _graph(_symbolic(module, program.make_inputs(workload)))
    except TaskError:
        raise
    except Exception as second:
        raise CaptureFailed(
            f"`{program.task.name}` cannot be captured as an operator graph: torch.export says "
            f"`{_first_line(first)}`; torch.fx says `{_first_line(second)}`. Typical causes are "
            "control flow that depends on tensor values, and objects that only Python understands. "
            "The task still runs; what needs the graph (templates, similarity to other tasks, the "
            "operation count) is missing."
        ) from second


def _first_line(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text[:160]}"


def _inputs(program: Program, workload: Workload | None) -> list[Any]:
    """Inputs without storage where the file allows that, else real ones."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return program.make_inputs(workload)
    except TaskError:
        return program.make_inputs(workload)


def _exported(module: "torch.nn.Module", inputs: list[Any]) -> Trace:
    import torch
    from torch.export.graph_signature import InputKind

    with torch.no_grad():
        exported = torch.export.export(module, tuple(inputs), strict=False)
    kinds: dict[InputKind, Kind] = {
        InputKind.PARAMETER: "parameter",
        InputKind.BUFFER: "parameter",
        InputKind.CONSTANT_TENSOR: "constant",
    }
    attributes = _tensor_attributes(module)
    origins: dict[str, Origin] = {}
    position = 0
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            value = getattr(spec.arg, "value", None)
            origins[spec.arg.name] = Origin("input", str(position), value)
            position += 1
            continue
        name = str(spec.target)
        held = name if kinds[spec.kind] == "parameter" or name in attributes else ""
        value = exported.constants.get(name) if not held else None
        origins[spec.arg.name] = Origin(kinds[spec.kind], held, value)
    return Trace(exported.graph, origins, "export")


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
    """Trace with `torch.fx`, which refuses control flow on values, then name the ATen calls."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    flat = leaves(inputs)
    strange = [path for path, leaf in flat if not isinstance(leaf, torch.Tensor)]
    if strange:
        raise CaptureFailed(f"torch.fx takes tensors only, and argument {strange[0]} is none")
    traced = torch.fx.symbolic_trace(module)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def stateless(weights: dict[str, torch.Tensor], arguments: list[Any]) -> Any:
        return torch.func.functional_call(traced, weights, tuple(arguments))

    with torch.no_grad():
        graph = make_fx(stateless, pre_dispatch=True, tracing_mode="real")(state, inputs).graph
    holders = [node.name for node in graph.nodes if node.op == "placeholder"]
    named = [Origin("parameter", name) for name in state]
    named += [Origin("input", str(position)) for position in range(len(flat))]
    return Trace(graph, dict(zip(holders, named, strict=True)), "fx")


def _graph(trace: Trace) -> OpGraph:
    nodes, results = _Reader(trace).read()
    kept = _reachable(nodes, results)
    return OpGraph(
        nodes=kept,
        results=results,
        source=trace.source,
        flops=flops(kept),
        min_bytes=min_bytes(kept, results),
        family=family(kept, results),
        fingerprint=fingerprint(kept, results),
        row_inputs=row_inputs(kept, results),
    )


def _reachable(nodes: list[Node], results: tuple[Ref, ...]) -> tuple[Node, ...]:
    needed = {ref.node for ref in results}
    for node in reversed(nodes):
        if node.name in needed:
            needed |= {ref.node for ref in node.refs()}
    return tuple(node for node in nodes if node.name in needed)


_SAME_VALUE = frozenset(
    {"alias", "clone", "conj", "contiguous", "detach", "detach_", "lift_fresh", "lift_fresh_copy"}
    | {"positive", "requires_grad_", "resolve_conj", "resolve_neg"}
)
"""Operators that hand their first argument on; the graph goes without them."""

_NOTHING = frozenset({"_assert_async", "_assert_scalar", "_assert_tensor_metadata"})
"""Operators that only check."""


class _Reader:
    """Reads one trace; keeps what each traced node became."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.nodes: list[Node] = []
        self.specs: dict[str, tuple[TensorSpec, ...]] = {}
        self.became: dict[Any, Argument] = {}

    def read(self) -> tuple[list[Node], tuple[Ref, ...]]:
        """Go through the calls in order.

        Returns:
            The nodes, and what forward returns.
        """
        for node in self.trace.graph.nodes:
            match node.op:
                case "placeholder":
                    self.became[node] = self._outside(node)
                case "call_function":
                    self._call(node)
                case "output":
                    return self.nodes, self._results(node)
                case _:
                    raise CaptureFailed(f"`{node.op} {node.target}` cannot be put into the graph")
        raise CaptureFailed("the trace returns nothing")

    def _results(self, node: Any) -> tuple[Ref, ...]:
        found = [self._ref(leaf) for _, leaf in leaves(node.args[0]) if leaf is not None]
        refs = tuple(ref for ref in found if isinstance(ref, Ref))
        if len(refs) != len(found) or not refs:
            raise CaptureFailed("forward returns something that is no tensor")
        return refs

    def _outside(self, node: Any) -> Argument:
        origin = self.trace.origins[node.name]
        value = node.meta.get("val")
        if origin.kind == "input" and not hasattr(value, "shape"):
            return origin.value if isinstance(origin.value, bool | int | float | str) else None
        number = origin.value
        if number is not None and hasattr(number, "numel") and number.numel() == 1:
            number = number.item()
        return self._add(
            Node(
                name=node.name,
                kind=origin.kind,
                op=origin.name,
                outputs=_specs(value),
                value=number if isinstance(number, bool | int | float) else None,
            )
        )

    def _add(self, node: Node) -> Ref:
        self.nodes.append(node)
        self.specs[node.name] = node.outputs
        return Ref(node=node.name)

    def _ref(self, node: Any) -> Argument:
        return self.became[node]

    def _call(self, node: Any) -> None:
        target = node.target
        if getattr(target, "__name__", "") == "getitem":
            self.became[node] = self._item(self.became[node.args[0]], node.args[1])
            return
        if not hasattr(target, "_schema"):
            raise CaptureFailed(f"`{target}` is no operator of torch")
        op = target._schema.name.partition("::")[2]
        if op in _NOTHING:
            return
        given = self._arguments(node)
        if op in _SAME_VALUE or self._changes_nothing(op, given, node):
            self.became[node] = next(iter(given.values()))
            return
        self.became[node] = self._operator(node, op, given)

    def _operator(self, node: Any, op: str, given: dict[str, Argument]) -> Argument:
        outputs = _specs(node.meta.get("val"))
        overload = node.target._schema.overload_name or "default"
        name, args = canonical(op.rstrip("_"), overload, given, outputs, self._spec)
        ref = self._add(
            Node(
                name=node.name,
                kind="call",
                op=name,
                args=tuple(args.values()),
                argnames=tuple(args),
                outputs=outputs,
            )
        )
        if op.endswith("_"):
            self.became[node.args[0]] = ref
        return ref

    def _arguments(self, node: Any) -> dict[str, Argument]:
        given: dict[str, Argument] = {}
        for position, arg in enumerate(node.target._schema.arguments):
            if position < len(node.args):
                value = node.args[position]
            else:
                value = node.kwargs.get(arg.name, arg.default_value)
            given[arg.name] = plain(value, self._ref)
        return given

    def _changes_nothing(self, op: str, given: dict[str, Argument], node: Any) -> bool:
        if op in {"dropout", "feature_dropout", "alpha_dropout", "dropout_"}:
            return given.get("train") is False or given.get("p") == 0
        if op in {"to", "type_as", "_to_copy", "expand", "expand_as"}:
            return self._spec(given["self"]) == _specs(node.meta["val"])[0]
        return False

    def _spec(self, arg: Argument) -> TensorSpec | None:
        return self.specs[arg.node][arg.index] if isinstance(arg, Ref) else None

    def _item(self, whole: Argument, index: int) -> Argument:
        if isinstance(whole, tuple):
            return whole[index]
        if isinstance(whole, Ref):
            return Ref(node=whole.node, index=index)
        raise CaptureFailed("an item is taken of something that is no list of tensors")


def _specs(value: Any) -> tuple[TensorSpec, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    try:
        return tuple(spec_of(item) for item in values)
    except Exception as error:  # symbolic sizes, numbers
        raise CaptureFailed("shapes depend on tensor values") from error


@contextmanager
def _silence() -> Iterator[None]:
    """Tracers warn and log about foreign code at length; what matters is in their exception."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
