"""Owns `flat`: a command that takes records, and offers each of their fields as an option."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """Let typer see the fields of dataclasses, declared as options, in the place of the records.

    Args:
        command: Its parameters are declared for typer, or are dataclasses whose fields are.
    """
    hints = get_type_hints(command, include_extras=True)
    records = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def flattened(**given: Any) -> None:
        for name, kind in records.items():
            values = {field.name: given.pop(field.name) for field in fields(kind)}
            given[name] = kind(**values)  # type: ignore[operator]  # a class, as declared
        command(**given)

    declared = [
        shown
        for parameter in signature(command).parameters.values()
        for shown in _shown(parameter, hints)
    ]
    flattened.__signature__ = Signature(declared)  # type: ignore[attr-defined]
    flattened.__annotations__ = {one.name: one.annotation for one in declared}
    return flattened


def _shown(parameter: Parameter, hints: dict[str, Any]) -> list[Parameter]:
    """What typer is shown of one parameter. By keyword, so that defaults stand in any order."""
    kind = hints[parameter.name]
    if not is_dataclass(kind):
        return [parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY)]
    inner = get_type_hints(kind, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=inner[field.name],
        )
        for field in fields(kind)
    ]
