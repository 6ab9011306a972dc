"""Owns the way from a graph's contractions to plain products and what goes on around them.

`with_products` writes the same graph in other words: `linear`, `addmm`, `einsum`, attention and
their like become `product` (of two stacks of matrices) or `patch_product` (of a filter and an
image) between ordinary operators; a product with a vector becomes a sum along rows. The node that
stands for the whole call keeps its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from evokernel.opgraph import Node, OpGraph, Ref
from evokernel.proposers.templates.expressions import Unsupported
from evokernel.proposers.templates.lower_convolutions import convolve, convolve_back
from evokernel.proposers.templates.rewriting import Rewriter, tensor
from evokernel.proposers.templates.scope import number
from evokernel.proposers.templates.symbols import broadcast


def with_products(graph: OpGraph) -> OpGraph:
    """The graph with its contractions taken apart; itself if there are none.

    Raises:
        Unsupported: names the contraction whose form is not covered.
    """
    if not any(node.op in _RULES for node in graph.nodes if node.kind == "call"):
        return graph
    writer = Rewriter(node.name for node in graph.nodes)
    for node in graph.nodes:
        rule = _RULES.get(node.op) if node.kind == "call" else None
        if rule is None:
            writer.nodes.append(node)
        else:
            try:
                rule(writer, node)
            except Unsupported as reason:
                raise Unsupported(f"`{node.op}`: {reason}") from None
    return graph.model_copy(update={"nodes": tuple(writer.nodes)})


def _multiply(writer: Rewriter, left: Ref, right: Ref, hint: str) -> Ref:
    """`torch.matmul`, its result perhaps under more axes of size one."""
    one, two = writer.shape(left), writer.shape(right)
    if len(one) == len(two) == 1:
        return writer.row_sums(left, right, one, hint)
    if len(two) == 1:
        if not writer.is_swapped(left):
            return writer.row_sums(left, right, one, hint)
        return writer.product(left, writer.reshape(right, (*two, 1)), hint)
    if len(one) == 1:
        left, one = writer.reshape(left, (1, *one)), (1, *one)
    if one[-2] == 1 and writer.is_swapped(right):
        shape = (*broadcast([one[:-2], two[:-2]]), two[-1], two[-2])
        return writer.row_sums(writer.swapped(right), left, shape, hint)
    if two[-1] == 1 and not writer.is_swapped(left):
        shape = (*broadcast([one[:-2], two[:-2]]), *one[-2:])
        return writer.row_sums(left, writer.swapped(right), shape, hint)
    return writer.product(left, right, hint)


def _matmul(left: str, right: str) -> Callable[[Rewriter, Node], None]:
    def rule(writer: Rewriter, node: Node) -> None:
        hint = f"{node.name}_product"
        _multiply(writer, tensor(node, left), tensor(node, right), hint)
        writer.finish(node)

    return rule


def _added(left: str, right: str) -> Callable[[Rewriter, Node], None]:
    """`beta * self + alpha * left @ right`."""

    def rule(writer: Rewriter, node: Node) -> None:
        name = node.name
        value = _multiply(writer, tensor(node, left), tensor(node, right), f"{name}_product")
        value = writer.reshape(value, node.outputs[0].shape)
        value = writer.scaled(value, number(node, "alpha", 1), f"{name}_scaled")
        beta, other = number(node, "beta", 1), tensor(node, "self")
        if beta != 0:
            writer.add(value, writer.scaled(other, beta, f"{name}_added"), name)
        writer.finish(node)

    return rule


def _linear(writer: Rewriter, node: Node) -> None:
    weight = writer.swapped(tensor(node, "weight"))
    value = _multiply(writer, tensor(node, "input"), weight, f"{node.name}_product")
    if node.argument("bias") is not None:
        value = writer.reshape(value, node.outputs[0].shape)
        writer.add(value, node.argument("bias"), node.name)
    writer.finish(node)


def _outer(writer: Rewriter, node: Node) -> None:
    left, right = tensor(node, "self"), tensor(node, "vec2")
    shape, dtype = node.outputs[0].shape, node.outputs[0].dtype
    column = writer.reshape(left, (shape[0], 1))
    writer.call("mul", shape, dtype, node.name, self=column, other=right)
    writer.finish(node)


def _attention(writer: Rewriter, node: Node) -> None:
    """softmax(query @ key^T * scale + mask) @ value."""
    if node.argument("is_causal") or node.argument("enable_gqa") or number(node, "dropout_p"):
        raise Unsupported("causal or grouped attention, and dropout, are not covered")
    name, query, key = node.name, tensor(node, "query"), tensor(node, "key")
    scale = number(node, "scale", 1 / math.sqrt(writer.shape(query)[-1]))
    scores = writer.product(query, writer.swapped(key), f"{name}_scores")
    scores = writer.scaled(scores, scale, f"{name}_scaled")
    mask = node.argument("attn_mask")
    if isinstance(mask, Ref):
        scores = _masked(writer, node, scores, mask)
    shape, dtype = writer.shape(scores), node.outputs[0].dtype
    weights = writer.call(
        "softmax", shape, dtype, f"{name}_weights", self=scores, dim=len(shape) - 1, dtype=None
    )
    if isinstance(mask, Ref):
        weights = _zeros_without_scores(writer, node, scores, weights)
    writer.product(weights, tensor(node, "value"), name)
    writer.finish(node)


def _masked(writer: Rewriter, node: Node, scores: Ref, mask: Ref) -> Ref:
    """Scores plus a mask; false is minus infinity, which NaN and infinity outlive as NaN."""
    spec = writer.node(mask).outputs[mask.index]
    if spec.dtype == "bool":
        dtype, name = node.outputs[0].dtype, f"{node.name}_mask"
        mask = writer.call(
            "where", spec.shape, dtype, name, condition=mask, self=0.0, other=-math.inf
        )
    return writer.add(scores, mask, f"{node.name}_masked")


def _zeros_without_scores(writer: Rewriter, node: Node, scores: Ref, weights: Ref) -> Ref:
    """Weights that are zero, not NaN, in a row that a mask leaves no score; so has torch.

    A lost score's weight is zero in every other row too, unless that is NaN all along: then
    what remains of it makes the values NaN.
    """
    shape, dtype = writer.shape(scores), node.outputs[0].dtype
    lost = writer.call("eq", shape, "bool", f"{node.name}_lost", self=scores, other=-math.inf)
    name = f"{node.name}_kept"
    return writer.call("where", shape, dtype, name, condition=lost, self=0.0, other=weights)


def _einsum(writer: Rewriter, node: Node) -> None:
    tensors, equation = node.argument("tensors"), str(node.argument("equation"))
    inside, arrow, out = equation.replace(" ", "").partition("->")
    terms = inside.split(",")
    if not isinstance(tensors, tuple) or len(terms) != 2 or not arrow or "." in equation:
        raise Unsupported(f"the equation `{equation}` is not covered")
    if any(len(set(term)) < len(term) for term in (*terms, out)):
        raise Unsupported(f"the equation `{equation}` is not covered")
    left, right = (item for item in tensors if isinstance(item, Ref))
    _contract(writer, node, (left, terms[0]), (right, terms[1]), out)


def _tensordot(writer: Rewriter, node: Node) -> None:
    left, right = tensor(node, "self"), tensor(node, "other")
    one, two = len(writer.shape(left)), len(writer.shape(right))
    first = [chr(ord("a") + i) for i in range(one)]
    second = [chr(ord("a") + one + i) for i in range(two)]
    pairs = zip(_axes(node, "dims_self", one), _axes(node, "dims_other", two), strict=True)
    summed = [(i, j) for i, j in pairs]
    for i, j in summed:
        second[j] = first[i]
    kept = [c for i, c in enumerate(first) if i not in {i for i, _ in summed}]
    out = "".join(kept) + "".join(c for c in second if c not in first)
    _contract(writer, node, (left, "".join(first)), (right, "".join(second)), out)


def _axes(node: Node, name: str, rank: int) -> list[int]:
    value = node.argument(name)
    return [int(i) % rank for i in value] if isinstance(value, tuple) else []  # type: ignore[arg-type]


def _contract(
    writer: Rewriter, node: Node, one: tuple[Ref, str], two: tuple[Ref, str], out: str
) -> None:
    """A contraction by letters: axes of both stay in front, then rows, then columns."""
    (left, first), (right, second) = one, two
    if any(c not in out and (c in first) != (c in second) for c in {*first, *second}):
        raise Unsupported("an index that is summed in one operand alone is not covered")
    sizes = dict(zip(first, writer.shape(left), strict=True))
    sizes.update(zip(second, writer.shape(right), strict=True))
    if any(sizes[c] != size for c, size in zip(first, writer.shape(left), strict=True)):
        raise Unsupported("an index along which one operand is broadcast is not covered")
    batch = [c for c in out if c in first and c in second]
    rows, cols = (
        [c for c in out if c in t and c not in o] for t, o in ((first, second), (second, first))
    )
    depth = [c for c in first if c in second and c not in out]
    if out[: len(batch)] == "".join(batch) and out.endswith("".join(rows)) and cols and rows:
        (left, first, rows), (right, second, cols) = (right, second, cols), (left, first, rows)

    def matrix(x: Ref, letters: str, *groups: list[str]) -> Ref:
        order = [letters.index(c) for group in (batch, *groups) for c in group]
        shape = [*(sizes[c] for c in batch), *(math.prod(sizes[c] for c in g) for g in groups)]
        return writer.reshape(writer.permuted(x, order), shape)

    value = _multiply(
        writer,
        matrix(left, first, rows, depth),
        matrix(right, second, depth, cols),
        f"{node.name}_product",
    )
    made = [*batch, *rows, *cols]
    value = writer.reshape(value, [sizes[c] for c in made])
    writer.permuted(value, [made.index(c) for c in out])
    writer.finish(node)


_RULES: dict[str, Callable[[Rewriter, Node], None]] = {
    "matmul": _matmul("self", "other"),
    "mm": _matmul("self", "mat2"),
    "bmm": _matmul("self", "mat2"),
    "mv": _matmul("self", "vec"),
    "dot": _matmul("self", "tensor"),
    "vdot": _matmul("self", "other"),
    "addmm": _added("mat1", "mat2"),
    "baddbmm": _added("batch1", "batch2"),
    "addmv": _added("mat", "vec"),
    "linear": _linear,
    "outer": _outer,
    "einsum": _einsum,
    "tensordot": _tensordot,
    "scaled_dot_product_attention": _attention,
    "conv1d": convolve,
    "conv2d": convolve,
    "conv3d": convolve,
    "conv_transpose1d": convolve_back,
    "conv_transpose2d": convolve_back,
    "conv_transpose3d": convolve_back,
}
