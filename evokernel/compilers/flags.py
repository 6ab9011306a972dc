"""Owns which compiler flags an author may pass, and why the others are refused."""

import re
from collections.abc import Sequence

_FAST_MATH_REASON = (
    "linking with it switches denormal numbers off for the whole process, reference included; "
    "name what you need instead, e.g. `-fassociative-math -fno-signed-zeros -fno-trapping-math`"
)
_REFUSED = (
    (re.compile(r"-Ofast|-ffast-math|-funsafe-math-optimizations|-mdaz-ftz"), _FAST_MATH_REASON),
    (re.compile(r"-W[lap],.*|-X.*|-mllvm.*|-B.*|@.*"), "it reaches the linker or another tool"),
    (
        re.compile(
            r"-f(plugin|dump|profile|auto-profile|sanitize|test-coverage|coverage|diagnostics|color"
            r"|max-errors|error-limit|use-ld|callgraph|stack-usage|opt-info|save-optimization"
            r"|syntax-only|modules?|compare-debug|preprocessed|self-test|pass-plugin|crash).*"
        ),
        "it adds files, messages or checks that are ours to choose",
    ),
    (re.compile(r"-fno-(pic|PIC|openmp)|-f(pie|PIE)|-m(32|x32|16)"), "the library could not load"),
    (
        re.compile(r"-[Ii].*|-L.*"),
        "a kernel includes and links nothing but the compiler's own files",
    ),
    (re.compile(r"-l.*"), "a kernel links only m, pthread, dl, rt and atomic"),
)
_ALLOWED = re.compile(
    r"-O[0-3sgz]?|-pthread|-w|-g[0-3]?"
    r"|-f[a-zA-Z][\w+-]*(=[\w.+-]+)?"
    r"|-m[a-z0-9][\w.+-]*(=[\w.,+-]+)?"
    r"|-[DU][A-Za-z_]\w*(=[^\n\0]*)?"
    r"|-std=(c|gnu)\+\+(17|1z|20|2a|23|2b|26|2c)"
    r"|-W[a-zA-Z][\w+-]*(=[\w.+-]*)?"
    r"|--param=[a-z0-9-]+=\d+"
    r"|-l(m|pthread|dl|rt|atomic)"
)


def refusals(flags: Sequence[str]) -> tuple[str, ...]:
    """Say for each flag that is not allowed why it is refused; empty when all are fine.

    Switches that decide what is computed but stay inside the kernel, such as
    `-fassociative-math`, are allowed: whether the numbers are right is judged by comparison.
    """
    return tuple(filter(None, map(_refusal, flags)))


def _refusal(flag: str) -> str:
    allowed = _ALLOWED.fullmatch(flag)
    for pattern, reason in _REFUSED:
        if pattern.fullmatch(flag) and not (allowed and flag.startswith("-l")):
            return f"flag `{flag}` is refused: {reason}"
    if not allowed:
        kinds = "-O, -f, -m, -D, -U, -W, -std, --param="
        return f"flag `{flag}` is refused: only {kinds} flags are passed on, each as one word"
    return ""


_CUDA_ALLOWED = re.compile(
    r"-w|-std=c\+\+(14|17|20)|--std=c\+\+(14|17|20)"
    r"|-[DU][A-Za-z_]\w*(=[^\n\0]*)?"
    r"|--?(use_fast_math|extra-device-vectorization|restrict|device-int128|default-device)"
    r"|--?(fmad|ftz|prec-sqrt|prec-div)=(true|false)"
    r"|--?maxrregcount=\d+"
    r"|--?diag-suppress=[\d,]+"
    r"|(-Xptxas|--ptxas-options)=(-O[0-3]|-(dlcm|dscm)=c[agsv]|--?warn-on-spills)"
)
_FAST_MATH = {
    r"--?use_fast_math": "fast-math: denormals are flushed, division, square root and the "
    "functions of <math.h> are approximate",
    r"--?ftz=true": "denormals are flushed to zero",
    r"--?prec-div=false": "division is approximate",
    r"--?prec-sqrt=false": "square roots are approximate",
}


def cuda_refusals(flags: Sequence[str]) -> tuple[str, ...]:
    """Say for each of a CUDA kernel's flags that is not passed on why; empty when all are fine."""
    kinds = (
        "-D, -U, -std, -w, --use_fast_math, --fmad=, --ftz=, --prec-div=, --prec-sqrt=, "
        "--maxrregcount=, --diag-suppress=, --extra-device-vectorization, --restrict, "
        "--device-int128, --default-device, -Xptxas="
    )
    return tuple(
        f"flag `{flag}` is refused: {_cuda_reason(flag)} only {kinds} are passed on, each as one "
        "word"
        for flag in flags
        if not _CUDA_ALLOWED.fullmatch(flag)
    )


def fast_math(flags: Sequence[str]) -> tuple[str, ...]:
    """What flags of a CUDA kernel take from the numbers that it computes, in words."""
    return tuple(
        f"`{flag}`: {told}"
        for flag in flags
        for pattern, told in _FAST_MATH.items()
        if re.fullmatch(pattern, flag)
    )


def _cuda_reason(flag: str) -> str:
    if re.match(r"--?(gpu-arch|arch)", flag):
        return "the architecture is ours to choose (`--arch`);"
    if re.match(r"-I|--include|--pre-include", flag):
        return "a kernel includes nothing but CUDA's own headers;"
    return ""
