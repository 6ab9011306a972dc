"""Owns the JSON form of nested values: tensors become numbers, unknown objects their names."""

import math
from collections.abc import Callable
from typing import Any

from evokernel.bench.messages import Foreign

MAX_DEPTH = 64
"""Nesting beyond which a structure is refused."""
MAX_LEAVES = 10_000
"""Leaves beyond which a structure is refused."""
MAX_TEXT = 10_000
"""Characters of one text beyond which a structure is refused."""


class BadTree(Exception):
    """A structure that cannot travel; the message names the object."""


def encode(value: Any, tensor: Callable[[Any], int | None], foreign: bool, depth: int = 0) -> Any:
    """The JSON form of a nested value.

    Args:
        value: Lists, tuples, dictionaries with text or integer keys, tensors, plain values.
        tensor: Takes a tensor and answers its number; None where its elements cannot be read.
        foreign: Whether other objects become `Foreign`; else they are refused.
        depth: Present depth.

    Raises:
        BadTree: Too deep, or an object that cannot travel.
    """
    import torch

    if depth > MAX_DEPTH:
        raise BadTree(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, torch.Tensor) and (number := tensor(value)) is not None:
        return {"t": number}
    if isinstance(value, list | tuple):
        items = [encode(v, tensor, foreign, depth + 1) for v in value]
        return {"u" if isinstance(value, tuple) else "l": items}
    if isinstance(value, dict) and all(isinstance(key, str | int) for key in value):
        return {"d": [[k, encode(v, tensor, foreign, depth + 1)] for k, v in value.items()]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    return _encode_plain(value, foreign)


def decode(tree: Any, tensors: list[Any]) -> Any:
    """The nested value of a JSON form, `tensors` put in by their numbers.

    Raises:
        BadTree: Not such a form, too large, or a number that is not in `tensors`.
    """
    room = [MAX_LEAVES]
    try:
        return _decode(tree, tensors, room, 0)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise BadTree(f"a damaged structure: {error!r}") from error


def type_name(value: Any) -> str:
    """The exact type of an object, e.g. `torch.Tensor`."""
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _encode_plain(value: Any, foreign: bool) -> Any:
    if value is None or type(value) in (bool, int):
        return {"v": value}
    if type(value) is str and len(value) <= MAX_TEXT:
        return {"v": value}
    if type(value) is float:
        return {"v": value} if math.isfinite(value) else {"f": repr(value)}
    if type(value) is complex:
        return {"c": [repr(value.real), repr(value.imag)]}
    if foreign:
        return {"x": _describe(value)[:200]}
    raise BadTree(f"an object of type `{_describe(value)}`")


def _describe(value: Any) -> str:
    """The type; of a tensor, for only such come here, also what keeps it from being read."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{type_name(value)} ({value.layout}, {value.dtype}, {value.device})"
    return type_name(value)


def _decode(tree: Any, tensors: list[Any], room: list[int], depth: int) -> Any:
    room[0] -= 1
    if room[0] < 0 or depth > MAX_DEPTH:
        raise BadTree(f"more than {MAX_LEAVES} leaves or nested deeper than {MAX_DEPTH}")
    ((kind, body),) = tree.items()
    if kind == "d":
        return {_key(key): _decode(item, tensors, room, depth + 1) for key, item in body}
    if kind in ("l", "u"):
        items = [_decode(item, tensors, room, depth + 1) for item in body]
        return items if kind == "l" else tuple(items)
    return _LEAVES[kind](body, tensors)


def _key(key: Any) -> Any:
    if not isinstance(key, str | int):
        raise BadTree("a key that is neither text nor integer")
    return key


def _plain(body: Any, _: list[Any]) -> Any:
    if isinstance(body, dict | list):
        raise BadTree("a container in the place of a plain value")
    return body


def _tensor(body: Any, tensors: list[Any]) -> Any:
    if type(body) is not int or body < 0:
        raise BadTree("a tensor without a number")
    return tensors[body]


def _dtype(body: Any, _: list[Any]) -> Any:
    import torch

    if not isinstance(found := getattr(torch, str(body)), torch.dtype):
        raise BadTree("a dtype that is none")
    return found


def _device(body: Any, _: list[Any]) -> Any:
    import torch

    return torch.device(str(body))


_LEAVES: dict[str, Callable[[Any, list[Any]], Any]] = {
    "v": _plain,
    "f": lambda body, _: float(body),
    "c": lambda body, _: complex(float(body[0]), float(body[1])),
    "t": _tensor,
    "x": lambda body, _: Foreign(type_name=str(body)[:200]),
    "dtype": _dtype,
    "device": _device,
}
