"""Owns which tensors of a graph are stored between the kernels that make it."""

from __future__ import annotations

from collections.abc import Iterator

from evokernel.opgraph import Argument, Node, OpGraph, Ref
from evokernel.proposers.templates.expressions import Program, Unsupported
from evokernel.proposers.templates.lower_views import VIEWS
from evokernel.proposers.templates.lowering import lower, translate
from evokernel.proposers.templates.rewriting import PRODUCTS
from evokernel.proposers.templates.symbols import Given, Window
from evokernel.proposers.templates.views import View

_MARK = "@"
"""Sets the names of stored tensors apart from inputs' positions and parameters' names."""

_MOST_BEHIND = 8
"""Tensors that are stored at most so that one more can be made (ours)."""


def stored_key(name: str) -> str:
    """The key of a stored tensor."""
    return f"{_MARK}{name}"


def key_of(node: Node) -> str:
    """The key of a tensor, stored or from outside."""
    return stored_key(node.name) if node.kind == "call" else node.op


class Storage:
    """The stored tensors: products, results, and what these cannot be made without."""

    def __init__(self, graph: OpGraph) -> None:
        """Begin with products and results; add what products read.

        Raises:
            Unsupported: an operand cannot be stored, or a result not be made.
        """
        graph = _apart(graph)
        results = [_as_result(graph, number) for number in range(len(graph.results))]
        added = tuple(node for node in results if node not in graph.nodes)
        self.graph = graph.model_copy(update={"nodes": (*graph.nodes, *added)})
        self.nodes = {node.name: node for node in self.graph.nodes}
        self.results = tuple(node.name for node in results)
        self.products = tuple(n.name for n in graph.nodes if n.op in PRODUCTS and n.kind == "call")
        self._stored = {*self.products, *self.results}
        for name in self.products:
            for ref in self.operands(name):
                self.find(ref, self.is_image(name))
        for name in self._in_order(self._stored.difference(self.products)):
            self._ensure(name)

    def operands(self, product: str) -> tuple[Ref, Ref]:
        """What a product multiplies."""
        first, second = list(self.nodes[product].refs())
        return first, second

    def is_image(self, product: str) -> bool:
        """Whether a product is one of windows and filters: its operands must be whole tensors."""
        return self.nodes[product].op == "patch_product"

    def reads(self) -> dict[str, tuple[str, ...]]:
        """Per tensor that the results need those that what makes it reads, in the graph's order."""
        found: dict[str, tuple[str, ...]] = {}
        todo = list(self.results)
        while todo:
            name = todo.pop()
            if name not in found:
                is_product = name in self.products
                refs = self.operands(name) if is_product else (Ref(node=name),)
                parts = [self._part(ref, made=not is_product) for ref in refs]
                used = {n.name for part in parts for n in part.nodes if n.kind != "call"}
                found[name] = tuple(self._in_order(used & self._stored))
                todo.extend(found[name])
        return found

    def program(self, name: str, axes: tuple[int, ...] = ()) -> Program:
        """What makes a tensor from those that are stored; `axes` as for `lower`.

        Raises:
            Unsupported: one program does not do.
        """
        return lower(self._part(Ref(node=name), made=True), axes)

    def _in_order(self, names: set[str]) -> list[str]:
        return [name for name in self.nodes if name in names]

    def find(self, ref: Ref, whole: bool) -> tuple[Node, View]:
        """Where a product's operand lies; what has to be stored for it is from now on.

        Args:
            ref: The operand.
            whole: It must be all of a tensor, contiguous.
        """
        found = self._window(ref, whole)
        if found is not None:
            return found
        reasons: list[Unsupported] = []
        for name in self._behind(ref):
            try:
                self.program(name)
            except Unsupported as reason:
                reasons.append(reason)
                continue
            self._stored.add(name)
            if (found := self._window(ref, whole)) is not None:
                return found
        if not reasons or len(self.nodes[ref.node].outputs) > 1:
            raise Unsupported(f"`{ref.node}` as an operand is not covered")
        self._stored.add(ref.node)
        self._ensure(ref.node)
        return self.find(ref, whole)

    def _ensure(self, name: str) -> None:
        """Store as much of what is behind a tensor as lets one program make it.

        Raises:
            Unsupported: nothing that could be stored would do.
        """
        for _ in range(_MOST_BEHIND):
            try:
                self.program(name)
            except Unsupported:
                if not self._store_behind(name):
                    raise
            else:
                return
        self.program(name)

    def _store_behind(self, name: str) -> bool:
        """Store the last tensor on the way to another one that a program can make."""
        for node in reversed(self._part(Ref(node=name), made=True).nodes):
            is_view = node.op in VIEWS and node.op != "alias"
            if node.kind != "call" or node.name == name or is_view or len(node.outputs) > 1:
                continue
            try:
                self.program(node.name)
            except Unsupported:
                continue
            self._stored.add(node.name)
            return True
        return False

    def _window(self, ref: Ref, whole: bool) -> tuple[Node, View] | None:
        """The tensor and the window on it that an operand is, if it is no more than that."""
        try:
            scope = translate(self._part(ref, made=False))
        except Unsupported:
            return None  # whoever tries to store it learns the reason
        symbol = scope.symbols.items[scope.symbol(ref)]
        if not isinstance(symbol, Window) or symbol.view.guards:
            return None
        tensor = scope.symbols.tensors[symbol.tensor]
        if whole and symbol.view != View.whole(self.nodes[ref.node].outputs[ref.index].shape):
            return None
        return (tensor.node, symbol.view) if isinstance(tensor, Given) else None

    def _behind(self, ref: Ref) -> Iterator[str]:
        """The operand's node, and what it is a view of, one after the other."""
        node = self.nodes[ref.node]
        while node.kind == "call" and node.name not in self._stored:
            if len(node.outputs) == 1:
                yield node.name
            inputs = [r for r in node.refs()]
            if node.op not in VIEWS or len(inputs) != 1:
                return
            node = self.nodes[inputs[0].node]

    def _part(self, ref: Ref, *, made: bool) -> OpGraph:
        """The graph from what is stored to a value; what is stored comes in as an input.

        Args:
            ref: The value.
            made: It is to be made even if it is stored.
        """
        needed: set[str] = set()
        read: set[str] = set()
        todo = [ref.node]
        while todo:
            name = todo.pop()
            if name in needed:
                continue
            needed.add(name)
            if name in self._stored and not (made and name == ref.node):
                read.add(name)
            else:
                todo.extend(r.node for r in self.nodes[name].refs())
        nodes = [
            as_input(node) if node.name in read else self._as_stored(node)
            for node in self.graph.nodes
            if node.name in needed
        ]
        return self.graph.model_copy(update={"nodes": tuple(nodes), "results": (ref,)})

    def _as_stored(self, node: Node) -> Node:
        """What stages store for themselves is contiguous, whatever the reference has there."""
        if node.name in self.results:
            return node
        outputs = tuple(spec.model_copy(update={"strides": ()}) for spec in node.outputs)
        return node.model_copy(update={"outputs": outputs})


