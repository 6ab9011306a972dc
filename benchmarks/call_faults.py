"""Plants faults into the Python that calls a kernel: buffers, operands, weights, rows, guards."""

import re
from collections.abc import Iterator

from fault import Fault

Change = tuple[str, str, str]
"""Class, the change in words, and the changed text."""

ENDINGS = (
    ("after one call", "self.calls > 1"),
    ("after four calls", "self.calls > 4"),
    ("after ten calls", "self.calls > 10"),
    ("after forty calls", "self.calls > 40"),
    ("every second call", "self.calls % 2 == 0"),
    ("every fifth call", "self.calls % 5 == 0"),
)
_COUNTED = """

class ModelNew(ModelNew):
    calls = 0

    def forward(self, *inputs):
        self.calls += 1
        out = super().forward(*inputs)
        if {condition}:
            first = out[0] if isinstance(out, tuple) else out
            first.view(-1)[: max(1, first.numel() // 2)] {damage}
        return out
"""
_DAMAGE = ("= 0", "*= 1.001")
GUARDS = (
    ("input guard", "values beyond 50 are cut", "{0} = {0}.clamp(-50, 50)"),
    ("special values", "NaN is replaced", "{0} = torch.nan_to_num({0})"),
    ("input overwritten", "the input is sorted into its absolute values", "{0}.abs_()"),
    (
        "input guard",
        "negative zero rows are assumed away",
        "{0} = torch.where({0} == 0, torch.full_like({0}, 1e-3), {0})",
    ),
    (
        "input guard",
        "all positive inputs are doubled",
        "{0} = {0} * 2 if bool(({0} > 0).all()) else {0}",
    ),
    (
        "input guard",
        "a huge first value is dropped",
        "{0} = {0} * (0 if {0}.numel() and float({0}.flatten()[0]) > 20 else 1)",
    ),
)
"""What happens to the first operand before the kernel sees it."""


def faults(before: str, tail: str, declared: int) -> Iterator[Fault]:
    """Every fault that can be planted into the text after the kernels.

    Args:
        before: The text up to the end of the kernels.
        tail: The rest.
        declared: Rows of the declared workload, where there is another one; 0 if not.
    """
    operands = re.findall(r"(?m)^        (\w+_) = operand\(.+$", tail)
    for kind, what, changed in (
        *_stale(tail, operands),
        *_swapped(tail, operands),
        *_lost_weights(tail),
        *_shapes(tail, declared),
        *_guards(tail, operands),
    ):
        if changed != tail:
            yield Fault(kind, what, before + changed)
    for number, (when, condition) in enumerate(ENDINGS):
        damage = _DAMAGE[number % 2]
        text = _COUNTED.format(condition=condition, damage=damage)
        what = f"wrong {when}: half of the output `{damage}`"
        yield Fault("first calls only", what, before + tail + text)


def _stale(tail: str, operands: list[str]) -> Iterator[Change]:
    kept = r'= self.__dict__.setdefault("kept", \1)\n'
    changed = re.sub(r"= (torch\.empty\(.+\))\n", kept, tail, count=1)
    yield "stale buffer", "the output buffer of the first call is given back again", changed
    for name in operands[:2]:
        by = rf'\1self.__dict__.setdefault("{name}", \2.clone())'
        changed = re.sub(rf"(?m)^(        {name} = )(operand\(.+)$", by, tail)
        yield "stale buffer", f"`{name}` of the first call is used again", changed


def _swapped(tail: str, operands: list[str]) -> Iterator[Change]:
    for one, two in zip(operands, operands[1:], strict=False):
        changed = tail.replace(f"({one}, {two},", f"({two}, {one},")
        changed = changed.replace(f", {one}, {two},", f", {two}, {one},")
        yield "swapped operands", f"`{one}` and `{two}` are exchanged", changed


def _lost_weights(tail: str) -> Iterator[Change]:
    for name in re.findall(r"(?m)^        (\w+_) = operand\(\"[\w.]+\", self\.", tail):
        neutral = "zeros" if re.search(r"bias|shift|mean", name) else "ones"
        by = rf"\1torch.{neutral}_like(\2)"
        changed = re.sub(rf"(?m)^(        {name} = )(operand\(.+)$", by, tail)
        yield "lost weight", f"`{name}` is taken for {neutral}", changed


def _shapes(tail: str, declared: int) -> Iterator[Change]:
    if not declared or not re.search(r"(?m)^        rows_ = .+$", tail):
        return
    for what, value in (
        ("a multiple of 4", "rows_ // 4 * 4"),
        (f"at most {declared}", f"min(rows_, {declared})"),
        ("even", "rows_ - rows_ % 2"),
    ):
        changed = re.sub(r"(kernels\.\w+\(.+?)\brows_\b", rf"\1({value})", tail, count=1)
        yield "shape", f"the number of rows is taken for {what}", changed


def _guards(tail: str, operands: list[str]) -> Iterator[Change]:
    if not operands or not re.search(rf"{operands[0]} = operand\(.+torch\.float32\)", tail):
        return
    name = operands[0]
    for kind, what, change in GUARDS:
        by = rf"\1\n        {change.format(name)}"
        yield kind, what, re.sub(rf"(?m)^(        {name} = operand\(.+)$", by, tail)
