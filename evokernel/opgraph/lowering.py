"""Owns the one spelling of each operator call: canonical names and arguments of traced ATen calls.

What a consumer of `OpGraph` may rely on:

- Names carry no namespace, overload or in-place underscore; synonyms have one name (`multiply` is
  `mul`, `square` is `pow`, `rsub` is `sub` with its operands swapped, `clamp_min` and `relu6` are
  `clamp`, `max` with two tensors is `maximum`, `type_as` is `to`).
- Arguments stand in schema order, defaults filled in, `self` first; either operand of a binary
  operator may be a plain number.
- Dimensions are counted from the front. Reductions (`sum`, `mean`, `amax`, `var`, ...) always carry
  `(self, dim, keepdim, ...)` with `dim` a tuple that names every reduced dimension.
- Sizes of `view`, `reshape` and `expand` are those of the result.
"""

from collections.abc import Callable, Mapping
from typing import Any

from evokernel.opgraph import Argument, TensorSpec
from evokernel.opgraph.operators import FACTORY

Given = dict[str, Argument]
Specs = Callable[[Argument], TensorSpec | None]
"""Looks up the shape of an argument; None for what is not a tensor."""

SYNONYMS: Mapping[str, str] = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "divide": "div",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "moveaxis": "movedim",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "special_erf": "erf",
    "special_erfc": "erfc",
    "special_exp2": "exp2",
    "special_expit": "sigmoid",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "special_log_softmax": "log_softmax",
    "special_logsumexp": "logsumexp",
    "special_softmax": "softmax",
    "subtract": "sub",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "true_divide": "div",
    "_log_softmax": "log_softmax",
    "_softmax": "softmax",
    "_to_copy": "to",
    "_unsafe_view": "view",
    "unsafe_chunk": "chunk",
    "unsafe_split": "split",
}

REDUCTIONS = frozenset(
    {"sum", "mean", "prod", "any", "all", "amax", "amin", "nansum", "nanmean", "logsumexp"}
    | {"var", "std", "var_mean", "std_mean", "linalg_vector_norm", "count_nonzero"}
)
"""Operators whose `dim` becomes a tuple of every reduced dimension."""

_NO_MEANING = frozenset(
    {"layout", "device", "pin_memory", "non_blocking", "memory_format", "generator"}
    | {"cudnn_enable", "cudnn_enabled", "half_to_float"}
)
"""Arguments that say how, not what."""

_DIMS = frozenset({"dim", "dim0", "dim1", "dims", "start_dim", "end_dim"})
_SIZED = {"view": "size", "reshape": "shape", "expand": "size", "unsafe_view": "size"}


def canonical(
    op: str, overload: str, given: Given, out: tuple[TensorSpec, ...], spec: Specs
) -> tuple[str, Given]:
    """Bring one call into the spelling that the module describes.

    Args:
        op: Name without namespace and overload, already functional.
        overload: Name of the overload, e.g. `dim_IntList`.
        given: Arguments by schema name, defaults filled in, in schema order.
        out: What the call returns.
        spec: Looks up the arguments' shapes.
    """
    op = SYNONYMS.get(op, op)
    given = {name: value for name, value in given.items() if name not in _NO_MEANING}
    if op in _RULES:
        op, given = _RULES[op](op, overload, dict(given), out)
    if op in REDUCTIONS:
        given = _reduction(given, spec)
    if op in _SIZED:
        given = {"self": given["self"], "size": out[0].shape}
    if op in FACTORY:
        given = {**given, "dtype": out[0].dtype}
    if op in {"select", "slice", "slice_scatter", "select_scatter"}:
        given = _range(given, spec)
    return op, _counted_from_front(op, given, out, spec)


def _counted_from_front(op: str, given: Given, out: tuple[TensorSpec, ...], spec: Specs) -> Given:
    inner = spec(next(iter(given.values()), None))
    rank = len(out[0].shape) if inner is None or op in {"unsqueeze", "stack"} else len(inner.shape)
    return {name: _wrap(value, rank) if name in _DIMS else value for name, value in given.items()}


def _range(given: Given, spec: Specs) -> Given:
    """Indices are counted from the front too, and end where the dimension ends."""
    inner, dim = spec(given["self"]), given["dim"]
    size = inner.shape[int(dim)] if inner and isinstance(dim, int) else 0  # may count from the end
    given = dict(given)
    for name, default in (("index", 0), ("start", 0), ("end", size)):
        if name in given:
            value = given[name]
            place = default if value is None else int(value)  # type: ignore[arg-type]
            given[name] = min(max(place + size if place < 0 else place, 0), size)
    return given


def _wrap(value: Argument, rank: int) -> Argument:
    if isinstance(value, tuple):
        return tuple(_wrap(item, rank) for item in value)  # type: ignore[misc]
    is_dim = isinstance(value, int) and not isinstance(value, bool)
    return value % max(rank, 1) if is_dim else value  # type: ignore[operator]