def _apart(graph: OpGraph) -> OpGraph:
    """Give each output of an operator that has several a node of its own, views aside."""
    several = {n.name for n in graph.nodes if len(n.outputs) > 1 and n.op not in VIEWS}
    if not several:
        return graph

    def moved(arg: Argument) -> Argument:
        if isinstance(arg, tuple):
            return tuple(moved(item) for item in arg)  # type: ignore[misc]
        if isinstance(arg, Ref) and arg.node in several:
            return Ref(node=f"{arg.node}.{arg.index}")
        return arg

    nodes: list[Node] = []
    for node in graph.nodes:
        args = tuple(moved(arg) for arg in node.args)
        nodes.append(node.model_copy(update={"args": args}))
        if node.name in several:
            refs = [Ref(node=node.name, index=index) for index in range(len(node.outputs))]
            nodes += [_alias(graph, ref, f"{node.name}.{ref.index}") for ref in refs]
    results = tuple(moved(ref) for ref in graph.results)
    return graph.model_copy(update={"nodes": tuple(nodes), "results": results})


def _as_result(graph: OpGraph, number: int) -> Node:
    """The node that is a result and nothing else: one of its own for each after the first."""
    ref = graph.results[number]
    node = graph.node(ref.node)
    if node.kind != "call":
        raise Unsupported(f"result {number} is an argument of the reference itself")
    if len(node.outputs) == 1 and ref not in graph.results[:number]:
        return node
    return _alias(graph, ref, f"{node.name}.result{number}")


def _alias(graph: OpGraph, ref: Ref, name: str) -> Node:
    return Node(
        name=name,
        kind="call",
        op="alias",
        args=(ref,),
        argnames=("self",),
        outputs=(graph.spec(ref),),
    )


def as_input(node: Node) -> Node:
    """A stored tensor as its readers see it: one from outside, contiguous."""
    spec = node.outputs[0].model_copy(update={"strides": ()})
    return Node(name=node.name, kind="input", op=stored_key(node.name), outputs=(spec,))
