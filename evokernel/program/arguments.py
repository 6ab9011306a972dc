"""Owns the fit between what a task's file returns and what its calls take."""

import inspect
from collections.abc import Callable
from typing import Any

from evokernel.errors import TaskError
from evokernel.nested import map_leaves
from evokernel.task import Workload


def of_constructor(
    model: Callable[..., Any], made: Any, label: str
) -> tuple[list[Any], dict[str, Any]]:
    """Read what `get_init_inputs()` returned.

    Args:
        model: The class.
        made: A list of positional arguments, a dictionary of keyword arguments, or a list of both.
        label: The file, for messages.

    Returns:
        Positional and keyword arguments.

    Raises:
        TaskError: it is something else.
    """
    match made:
        case dict():
            return [], made
        case [list() | tuple() as args, dict() as kwargs] if _takes(model, args, kwargs):
            return list(args), kwargs
        case list() | tuple():
            return list(made), {}
    raise TaskError(
        f"`get_init_inputs()` of {label} returned a {type(made).__name__}; expected a list of "
        "positional arguments or a dictionary of keyword arguments."
    )


def of_forward(model: Any, made: Any, called: str) -> list[Any]:
    """Read what `get_inputs()` returned.

    Args:
        model: The class.
        made: A list with one entry per argument of `forward`, or a dictionary by their names.
        called: What is read, and the file, for messages.

    Returns:
        Positional arguments.

    Raises:
        TaskError: it is something else, or the names do not fit.
    """
    if isinstance(made, list | tuple):
        return list(made)
    if not isinstance(made, dict):
        raise TaskError(
            f"{called} are a {type(made).__name__}; expected a list with one entry per argument of "
            "`forward`, or a dictionary by argument name."
        )
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(None, **made)
    except TypeError as error:
        raise TaskError(_misfit(called, signature, error)) from error
    bound.apply_defaults()
    if bound.kwargs:
        raise TaskError(
            f"{called} hold keyword-only arguments of `forward` ({', '.join(bound.kwargs)}); "
            "expected arguments that can be passed by position."
        )
    return list(bound.args[1:])


def require_fit(module: Any, inputs: list[Any], label: str) -> None:
    """Refuse arguments that `forward` does not take.

    Raises:
        TaskError: with the signature.
    """
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*inputs)
    except TypeError as error:
        raise TaskError(_misfit(f"the inputs of {label}", signature, error)) from error


def of_workloads(listed: Any, label: str) -> list[tuple[Workload, Callable[[], Any]]]:
    """Read what `get_workloads()` returned.

    Returns:
        Each workload with the function that makes its inputs.

    Raises:
        TaskError: it is no list of dictionaries, or a name is used twice.
    """
    if not isinstance(listed, list | tuple):
        raise TaskError(
            f"`get_workloads()` of {label} returned a {type(listed).__name__}; expected a list."
        )
    made = [_workload(entry, index, label) for index, entry in enumerate(listed, start=1)]
    names = ["default", *(workload.name for workload, _ in made)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TaskError(
            f"`get_workloads()` of {label} uses the name `{twice}` twice (`default` is what "
            "`get_inputs` gives); expected a name of its own for each."
        )
    return made


def _workload(entry: Any, index: int, label: str) -> tuple[Workload, Callable[[], Any]]:
    if not isinstance(entry, dict) or "inputs" not in entry or set(entry) - _KEYS:
        raise TaskError(
            f"Entry {index} of `get_workloads()` of {label} is {entry!r:.80}; expected a "
            'dictionary with "inputs" (a list, or a function that returns one) and, as needed, '
            '"name" and "hidden".'
        )
    inputs = entry["inputs"]
    name = str(entry.get("name", f"workload_{index}"))
    workload = Workload(name=name, index=index, hidden=bool(entry.get("hidden", False)))
    return workload, inputs if callable(inputs) else lambda: _copied(inputs)


_KEYS = {"name", "inputs", "hidden"}


def _copied(inputs: Any) -> Any:
    """Fresh tensors, so that nothing can spoil the file's own."""
    return map_leaves(lambda leaf: leaf.clone() if hasattr(leaf, "clone") else leaf, inputs)


def _takes(model: Callable[..., Any], args: Any, kwargs: dict[Any, Any]) -> bool:
    """Whether the constructor takes these; tells `[args, kwargs]` from two plain arguments."""
    try:
        inspect.signature(model).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def _misfit(called: str, signature: inspect.Signature, error: TypeError) -> str:
    return (
        f"{called} do not fit `forward{signature}`: {error}. `get_inputs()` returns a list with "
        "one entry per argument of `forward`."
    )
