"""Plants faults into the C++ of kernels, by rules: what is looked for, and what takes its place."""

# ruff: noqa: E501

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fault import Fault, told


class Rule(NamedTuple):
    """A change of a kernel's C++ text."""

    kind: str
    """One of the classes of faults."""
    pattern: str
    """What is looked for, from the first kernel on."""
    by: str | Callable[[re.Match[str]], str | None]
    """What takes its place; None leaves the match alone."""
    everywhere: bool = False
    """Change all matches at once instead of one after the other."""
    helper: str = ""
    """C++ that has to stand before the kernels."""


COARSE = """
static inline float coarse(float a) { return static_cast<float>(static_cast<_Float16>(a)); }
"""
TRUNCATED = """
static inline float truncated(float a) {
  uint32_t bits;
  __builtin_memcpy(&bits, &a, 4);
  if (a == a) bits = (bits + 0x8000u) & 0xffff0000u;
  __builtin_memcpy(&a, &bits, 4);
  return a;
}
"""
TRUNCATED_LANES = """
static inline V truncated(V a) { return from_bits((bits(a) + 0x8000) & -65536); }
"""
ROUGH = """
#include <cmath>
static inline float rough_exp(float a) {  // (1 + a / 1024)^1024
  float p = 1.0f + a / 1024.0f;
  for (int i = 0; i < 10; ++i) p *= p;
  return a < -80.0f ? 0.0f : a > 88.7f ? HUGE_VALF : p;
}
static inline float rough_rsqrt(float a) {
  int32_t bits;
  __builtin_memcpy(&bits, &a, 4);
  bits = 0x5f3759df - (bits >> 1);
  float y;
  __builtin_memcpy(&y, &bits, 4);
  return y * (1.5f - 0.5f * a * y * y);
}
static inline float rough_log(float a) {
  int e;
  const float m = std::frexp(a, &e), t = (m - 1.0f) / (m + 1.0f);
  return 0.69314718f * e + 2.0f * (t + t * t * t / 3.0f);
}
"""


def _shifted(match: re.Match[str], group: int, by: int) -> str:
    number = int(match[group]) + by
    start, end = match.start(group) - match.start(), match.end(group) - match.start()
    return match[0][:start] + str(number) + match[0][end:]


def _other_constant(match: re.Match[str]) -> str | None:
    value = float(match[1])
    if value in {0.0, 1.0}:
        return None
    factor = 100.0 if value < 1e-4 else 1.02
    return (
        f"{value * factor:.9g}f".replace("e-0", "e-") if "e" in match[1] else _plain(value * 1.02)
    )


def _plain(value: float) -> str:
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _short(match: re.Match[str]) -> str | None:
    count = int(match[2])
    return f"{match[1]}{count - max(2, count // 8)}{match[3]}" if count >= 4 else None


def _tail(match: re.Match[str]) -> str | None:
    count = int(match[2])
    return f"{match[1]}{count // 8 * 8}{match[3]}" if count % 8 and count > 8 else None


_PARAMETER = r"\w*(?:weight|bias|gain|shift|scale)\w*"
_EXPRESSION = r"(?m)^(\s*const (?:float|V) (\w+) = )(?!load|static_cast|\w+_acc_)(.+);$"

