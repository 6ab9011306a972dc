"""Owns the reading of NVRTC's and the assembler's messages: from their text to records."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Literal, NamedTuple

from evokernel.compilers.diagnostics import capped, line_of, located
from evokernel.compilers.toolkit import HEADERS
from evokernel.evaluation import Diagnostic

KERNEL = "kernel.cu"
"""Name under which every kernel is compiled, so that equal sources give equal machine code."""

_INDENT = 2
"""Blanks that NVRTC puts before a line of the source."""

_MESSAGE = re.compile(
    r"(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
    r"(?P<kind>catastrophic error|error|warning|note|remark)(?: #\d+(?:-D)?)?: (?P<text>.*)"
)
_AT_LINE = re.compile(r'\bat line (?P<line>\d+)(?: of "?(?P<file>[^"\s]+)"?)?')
_CARET = re.compile(r" *\^ *")
_TOOL = re.compile(
    r"(?:ptxas|nvrtc|nvlink)(?: application ptx input, line \d+;)?:?\s+"
    r"(?P<kind>fatal|error|warning)\s*: (?P<text>.+)"
)
_NOISE = re.compile(r"Ptx assembly aborted.*")
_UNRESOLVED = re.compile(r"Unresolved extern (?:function|variable) '(?P<symbol>[^']+)'")
_NO_HEADER = re.compile(r'could not open source file "(?P<name>[^"]+)"|'
                        r'cannot open source file "(?P<other>[^"]+)"')  # fmt: skip
_CATALOGUE = (
    (re.compile(r"crt/.*"), "nvidia-cuda-crt"),
    (re.compile(r"(?:cub|thrust|cuda|nv)/.*"), "nvidia-cuda-cccl"),
    (
        re.compile(r"(?:cuda|cooperative_groups|mma|vector_|device_|math_|sm_\d+|builtin_).*"),
        "nvidia-cuda-runtime",
    ),
)


class _Told(NamedTuple):
    """One message with the lines that belong to it."""

    head: re.Match[str]
    body: list[str]


def parse(output: str, source: str) -> tuple[Diagnostic, ...]:
    """Read what NVRTC and ptxas wrote about `KERNEL`.

    Args:
        output: the log.
        source: the kernel, for the excerpts.

    Returns:
        Errors first, then warnings, each once, capped in number and length. An error inside a
        header stands at the kernel's line that led there, where one did.
    """
    lines = source.split("\n")
    found: dict[tuple[object, ...], Diagnostic] = {}
    for diagnostic in (*_compiler(output.split("\n"), lines), *_tools(output, lines)):
        place = diagnostic.severity, diagnostic.line, diagnostic.column, diagnostic.message
        found.setdefault(place, diagnostic)
    return capped(found.values())


def failure(message: str, line: int | None = None, source: Sequence[str] = ()) -> Diagnostic:
    """An error of the kernel as a whole, or of one of its lines."""
    return located(KERNEL, "error", message, line, None, source)


def _compiler(output: Sequence[str], source: Sequence[str]) -> Iterator[Diagnostic]:
    told: list[_Told] = []
    for line in output:
        head = _MESSAGE.fullmatch(line)
        if head and (head["kind"] not in {"note", "remark"} or not told):
            told.append(_Told(head, []))
        elif told and (line[:1].isspace() or not line):
            told[-1].body.append(line)
    for message in told:
        # What a header's own lines are warned of is none of the kernel's doing.
        if "error" in message.head["kind"] or message.head["file"] == KERNEL:
            yield _located(message, source)


def _located(told: _Told, source: Sequence[str]) -> Diagnostic:
    head = told.head
    severity: Literal["error", "warning"] = "warning" if head["kind"] == "warning" else "error"
    text = _with_details(head["text"], told.body)
    if name := _missing_header(text):
        text = f"{text}; {_where_from(name)}"
    if head["file"] == KERNEL:
        return located(KERNEL, severity, text, int(head["line"]), _column(told.body), source)
    header = "/".join(PurePath(head["file"]).parts[-2:])
    origin = _origin(told.body) or _including(head["file"], source)
    return located(KERNEL, severity, f"{text} (in {header}:{head['line']})", origin, None, source)


def _with_details(text: str, body: Sequence[str]) -> str:
    """The message with what NVRTC puts below it, e.g. `argument types are: (float, int)`."""
    details = []
    for line in body:
        if len(line) - len(line.lstrip()) < 12 or _AT_LINE.search(line) or _CARET.fullmatch(line):
            break
        details.append(line.strip())
    return " ".join([text, *details])


def _column(body: Sequence[str]) -> int | None:
    caret = next((line for line in body if _CARET.fullmatch(line)), None)
    return caret.index("^") - _INDENT + 1 if caret else None


def _origin(body: Sequence[str]) -> int | None:
    """The kernel's line that made a template of a header be instantiated."""
    found = [m for line in body for m in _AT_LINE.finditer(line) if m["file"] == KERNEL]
    return int(found[-1]["line"]) if found else None


def _including(path: str, source: Sequence[str]) -> int | None:
    """The kernel's line that includes a header."""
    for number, line in enumerate(source, 1):
        included = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if included and f"/{path}".endswith(f"/{included[1]}"):
            return number
    return None


def _missing_header(text: str) -> str:
    found = _NO_HEADER.search(text)
    return (found["name"] or found["other"]) if found else ""


def _where_from(name: str) -> str:
    wheel = HEADERS[name].wheel if name in HEADERS and "/" in name else ""
    wheel = wheel or next((w for pattern, w in _CATALOGUE if pattern.fullmatch(name)), "")
    if not wheel:
        return "a kernel can include CUDA's own headers only, no host library"
    return f"it comes with `{wheel}` (extra `compilers`), or with a toolkit that `$CUDA_HOME` names"


def _tools(output: str, source: Sequence[str]) -> Iterator[Diagnostic]:
    """Read the lines of the assembler, which knows no line of the source."""
    for line in output.splitlines():
        found = _TOOL.fullmatch(line.strip())
        if found is None or _NOISE.fullmatch(found["text"]):
            continue
        if unresolved := _UNRESOLVED.match(found["text"]):
            name = _plain(unresolved["symbol"])
            yield failure(f"undefined reference to `{name}`", line_of(name, source), source)
        elif found["kind"] == "warning":
            yield located(KERNEL, "warning", found["text"], None, None, source)
        else:
            yield failure(f"the assembler refuses it: {found['text']}")


def _plain(symbol: str) -> str:
    """The function's own name in a mangled symbol: `gone` of `_Z4gonef`."""
    name = symbol
    for found in re.finditer(r"(?<=\D)(\d+)(?=[A-Za-z_])", symbol if symbol[:2] == "_Z" else ""):
        rest = symbol[found.end() :]
        if len(rest) >= int(found[1]):
            name = rest[: int(found[1])]
            break
    return name
