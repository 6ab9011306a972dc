"""Plants faults into the hand-written softmax of `kernels/softmax_jit.py`."""

# ruff: noqa: E501

from collections.abc import Iterator

from fault import Fault, told

SOFTMAX = (
    ("lost maximum", "in[i] - top", "in[i]"),
    ("off-by-one", "int64_t i = 0; i < columns; ++i) {\n      is_nan", "int64_t i = 1; i < columns; ++i) {\n      is_nan"),
    ("off-by-one", "i < columns; ++i) out[i]", "i < columns - 1; ++i) out[i]"),
    ("rough function", "  p = p * r + 1.0f / 720;\n", ""),
    ("rough function", "0.693145752f) - n * 1.42860677e-6f", "0.6931f)"),
    ("wrong constant", "p = p * r + 1.0f / 6;", "p = p * r + 1.0f / 6.02f;"),
    ("race", "float top = -INFINITY, sum = 0;", "static float top, sum; top = -INFINITY; sum = 0;"),
    ("special values", "return x != x ? x : result;", "return result;"),
    ("special values", "    if (is_nan) top = NAN;\n", ""),
    ("denormals", "const float result = p * power(half) * power(whole - half);", "const float result = whole < -126 ? 0 : p * power(half) * power(whole - half);"),
    ("tail", "i < columns; ++i) {\n      out[i] =", "i < columns / 8 * 8; ++i) {\n      out[i] ="),
    ("stale buffer", "float top = -INFINITY, sum = 0;", "float top = -INFINITY; static thread_local float sum = 0;"),
    ("input guard", "x > -104.0f ? x : -104.0f", "x > -20.0f ? x : -20.0f"),
    ("partial write", "int64_t row = 0; row < rows;", "int64_t row = 0; row < rows - 1;"),
    ("wrong start", "float top = -INFINITY", "float top = -1.0f"),
    ("sign", "in[i] - top", "top - in[i]"),
)  # fmt: skip
"""Changes of `kernels/softmax_jit.py`: class, text, what takes its place."""


def of_benchmark(source: str) -> Iterator[Fault]:
    """Faults of the hand-written softmax."""
    for kind, old, new in SOFTMAX:
        if old not in source:
            raise ValueError(f"`{old}` is not in the kernel any more")
        yield Fault(kind, f"`{told(old)}` -> `{told(new)}`", source.replace(old, new, 1))
