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
