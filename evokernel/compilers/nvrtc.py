"""Owns the calls of NVRTC, NVIDIA's compiler as a library, in a process of its own.

The library compiles inside the process that calls it, so a template that never ends, or that eats
all memory, would take its caller along. This file is therefore run as a program, by its path: it
imports nothing but the standard library, reads one job, writes a cubin, and prints NVRTC's log.
Exit codes: 0 built, 3 the source does not build, 4 NVRTC cannot be used; 1 is a crash of ours.
"""

import ctypes
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REFUSED = 3
"""Exit code: NVRTC refuses the source."""
UNUSABLE = 4
"""Exit code: it is NVRTC that does not work, or does not know an option of ours."""

_REFUSALS = (5, 6)  # NVRTC_ERROR_INVALID_OPTION, NVRTC_ERROR_COMPILATION


class Job(dict[str, Any]):
    """What to build: `library`, `source`, `name`, `options`, `headers` (name to text), `cubin`."""


def version(library: str) -> tuple[int, int]:
    """Major and minor version of an NVRTC library.

    Raises:
        OSError: it cannot be loaded.
    """
    nvrtc = ctypes.CDLL(library)
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def architectures(library: str) -> tuple[str, ...]:
    """What NVRTC can build for, e.g. `sm_90`; variants such as `sm_90a` are not listed.

    Raises:
        OSError: it cannot be loaded.
    """
    nvrtc = ctypes.CDLL(library)
    count = ctypes.c_int()
    nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    nvrtc.nvrtcGetSupportedArchs(numbers)
    return tuple(f"sm_{number}" for number in numbers)


def build(job: Job) -> int:
    """Compile one source, write the cubin, print the log.

    Returns:
        The exit code.
    """
    try:
        nvrtc = ctypes.CDLL(job["library"])
    except OSError as error:
        print(error)
        return UNUSABLE
    program = ctypes.c_void_p()
    headers: dict[str, str] = job["headers"]
    code = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program),
        Path(job["source"]).read_bytes(),
        job["name"].encode(),
        len(headers),
        _texts(list(headers.values())),
        _texts(list(headers)),
    )
    if code == 0:
        options = job["options"]
        code = nvrtc.nvrtcCompileProgram(program, len(options), _texts(options))
        log = _fetched(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        print(log.rstrip(b"\0").decode(errors="replace"))
    if code == 0:
        cubin = _fetched(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        Path(job["cubin"]).write_bytes(cubin)
        return 0
    if code not in _REFUSALS:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        print(f"nvrtc: {nvrtc.nvrtcGetErrorString(code).decode()}")
    return REFUSED if code in _REFUSALS else UNUSABLE


def _texts(texts: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def _fetched(size_of: Any, fetch: Any, program: Any) -> bytes:
    """Bytes of a length that NVRTC tells."""
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(max(size.value, 1))
    fetch(program, room)
    return room.raw[: size.value]


def main(arguments: Sequence[str]) -> int:
    """Carry out `build FILE`, `version LIBRARY` or `architectures LIBRARY`."""
    verb, subject = arguments
    if verb == "build":
        return build(Job(json.loads(Path(subject).read_text(encoding="utf-8"))))
    print(json.dumps(version(subject) if verb == "version" else architectures(subject)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
