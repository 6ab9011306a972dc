"""Owns the reading of an exported file without running it."""

import ast
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evokernel.attempt import Candidate
from evokernel.errors import ConfigError
from evokernel.export.claims import Claims
from evokernel.frozen import Frozen
from evokernel.task import Task


class ExportedFile(Frozen):
    """What an exported file holds."""

    claims: Claims
    """What it says about itself."""
    task: Task
    candidate: Candidate


def read_exported(path: Path, source: str) -> ExportedFile | None:
    """Take an exported file apart; None where it is another kind of file.

    Raises:
        ConfigError: It was exported once, but was changed since.
    """
    try:
        values = _assigned(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not {"RECORD", "REFERENCE", "CANDIDATE", "DOMAIN"} <= values.keys():
        return None
    try:
        claims = Claims.model_validate(ast.literal_eval(values["RECORD"]))
        reference, text = unquoted(values["REFERENCE"]), unquoted(values["CANDIDATE"])
    except (ValidationError, ValueError) as error:
        raise _damaged(path, f"its record cannot be read: {str(error).splitlines()[0]}") from error
    task = Task.from_source(reference, claims.task).model_copy(update={"options": claims.options})
    candidate = Candidate(source=text, backend="cpp")
    if (task.sha, candidate.sha) != (claims.task_sha, claims.candidate):
        raise _damaged(path, "`REFERENCE` or `CANDIDATE` is not the text that was verified")
    return ExportedFile(claims=claims, task=task, candidate=candidate)


def unquoted(node: ast.expr) -> str:
    """The text that `literals.quoted` has written.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(node, ast.Subscript):  # r'''...'''[1:]
        return str(ast.literal_eval(node.value))[1:]
    return str(ast.literal_eval(node))


def _assigned(tree: ast.Module) -> dict[str, Any]:
    return {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _damaged(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"`{path}` is an exported file that was changed since: {why}; export it again, or judge "
        "the kernel inside of it as a candidate (`evokernel evaluate`)"
    )