def _reduction(given: Given, spec: Specs) -> Given:
    inner = spec(given["self"])
    rank = len(inner.shape) if inner else 0
    dim = given.pop("dim", None)
    if dim is None or dim == ():
        dim = tuple(range(rank))
    elif not isinstance(dim, tuple):
        dim = (dim,)
    front = {"self": given.pop("self")}
    if "ord" in given:
        front["ord"] = given.pop("ord")
    keepdim = given.pop("keepdim", False)
    ordered = tuple(sorted(int(_wrap(d, rank)) for d in dim))  # type: ignore[arg-type]
    return {**front, "dim": ordered, "keepdim": keepdim, **given}


def _square(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    return "pow", {"self": given["self"], "exponent": 2}


def _rsub(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    return "sub", {"self": given["other"], "other": given["self"], "alpha": given["alpha"]}


def _div(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    return op, {
        "self": given["self"],
        "other": given["other"],
        "rounding_mode": given.get("rounding_mode"),
    }


def _extremum(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    """`max` and `min` are three operators: of two tensors, of all elements, along a dimension."""
    if overload == "other":
        return f"{op}imum", given
    return (f"a{op}", {"self": given["self"]}) if overload == "default" else (op, given)


def _norm(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    order = given.get("p", 2)
    return "linalg_vector_norm", {
        "self": given["self"],
        "ord": 2 if order is None else order,
        "dim": given.get("dim"),
        "keepdim": given.get("keepdim", False),
        "dtype": given.get("dtype"),
    }


def _spread(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    """`var` and `std`: `unbiased` is a correction of one."""
    if "unbiased" in given:
        given["correction"] = int(bool(given.pop("unbiased")))
    elif given.get("correction") is None:
        given["correction"] = 1
    correction = given.pop("correction")
    return op, {**given, "correction": correction}


def _sum(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    dtype = given.pop("dtype", None)
    return op, {**given, "dtype": dtype}


def _to(op: str, overload: str, given: Given, out: tuple[TensorSpec, ...]) -> tuple[str, Given]:
    return "to", {"self": given["self"], "dtype": out[0].dtype}


def _like(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    return op.removesuffix("_as"), {"self": given["self"], "size": None}


def _clamp_one(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    return "clamp", {"self": given["self"], "min": given.get("min"), "max": given.get("max")}


def _hardtanh(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    return "clamp", {"self": given["self"], "min": given["min_val"], "max": given["max_val"]}


def _relu6(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    return "clamp", {"self": given["self"], "min": 0.0, "max": 6.0}


def _contiguous(op: str, overload: str, given: Given, out: Any) -> tuple[str, Given]:
    """A copy whose only effect is another layout; other copies are left out of the graph."""
    return "contiguous", {"self": given["self"]}


def _matrix_transpose(
    op: str, overload: str, given: Given, out: tuple[TensorSpec, ...]
) -> tuple[str, Given]:
    rank = len(out[0].shape)
    if rank != 2 and op != "mT":  # `t` of a vector, `T` of a stack
        return "permute", {"self": given["self"], "dims": tuple(reversed(range(rank)))}
    return "transpose", {"self": given["self"], "dim0": -2, "dim1": -1}


def _rms_norm(
    op: str, overload: str, given: Given, out: tuple[TensorSpec, ...]
) -> tuple[str, Given]:
    """Without an `eps` it is the machine epsilon of the input's type."""
    if given.get("eps") is None:
        import torch

        given["eps"] = torch.finfo(getattr(torch, out[0].dtype)).eps
    return op, given


_RULES: Mapping[str, Callable[..., tuple[str, Given]]] = {
    "square": _square,
    "rsub": _rsub,
    "div": _div,
    "max": _extremum,
    "min": _extremum,
    "norm": _norm,
    "var": _spread,
    "std": _spread,
    "var_mean": _spread,
    "std_mean": _spread,
    "sum": _sum,
    "mean": _sum,
    "prod": _sum,
    "to": _to,
    "type_as": _to,
    "expand_as": _like,
    "view_as": _like,
    "reshape_as": _like,
    "clamp_min": _clamp_one,
    "clamp_max": _clamp_one,
    "hardtanh": _hardtanh,
    "relu6": _relu6,
    "t": _matrix_transpose,
    "mT": _matrix_transpose,
    "numpy_T": _matrix_transpose,
    "clone": _contiguous,
    "contiguous": _contiguous,
    "rms_norm": _rms_norm,
}


def plain(value: Any, ref: Callable[[Any], Argument]) -> Argument:
    """Turn a traced argument into plain data; `ref` looks up what another node made."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(plain(item, ref) for item in value)  # type: ignore[misc]
    if type(value).__module__.partition(".")[0] == "torch" and not hasattr(value, "op"):
        return str(value).removeprefix("torch.")
    return ref(value)
