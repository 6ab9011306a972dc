"""Owns the reading of a trace: ATen calls in, an `OpGraph` out."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from evokernel.nested import leaves
from evokernel.opgraph import Argument, CaptureFailed, Node, OpGraph, Ref, TensorSpec
from evokernel.opgraph.family import family
from evokernel.opgraph.fingerprint import fingerprint
from evokernel.opgraph.lowering import canonical, plain
from evokernel.opgraph.operators import POINTWISE
from evokernel.opgraph.rows import row_inputs
from evokernel.opgraph.work import flops, min_bytes
from evokernel.program import spec_of

if TYPE_CHECKING:
    import torch

Kind = Literal["input", "parameter", "constant"]

_SAME_VALUE = frozenset(
    {"alias", "detach", "detach_", "lift_fresh", "lift_fresh_copy", "positive"}
    | {"requires_grad_", "resolve_conj", "resolve_neg"}
)
"""Operators that hand their first argument on; the graph goes without them."""

_CHECKS = frozenset({"_assert_async", "_assert_scalar", "_assert_tensor_metadata"})
"""Operators that compute nothing."""

_DYNAMIC = frozenset(
    {"masked_select", "nonzero", "unique_dim", "_unique2", "unique_consecutive", "bincount"}
)
"""Operators whose result has a shape that depends on values."""

_DROPOUT = frozenset({"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"})

_SAME_IF_ALIKE = frozenset(
    {"clone", "contiguous", "to", "type_as", "_to_copy", "expand", "expand_as", "view", "reshape"}
)
"""Operators that do nothing when the result looks like the argument."""


class Origin(NamedTuple):
    """What a placeholder of a trace stands for."""

    kind: Kind
    name: str
    """Position of an input, qualified name of a parameter, empty for a constant without a home."""
    value: Any = None
    """The value of an input that is no tensor, or of a constant without a home."""


class Trace(NamedTuple):
    """ATen calls as some tracer recorded them."""

    graph: "torch.fx.Graph"
    origins: dict[str, Origin]
    """By name of the placeholder."""
    source: Literal["export", "fx"]
    returned: int | None = None
    """How many of the last outputs forward returns; those before are updated buffers."""


def read(trace: Trace) -> OpGraph:
    """Bring a trace into the form of `OpGraph`.

    Raises:
        CaptureFailed: it holds something that is no operator on tensors of known shape.
    """
    reader = _Reader(trace)
    results = reader.read()
    nodes = _reachable(reader.nodes, results)
    return OpGraph(
        nodes=nodes,
        results=results,
        source=trace.source,
        flops=flops(nodes),
        min_bytes=min_bytes(nodes, results),
        family=family(nodes, results),
        fingerprint=fingerprint(nodes, results),
        row_inputs=row_inputs(nodes, results),
    )


def _reachable(nodes: list[Node], results: tuple[Ref, ...]) -> tuple[Node, ...]:
    needed = {ref.node for ref in results}
    for node in reversed(nodes):
        if node.name in needed:
            needed |= {ref.node for ref in node.refs()}
    return tuple(node for node in nodes if node.name in needed)


class _Reader:
    """Reads one trace; keeps what each traced node became."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.nodes: list[Node] = []
        self.known: dict[str, Node] = {}
        self.became: dict[Any, Argument] = {}

    def read(self) -> tuple[Ref, ...]:
        """Go through the calls in order.

        Returns:
            What forward returns.
        """
        for node in self.trace.graph.nodes:
            match node.op:
                case "placeholder":
                    self.became[node] = self._outside(node)
                case "call_function":
                    self._call(node)
                case "output":
                    return self._results(node)
                case _:
                    raise CaptureFailed(f"forward holds `{node.target}`, which is no operator")
        raise CaptureFailed("forward returns nothing")

    def _results(self, node: Any) -> tuple[Ref, ...]:
        returned = [leaf for _, leaf in leaves(node.args[0])]
        if self.trace.returned is not None:
            returned = returned[len(returned) - self.trace.returned :]
        found = [plain(leaf, self.became.__getitem__) for leaf in returned if leaf is not None]
        refs = tuple(ref for ref in found if isinstance(ref, Ref))
        if len(refs) != len(found) or not refs:
            raise CaptureFailed("forward returns something that is no tensor")
        return refs

    def _outside(self, node: Any) -> Argument:
        origin, value = self.trace.origins[node.name], node.meta.get("val")
        if origin.kind == "input" and not hasattr(value, "shape"):
            return plain(origin.value, self._refuse)
        single = getattr(origin.value, "numel", lambda: 0)() == 1
        return self._add(
            Node(
                name=node.name,
                kind=origin.kind,
                op=origin.name,
                outputs=_specs(value),
                value=origin.value.item() if single else None,
            )
        )

    @staticmethod
    def _refuse(value: Any) -> Argument:
        raise CaptureFailed(f"an argument is a {type(value).__name__}")

    def _add(self, node: Node) -> Ref:
        self.nodes.append(node)
        self.known[node.name] = node
        return Ref(node=node.name)

    def _call(self, node: Any) -> None:
        target = node.target
        if getattr(target, "__name__", "") == "getitem":
            self.became[node] = _item(self.became[node.args[0]], node.args[1])
            return
        schema = getattr(target, "_schema", None)
        if schema is None:
            raise CaptureFailed(f"forward holds `{target}`, which is no operator on tensors")
        op = str(schema.name).partition("::")[2]
        if op in _CHECKS:
            return
        given = self._arguments(node)
        self._refuse_selection(op, given)
        same = self._unchanged(op, given, node)
        self.became[node] = same if same is not None else self._operator(node, op, given)
        if op.endswith("_") and schema.is_mutable:
            self.became[node.args[0]] = self.became[node]

    def _refuse_selection(self, op: str, given: dict[str, Argument]) -> None:
        """A mask as index gives as many elements as it has ones: real inputs hide that."""
        indices = given.get("indices") if op == "index" else None
        masks = indices if isinstance(indices, tuple) else ()
        specs = [self._spec(mask) for mask in masks]
        if op in _DYNAMIC or any(spec and spec.dtype in {"bool", "uint8"} for spec in specs):
            raise CaptureFailed("shapes depend on tensor values")

    def _operator(self, node: Any, op: str, given: dict[str, Argument]) -> Ref:
        outputs = _specs(node.meta.get("val"))
        overload = node.target._schema.overload_name or "default"
        name, args = canonical(op.rstrip("_"), overload, given, outputs, self._spec)
        if name in POINTWISE:
            args = self._with_numbers(args)
        return self._add(
            Node(
                name=node.name,
                kind="call",
                op=name,
                args=tuple(args.values()),
                argnames=tuple(args),
                outputs=outputs,
            )
        )

    def _arguments(self, node: Any) -> dict[str, Argument]:
        given: dict[str, Argument] = {}
        for position, arg in enumerate(node.target._schema.arguments):
            is_positional = position < len(node.args)
            value = (
                node.args[position]
                if is_positional
                else node.kwargs.get(arg.name, arg.default_value)
            )
            given[arg.name] = plain(value, self.became.__getitem__)
        return given

    def _with_numbers(self, given: dict[str, Argument]) -> dict[str, Argument]:
        """A tensor made of one number inside of forward is that number, beside another tensor."""
        changed = {name: self._number(arg) for name, arg in given.items()}
        return changed if any(isinstance(arg, Ref) for arg in changed.values()) else given

    def _number(self, arg: Argument) -> Argument:
        node = self.known[arg.node] if isinstance(arg, Ref) else None
        is_number = node and node.value is not None and node.outputs[0].shape == ()
        return node.value if node and is_number else arg

    def _unchanged(self, op: str, given: dict[str, Argument], node: Any) -> Argument:
        """What the call merely hands on; None if it computes something."""
        first = next(iter(given.values()), None)
        if op in _SAME_VALUE:
            return first
        if op.rstrip("_") in _DROPOUT and (given.get("train") is False or given.get("p") == 0):
            return first
        if op in _SAME_IF_ALIKE and (self._spec(first),) == _specs(node.meta["val"]):
            return first
        if op in {"copy", "copy_"} and _alike(self._spec(first), self._spec(given["src"])):
            return given["src"]
        if op == "broadcast_tensors" and isinstance(first, tuple):
            alike = tuple(self._spec(item) for item in first) == _specs(node.meta["val"])
            return first if alike else None
        return None

    def _spec(self, arg: Argument) -> TensorSpec | None:
        return self.known[arg.node].outputs[arg.index] if isinstance(arg, Ref) else None


def _alike(one: TensorSpec | None, other: TensorSpec | None) -> bool:
    if one is None or other is None:
        return False
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _item(whole: Argument, index: int) -> Argument:
    if isinstance(whole, tuple):
        return whole[index]
    if isinstance(whole, Ref):
        return Ref(node=whole.node, index=index)
    raise CaptureFailed("an item is taken of something that is no list of tensors")


def _specs(value: Any) -> tuple[TensorSpec, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    try:
        return tuple(spec_of(item) for item in values)
    except Exception as error:  # symbolic sizes, plain numbers
        raise CaptureFailed("shapes or numbers depend on tensor values") from error
