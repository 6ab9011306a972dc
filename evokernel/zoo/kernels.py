"""Owns the kernels that stand in an exhibit's text, to be built ahead of its judgement.

What is put together when the module runs is not among them; it is built when it is asked for.
"""

import ast
from collections.abc import Iterator
from typing import Any

from evokernel.attempt import Backend
from evokernel.zoo import Exhibit

Kernel = tuple[Backend, str, tuple[str, ...]]
"""Language, source, and the flags that go with it."""

_MAKERS: dict[str, Backend] = {"cpp_module": "cpp", "cuda_module": "cuda"}


def written(exhibit: Exhibit) -> tuple[Kernel, ...]:
    """The kernels that are texts, or names of texts, in calls of `cpp_module` or `cuda_module`."""
    tree = ast.parse(exhibit.candidate().source)
    names = dict(_constants(tree))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _backend(node)]
    found = (_kernel(call, names) for call in calls)
    return tuple(kernel for kernel in found if kernel is not None)


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                yield node.targets[0].id, ast.literal_eval(node.value)
            except ValueError:
                continue


def _backend(call: ast.Call) -> Backend | None:
    """The language of the module that is made; None where none is."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    return _MAKERS.get(name.id if isinstance(name, ast.Name) else str(name))


def _kernel(call: ast.Call, names: dict[str, Any]) -> Kernel | None:
    backend = _backend(call)
    given = dict(zip(("source", "flags"), call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg}
    values = {name: _value(node, names) for name, node in given.items()}
    if backend is None or not isinstance(values.get("source"), str):
        return None
    if not values.keys() <= {"source", "flags"}:
        return None
    return backend, values["source"], tuple(values.get("flags") or ())


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
