"""Owns how a fault is told: one paragraph on standard error, and the exit code."""

import errno
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from evokernel.cli.groups import Stopped
from evokernel.cli.wording import folded
from evokernel.config import home
from evokernel.errors import EvoKernelError

FAILED = 1
"""Exit code of a fault that is not the user's."""
MISUSED = 2
"""Exit code of a fault that the user can repair."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, by the shells' convention of 128 + SIGINT."""


def tell(error: BaseException) -> int:
    """Say what went wrong and what to do about it; the exit code says whose turn it is."""
    if isinstance(error, Stopped) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BrokenPipeError):
        _leave_the_reader_alone()
        return 0
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error, file=sys.stderr)
        return MISUSED
    text, code = _told(error)
    complain(text)
    _flush_or_forget()
    return code


def complain(text: str) -> None:
    """Print one paragraph on standard error: wrapped on a terminal, one line elsewhere."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    print(folded(text, width, 2, "evokernel: "), file=sys.stderr, flush=True)


def paragraph(error: EvoKernelError) -> str:
    """The message with what was added to it on its way."""
    return _sentences(str(error), *getattr(error, "__notes__", ()))


def _told(error: BaseException) -> tuple[str, int]:
    if isinstance(error, EvoKernelError):
        return paragraph(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "interrupted", INTERRUPTED
    if isinstance(error, OSError) and error.errno in _FULL:
        return _full(error), FAILED if getattr(error, "__notes__", ()) else MISUSED
    if hasattr(error, "format_message"):
        return _misused(error), MISUSED
    return _unexpected(error), FAILED


_FULL = {errno.ENOSPC, errno.EDQUOT}


def _full(error: OSError) -> str:
    place = f"`{error.filename}`" if error.filename else "a file or standard output"
    said = f"{place} cannot be written: {error.strerror}; make room, then try again"
    return _sentences(said, *getattr(error, "__notes__", ()))


def _misused(error: BaseException) -> str:
    """What typer found wrong with the arguments, in our words.

    Its exceptions have had different homes in its versions, so they are known by what they carry.
    """
    command = getattr(getattr(error, "ctx", None), "command_path", "evokernel")
    return _sentences(_misuse(error, command), f"`{command} --help` describes every option")


def _misuse(error: BaseException, command: str) -> str:
    message = re.sub(r"'(--?[\w-]+)'", r"`\1`", str(getattr(error, "message", error)))
    message = message.replace("Input should be", "expected a value:")
    if hasattr(error, "possibilities"):
        near = " or ".join(f"`{name}`" for name in error.possibilities or ())
        suggestion = f" Did you mean {near}?" if near else ""
        return f"`{getattr(error, 'option_name', '')}` is no option of `{command}`.{suggestion}"
    parameter = getattr(error, "param", None)
    if parameter is None:
        return message
    name = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "option":
        name = max(parameter.opts, key=len)
    return f"`{name}` cannot be used: {message}" if message else f"`{command}` needs `{name}`"


def _sentences(*parts: str) -> str:
    return " ".join(p if p.endswith((".", "?", "!")) else f"{p}." for p in parts if p)


def _unexpected(error: BaseException) -> str:
    what = f"{type(error).__name__}: {error}".strip().rstrip(":.")
    place = _write_traceback(error)
    where = (
        f"The traceback is in `{place}`." if place else "".join(traceback.format_exception(error))
    )
    said = _sentences(f"something unexpected went wrong: {what}", *getattr(error, "__notes__", ()))
    return f"{said} This is a fault of EvoKernel, not of your input. {where}"


def _write_traceback(error: BaseException) -> Path | None:
    """Keep it where there is room for it; None where nothing can be written at all."""
    name = f"traceback-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    text = "".join(traceback.format_exception(error))
    for folder in (home() / "tracebacks", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{' '.join(sys.argv)}\n\n{text}", encoding="utf-8")
        except OSError:
            continue
        return folder / name
    return None


def _flush_or_forget() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _leave_the_reader_alone()


def _leave_the_reader_alone() -> None:
    """Send what is still buffered nowhere, or the interpreter complains about it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
