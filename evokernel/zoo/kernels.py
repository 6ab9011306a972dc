"""Owns the kernels that stand in an exhibit's text, to be built ahead of its judgement.

What is put together when the module runs is not among them; it is built when it is asked for.
"""

import ast
from collections.abc import Iterator
from typing import Any

from evokernel.zoo import Exhibit

Kernel = tuple[str, tuple[str, ...]]
"""A source and the flags that go with it."""


def written(exhibit: Exhibit) -> tuple[Kernel, ...]:
    """The C++ kernels that are texts, or names of texts, in calls of `cpp_module`."""
    tree = ast.parse(exhibit.candidate().source)
    names = dict(_constants(tree))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_module(node))
    found = (_kernel(call, names) for call in calls)
    return tuple(kernel for kernel in found if kernel is not None)


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                yield node.targets[0].id, ast.literal_eval(node.value)
            except ValueError:
                continue


def _is_module(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    return (name.id if isinstance(name, ast.Name) else name) == "cpp_module"


def _kernel(call: ast.Call, names: dict[str, Any]) -> Kernel | None:
    given = dict(zip(("source", "flags"), call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg}
    values = {name: _value(node, names) for name, node in given.items()}
    if not isinstance(values.get("source"), str) or not values.keys() <= {"source", "flags"}:
        return None
    return values["source"], tuple(values.get("flags") or ())


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
