"""Owns the reading of what a worker says in words: in form, in size, as a terminal may show it."""

from typing import Any

from evokernel.bench.wire import Message
from evokernel.evaluation import Diagnostic, Status
from evokernel.wording import plain

MILD = {
    *(Status.RUNTIME_ERROR, Status.INVALID_SOURCE, Status.WRONG_STRUCTURE),
    *(Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT),
}
"""After these a worker may go on."""
_OWN_WORDS = {*MILD, Status.OUT_OF_MEMORY}
"""What a worker may say; all else is found out outside."""
_MOST_DIAGNOSTICS = 20
_REASON_CHARS, _LOG_CHARS, _TEXT_CHARS = 1000, 8000, 500

_AS_IT_IS = ("package", "tree")  # values that are compared with what is expected

Complaint = tuple[Status, str, tuple[Diagnostic, ...], str]
"""Status, reason, diagnostics, log."""


def tamed(message: Message) -> Message:
    """A message whose texts hold nothing that a terminal would obey, values of outputs aside.

    Raises:
        ValueError: It is nested too deeply.
    """
    try:
        return {
            part: told if part in _AS_IT_IS else _spelt_out(told) for part, told in message.items()
        }
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read(error: Any) -> Complaint:
    """Take the report of a tamed message apart, believing its form only.

    Raises:
        ValueError: It is none, or gives a status that is not the worker's to give.
    """
    try:
        status = Status(error["status"])
        told = error["diagnostics"][:_MOST_DIAGNOSTICS]
        diagnostics = tuple(_cut(Diagnostic.model_validate(item)) for item in told)
        reason, log = str(error["reason"]), str(error["log"])
    except (KeyError, TypeError) as damage:
        raise ValueError("no report") from damage
    if status not in _OWN_WORDS:
        raise ValueError(f"`{status}` is not its to say")
    return status, reason[:_REASON_CHARS], diagnostics, log[-_LOG_CHARS:]


def _spelt_out(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_spelt_out(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): _spelt_out(item) for key, item in value.items()}
    return value


def _cut(diagnostic: Diagnostic) -> Diagnostic:
    fields = ("message", "file", "excerpt")
    texts = {name: getattr(diagnostic, name) for name in fields}
    told = {name: text[:_TEXT_CHARS] for name, text in texts.items() if text}
    return diagnostic.model_copy(update=told)