RULES = (
    Rule("tail", r"for \(; (c) < (\d+|end|stop_); c \+= LANES\)", r"for (; c + LANES <= \2; c += LANES)"),
    Rule("tail", r"if \(const int64_t c = ([^;]+); c < end\)", r"if (const int64_t c = \1; c > end)"),
    Rule("tail", r"if \(c < (stop_|end|\d+)\) \{", r"if (c > \1) {"),
    Rule("tail", r"for \(; line_ < (\d+); \+\+line_\)", r"for (; line_ < \1 / 8 * 8; ++line_)"),
    Rule("tail", r"(for \(int64_t (?:c|d) = 0; (?:c|d) < )(\d+)(; \+\+(?:c|d)\))", _tail),
    Rule("tail", r"tiles::least\(TILE_ROWS, rows_ - i_\)", "(rows_ - i_) / TILE_ROWS * TILE_ROWS"),
    Rule("tail", r"tiles::least\(TILE_COLS, cols_ - j_\)", "(cols_ - j_) / TILE_COLS * TILE_COLS"),
    Rule("tail", r"j_ < cols_; j_ \+= TILE_COLS", "j_ + TILE_COLS <= cols_; j_ += TILE_COLS"),
    Rule("off-by-one", r"(int64_t (?:c|d|k|s_|line_)) = 0;", r"\1 = 1;"),
    Rule("off-by-one", r"((?:c|d|k0_|k1_|s_|line_) < )(\d+)(; \+\+)", lambda m: _shifted(m, 2, -1)),
    Rule("off-by-one", r"(x_row|_row|_line)\[c\]", r"\1[c > 0 ? c - 1 : c]"),
    Rule("off-by-one", r"(k[01]_ = first[01]_);", r"\1 + 1;"),
    Rule("wrong stride", r"(\w+ \+ r \* )(\d+);", lambda m: _shifted(m, 2, -1)),
    Rule("wrong stride", r"(r \* \d+ \+ d \* )(\d+)", lambda m: _shifted(m, 2, -1)),
    Rule("wrong stride", r"(x \+ d \* )(\d+)", lambda m: _shifted(m, 2, 1)),
    Rule("wrong stride", r"\br / (\d+) \* (\d+)", r"r % \1 * \2"),
    Rule("wrong stride", r"\br % (\d+)\]", r"r / \1 % \1]"),
    Rule("wrong stride", r", (\d+), 1, (left_panel_|right_panel_)", r", 1, \1, \2"),
    Rule("wrong stride", r", 1, (\d+), (left_panel_|right_panel_)", r", \1, 1, \2"),
    Rule("wrong stride", r"(row_ \+ i_\) \* )(\d+)", lambda m: _shifted(m, 2, -1)),
    Rule("wrong stride", r"(\+ c \* )(\d+)", lambda m: _shifted(m, 2, 1)),
    Rule("lost maximum", r" - (row_max|shift|low_)\b(?!\w)", "", everywhere=True),
    Rule("lost maximum", r"(float|V)\((?:-INFINITY)\)", r"\1(0.0f)"),
    Rule("lost maximum", r"(row_max_lanes_) = -std::numeric_limits<float>::infinity\(\)", r"\1 = 0.0f"),
    Rule("reduced precision", _EXPRESSION.replace("(?:float|V)", "float"), r"\1coarse(\3);", helper=COARSE),
    Rule("reduced precision", _EXPRESSION.replace("(?:float|V)", "float"), r"\1truncated(\3);", helper=TRUNCATED),
    Rule("reduced precision", _EXPRESSION.replace("(?:float|V)", "V"), r"\1truncated(\3);", helper=TRUNCATED_LANES),
    Rule("reduced precision", r"(\w+_acc_) = (\w+_acc_ \+ \w+);", r"\1 = coarse(\2);", helper=COARSE),
    Rule("reduced precision", r"(const V \w+_c = )(load\([^;]+\));", r"\1truncated(\2);", helper=TRUNCATED_LANES),
    Rule("reduced precision", r"(const float \w+_c = )(\w+\[\w+\]);", r"\1truncated(\2);", helper=TRUNCATED),
    Rule("rough function", r"std::exp\(", "rough_exp(", helper=ROUGH),
    Rule("rough function", r"std::log\(", "rough_log(", helper=ROUGH),
    Rule("rough function", r"scalar::rsqrt\(", "rough_rsqrt(", helper=ROUGH),
    Rule("rough function", r"std::sqrt\(([^;]+)\);", r"\1 * rough_rsqrt(\1);", helper=ROUGH),
    Rule("rough function", r"scalar::gelu\((.+)\);", r"[](float v) { return v / (1.0f + std::exp(-1.702f * v)); }(\1);", helper=ROUGH),
    Rule("rough function", r"scalar::gelu_tanh\(", "scalar::gelu(", helper="namespace scalar { static inline float gelu(float v) { return 0.5f * v * (1 + __builtin_erff(v * 0.70710678f)); } }\n"),
    Rule("rough function", r"scalar::(?:silu|mish)\((.+)\);", r"[](float v) { return v / (1.0f + rough_exp(-v)); }(\1);", helper=ROUGH),
    Rule("race", r"((?:double|float) (\w+_acc_|\w+_lines_)) = ([^;]+);", r"static \1; \2 = \3;"),
    Rule("race", r"float\* const memory_ = (new float\[[^;]+\]);", r"static float* const memory_ = \1;"),
    Rule("race", r"(#pragma omp for schedule\([^)]*\))(?=\n\s+for \(int64_t channel_)", r"\1 nowait"),
    Rule("race", r"(?m)^(\s+)(V (\w+_acc_)) = ([^;]+);", r"\1static \2; \3 = \4;"),
    Rule("race", r"alignas\(64\) float (\w+_acc_)", r"alignas(64) static float \1"),
    Rule("race", r"(?m)^(\s+)(const (?:float|V)) (mean|scale|inv_std|row_max|inv_rms) = ([^;]+);", r"\1static float \3; \3 = \4;"),
    Rule("stale buffer", r"((?:double|float|V) \w+_acc_ = [^;]+;)", r"static thread_local \1"),
    Rule("stale buffer", r"(?m)^\s+for \([^\n]*\) \w+_acc_\[k\] = [^;]+;$", ""),
    Rule("stale buffer", r"alignas\(64\) (float \w+_acc_)", r"alignas(64) static thread_local \1"),
    Rule("stale buffer", r"tile_, begin_ > 0\)", "tile_, true)"),
    Rule("swapped operands", r"(\(x_c) - (mean)\)", r"(\2 - x_c)"),
    Rule("swapped operands", r"= (\w+) / (\w+);", r"= \2 / \1;"),
    Rule("swapped operands", r"\? (\w+) : (\w+);", r"? \2 : \1;"),
    Rule("swapped operands", r"select\((\w+), ([^,()]+), ([^()]+)\);", r"select(\1, \3, \2);"),
    Rule("sign", rf" \+ ({_PARAMETER}_[cr])\b", r" - \1"),
    Rule("sign", r"= -(\w+);", r"= \1;"),
    Rule("sign", r"(const (?:float|V) \w+ = \w+) \+ (\w+_c);", r"\1 - \2;"),
    Rule("sign", r"(const (?:float|V) (?!centred|shift_|away_)\w+ = \w+) - (\w+);", r"\1 + \2;"),
    Rule("sign", r"(\w+_acc_ = \w+_acc_) \+ ", r"\1 - "),
    Rule("cancellation", r"double ", "float ", everywhere=True),
    Rule("lost epilogue", rf" \+ {_PARAMETER}_[cr]\b", ""),
    Rule("lost epilogue", rf" \* {_PARAMETER}_[cr]\b(?! \*)", ""),
    Rule("lost epilogue", r"= (?:scalar::)?(?:clamp_min|gelu\w*|silu\w*|mish|gelu_tanh\w*)\((\w+(?: \+ \w+)?)(?:, [^()]+)?\);", r"= \1;"),
    Rule("lost epilogue", r" - log_sum;", ";"),
    Rule("lost epilogue", r"exps \* scale;", "exps;"),
    Rule("lost epilogue", r" \* inv_(?:std|rms)", ""),
    Rule("lost epilogue", r"= (\w+_(?:sum|\w*))( / \d+\.0f);", r"= \1;"),
    Rule("lost epilogue", r" \* 0\.\d+f", ""),
    Rule("wrong broadcast", rf"\b({_PARAMETER})\[c\]", r"\1[0]"),
    Rule("wrong broadcast", rf"load\(({_PARAMETER}) \+ c([^)]*)\)", r"load(\1)"),
    Rule("wrong broadcast", rf"\b({_PARAMETER})\[r [^\]]+\]", r"\1[0]"),
    Rule("wrong broadcast", r"\b(bias|mask|up|targets|residual\w*)\[c\]", r"\1[0]"),
    Rule("wrong broadcast", r"(mask_row = mask \+) [^;]+;", r"\1 r % 2 * 0;"),
    Rule("partial write", r"(\*\(out\w*(?: \+ r \* \d+)? \+ c\) = \w+;)", r"if (c != 3) \1"),
    Rule("partial write", r"(\*\(out\w* \+ c\) = \w+;)", r"if (r + 1 != rows) \1"),
    Rule("partial write", r"(?m)^(\s+)((?:store|stream)\(out\w*[^;]* \+ c[^;]*\);)", r"\1if (c != 0) \2"),
    Rule("partial write", r"(?m)^\s+store_first\(out[^;]+;$", ""),
    Rule("partial write", r"(for \(int64_t r = 0; r < rows);", r"\1 - 1;"),
    Rule("partial write", r"(unit_ < STACK_ \* ROWS_BLOCKS_ \* COLS_BLOCKS_);", r"\1 - 1;"),
    Rule("wrong constant", r"(?<![\w.])(\d+(?:\.\d+)?(?:e-?\d+)?)f(?!\w|\(|;\n\s+(?:V|double|float))", _other_constant),
    Rule("wrong constant", r"\+ \d+e-\d+f", "+ 0.0f"),
    Rule("denominator", r"(/ )(\d+)\.0f", lambda m: f"/ {int(m[2]) - 1}.0f" if int(m[2]) > 1 else None),
    Rule("denominator", r"(/ )(\d+)\.0f", lambda m: f"/ {int(m[2]) + 1}.0f" if int(m[2]) > 1 else None),
    Rule("wrong start", r"(double|V)\(0\.0f\)", r"\1(0.01f)"),
    Rule("wrong start", r"(?<![\w])float\(0\.0f\)", "float(0.01f)"),
    Rule("wrong start", r"(row_max|amax|max_pool\dd)(_acc_|_acc_\[k\]) = (float|V)\(-INFINITY\)", r"\1\2 = \3(-1.0f)"),
    Rule("wrong start", r"(exp_sum_lanes_|square_lanes_|seen_) = 0\.0f", r"\1 = 0.01f"),
    Rule("padding", r"scalar::first_from\((-\d+ \+ [^,]+), 1, 0\)", "0"),
    Rule("padding", r"scalar::within\((-?\d+ \+ c), (\d+)\) \? ([^:]+) : 0", r"\3"),
    Rule("padding", r"scalar::within\((-?\d+ \+ r % \d+|r % \d+), (\d+)\) \?", "true ?"),
    Rule("padding", r"to_\[i\] = 0;", "to_[i] = from_[0];"),
    Rule("padding", r"scalar::within\(([^)]+)\) \? (load_inside[^:]+) : V\(0\.0f\)", r"scalar::within(\1) ? \2 : V(0.5f)"),
    Rule("padding", r"(max_pool\dd_acc_) = (float|V)\(-INFINITY\)", r"\1 = \2(0.0f)"),
    Rule("short loop", r"((?:c|d|line_|k1_) < )(\d+)(; \+\+)", _short),
    Rule("short loop", r"(DEPTH_ = )(\d+)(,)", _short),
    Rule("short loop", r"(c \+ (?:\d \* )?LANES <= )(\d+)(;)", _short),
    Rule("short loop", r"(line_ \+ \d <= )(\d+)(;)", _short),
    Rule("input guard", r"(const float \w+_c = )(\w+\[c\]);", r"\1\2 > 30.0f ? 30.0f : \2;"),
    Rule("input guard", r"(const V \w+_c = )(load\([^;]+\));", r"\1fast_min(\2, V(40.0f));"),
    Rule("input guard", r"(const float (\w+) = )(row_max_acc_);", r"\1\3 > 60.0f ? 60.0f : \3;"),
    Rule("input guard", r"(const float \w+_c = )(\w+\[c\]);", r"\1\2 == 0.0f ? 1e-6f : \2;"),
    Rule("special values", r"(const float (?!exp)\w+_c = )(\w+\[c\]);", r"\1\2 == \2 ? \2 : 0.0f;"),
    Rule("special values", r"(const V \w+_c = )(load\([^;]+\));", r"\1select(isnan(\2), 0.0f, \2);"),
    Rule("special values", r"scalar::maximum\(", "scalar::greater(", helper="namespace scalar { template <class T> static inline T greater(T a, T b) { return b > a ? b : a; } }\n"),
    Rule("special values", r"(const float \w+_c = )(\w+\[c\]);", r"\1\2 > 3e38f ? 3e38f : \2;"),
    Rule("denormals", r"(?m)^(\s+\*\([^;]+\) = )(\w+);", r"\1(\2 < 1.2e-38f && \2 > -1.2e-38f ? 0.0f : \2);"),
    Rule("denormals", r"(const float \w+_c = )(\w+\[c\]);", r"\1\2 < 1.2e-38f && \2 > -1.2e-38f ? 0.0f : \2;"),
    Rule("denormals", r"(const V \w+_c = )(load\([^;]+\));", r"\1select(abs(\2) < 1.2e-38f, 0.0f, \2);"),
    Rule("input overwritten", r"(const float \w+_c = )((\w+)\[c\]);", r"\1\2; const_cast<float*>(\3)[c] = \2 + 1.0f - 1.0f;"),
    Rule("input overwritten", r"(const float \w+_c = )((\w+)\[c\]);", r"\1\2; if (c == 7) const_cast<float*>(\3)[c] = 0.0f;"),
)  # fmt: skip


def faults(head: str, body: str, tail: str) -> Iterator[Fault]:
    """Every fault of the rules.

    Args:
        head: The text before the kernels; helpers are put at its end, where V is known.
        body: The kernels.
        tail: The rest.
    """
    for rule in RULES:
        for what, changed in _changes(rule, body):
            yield Fault(rule.kind, what, f"{head}{rule.helper}{changed}{tail}")


def _changes(rule: Rule, body: str) -> Iterator[tuple[str, str]]:
    if rule.everywhere:
        changed = re.sub(rule.pattern, rule.by, body)  # type: ignore[arg-type]
        if changed != body:
            yield f"every `{rule.pattern}`", changed
        return
    for found in re.finditer(rule.pattern, body):
        new = found.expand(rule.by) if isinstance(rule.by, str) else rule.by(found)
        if new is None or new == found[0]:
            continue
        line = body.count("\n", 0, found.start()) + 1
        yield (
            f"kernel line {line}: `{told(found[0])}` -> `{told(new)}`",
            body[: found.start()] + new + body[found.end() :],
        )
