"""Owns `Refusal`: why a call was not carried out, as data that a program can act on."""

from typing import Any

from pydantic import ValidationError

from evokernel.errors import (
    ConfigError,
    EvoKernelError,
    RecordError,
    StoreError,
    TaskError,
    UsageError,
    WorkerError,
)
from evokernel.frozen import Frozen


class Refusal(Frozen):
    """Why a call was not carried out."""

    kind: str
    """`BadArgument`, `UnknownTool`, the name of an exception of `evokernel.errors`, or
    `InternalError`."""
    argument: str | None
    """Which argument it is about; None where it is about none, or about the set-up."""
    message: str
    """What is wrong."""
    expected: str
    """What would have been accepted; empty where the message says it."""
    advice: str
    """What to do now."""

    def in_words(self) -> str:
        """All of it in one paragraph."""
        about = f" (argument `{self.argument}`)" if self.argument else ""
        expected = f" Expected {self.expected.rstrip('.')}." if self.expected else ""
        return f"{self.kind}{about}: {self.message.rstrip('.')}.{expected} {self.advice}".strip()


class BadArgument(UsageError):
    """An argument of a call that cannot be used."""

    def __init__(self, argument: str, message: str, expected: str, advice: str = "") -> None:
        super().__init__(message)
        self.refusal = Refusal(
            kind="BadArgument",
            argument=argument,
            message=message,
            expected=expected,
            advice=advice or "Repair the argument and call again.",
        )


class Refused(EvoKernelError):
    """A desk refused; the refusal comes from there."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def refusal_of(error: Exception) -> Refusal:
    """What to tell the caller about an exception."""
    if isinstance(error, BadArgument | Refused):
        return error.refusal
    if isinstance(error, ValidationError):
        return _misfit(error)
    if isinstance(error, EvoKernelError):
        return Refusal(
            kind=type(error).__name__,
            argument=next((name for kind, name in _ABOUT.items() if isinstance(error, kind)), None),
            message=" ".join([str(error), *getattr(error, "__notes__", ())]),
            expected="",
            advice=_advice(error),
        )
    return Refusal(
        kind="InternalError",
        argument=None,
        message=f"{type(error).__name__}: {error}",
        expected="",
        advice="This is a fault of EvoKernel; the server's standard error has the traceback.",
    )


_ABOUT: dict[type[EvoKernelError], str] = {TaskError: "task", RecordError: "run"}
"""Which argument an exception is about, by its type."""


def _advice(error: EvoKernelError) -> str:
    if isinstance(error, TaskError | RecordError | ConfigError):
        return "Do what the message says and call again."
    if isinstance(error, StoreError):
        return (
            "The memory needs a person's hand; without one, `evokernel serve mcp --memory none` "
            "judges as ever."
        )
    if isinstance(error, WorkerError):
        return (
            "Nothing was counted. Send the same candidate again once nothing else keeps the "
            "machine busy; `quick` needs less calm. The tool `doctor` knows more."
        )
    if isinstance(error, UsageError):
        return "The set-up has to change first; the tool `doctor` says what is missing."
    return "Call again; if it happens once more, the tool `doctor` may know why."


def _misfit(error: ValidationError) -> Refusal:
    """Arguments that do not fit the tool's schema; the first of them in detail."""
    faults = error.errors(include_url=False)
    first = faults[0]
    name = ".".join(map(str, first["loc"])) or "arguments"
    others = ", ".join(f"`{'.'.join(map(str, f['loc']))}`" for f in faults[1:])
    expected = _EXPECTED.get(first["type"], first["msg"].replace("Input should be", "").strip())
    return Refusal(
        kind="BadArgument",
        argument=name,
        message=_misuse(first, name) + (f"; also wrong: {others}" if others else ""),
        expected=expected,
        advice="The tool's input schema describes every argument; repair this one and call again.",
    )


_EXPECTED = {
    "missing": "a value",
    "extra_forbidden": "only arguments of the tool's input schema",
}


def _misuse(fault: Any, name: str) -> str:
    if fault["type"] == "missing":
        return f"`{name}` is missing"
    if fault["type"] == "extra_forbidden":
        return f"there is no argument `{name}`"
    return f"`{name}` cannot be {fault['input']!r:.80}"
