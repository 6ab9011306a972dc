"""Owns how far an output may be from the truth, measured by how far the reference itself is.

For element i of an output, in a row (the last dimension, or the whole tensor where that is short)::

    |got - exact| <= reach * (|exact| + scale) + growth * smallest subnormal
    reach = max(min(factor * own, cap), floor)
    own   = max(largest error in the row, 99 % quantile of the tensor)
            of the reference at its precision: |reference - exact| / (|exact| + scale)
    floor = eps * growth
    growth = min(16 + 2 * sqrt(depth), 1024)
    cap   = min(8 * sqrt(eps), 0.1)

`exact` is the fp64 reference on the same inputs, `scale` the row's half-power mean (the mean of the
square roots, squared), which a few huge values hardly move; an absolute limit would pass zeros for
a softmax over many columns. `depth` is the longest reduction: rounding errors of n additions grow
like sqrt(n) eps with high probability, whatever their order (Higham and Mary, "A new approach to
probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019). The constants are ours:
16 leaves room for the elementary functions of honest kernels (a few ulp each); 1024 eps stays below
half an ulp of float16 and of TF32 when the dtype is float32, so that results of lower precision are
refused. In float16 and bfloat16 the floor is 2 eps for rounding the result, plus the above with the
eps of the float32 accumulator.

Some inputs are hard: a sum that nearly cancels, a large mean with a small variance. There the
reference's own error may be small by luck of its order of summation. On the input families made for
that, `own` is at least what a relative change of half of the inputs by `shake` moves the fp64
result by::

    shake = min(sqrt(depth), 32) * eps / 2

which is the backward error of a sum of `depth` terms in any order, by the same analysis: an honest
kernel that adds in order errs by as much (backward stability: Higham, "Accuracy and Stability of
Numerical Algorithms", 2nd ed., 2002, section 1.5). Rows that this moves by more than `cap`
are allowed 0.3: the softmax of scores of a million is one of rounding errors.

Elements at which the reference itself is off by more than `cap` show nothing and only have to be
finite; those at which it and fp64 disagree about being finite are not judged. Where all results are
whole numbers that any order of summation gives exactly, no error is allowed (see `Limits.exact`),
unless the task sets its own limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from evokernel.bench import pieces
from evokernel.task import Tolerance

if TYPE_CHECKING:
    import torch

SAMPLE = 1 << 17
QUANTILE = 0.99
LEEWAY = 16
GROWTH = 2
MOST = 1024
SHAKEN = 32.0
WILD = 0.3


@dataclass(frozen=True)
class Limits:
    """One output's expected values, and how far from them is right."""

    values: torch.Tensor
    """Expected values in the output's dtype, 2-D (rows, width), complex numbers as pairs."""
    other: torch.Tensor | None
    """For integers: the fp64 reference's values where those differ; either is right."""
    scale: torch.Tensor
    """Local scale of each row, float32 or float64."""
    reach: torch.Tensor
    """Allowed relative error of each row."""
    tiny: float
    """Allowed absolute error."""
    unjudged: torch.Tensor | None
    """Flat indices of elements that are not judged."""
    lost: torch.Tensor | None
    """Flat indices of elements that only have to be finite: the reference has lost them."""
    finite: int
    """Number of elements with a finite expected value."""
    judged: int
    """Number of those that are judged."""
    has_pattern: bool
    """Some expected values are finite and some are not."""

    def raised(self, reach: float) -> Limits:
        """The same with at least this allowed relative error, for a truth that itself errs."""
        if not self.values.is_floating_point():
            return self
        return replace(self, reach=self.reach.clamp(min=reach))

    def exact(self) -> Limits:
        """The same without any allowed error, if every value is a whole number that is exact."""
        import torch

        values = self.values
        if not values.is_floating_point() or self.has_pattern or self.lost is not None:
            return self
        most = 2.0 / float(torch.finfo(values.dtype).eps)
        if not bool(((values == values.round()) & (values.abs() < most)).all()):
            return self
        return replace(self, reach=torch.zeros_like(self.reach))

    @property
    def is_evidence(self) -> bool:
        """Whether comparing with these shows anything: a tenth of the finite values is judged."""
        return self.judged > 0 and 10 * self.judged >= self.finite

    @property
    def bytes(self) -> int:
        """Memory that it holds."""
        held = (self.values, self.other, self.scale, self.reach, self.unjudged, self.lost)
        return sum(t.numel() * t.element_size() for t in held if t is not None)


def is_given(tolerance: Tolerance) -> bool:
    """Whether the task sets limits of its own instead of this rule."""
    return tolerance.atol is not None or tolerance.rtol is not None


def describe(tolerance: Tolerance, depth: int) -> str:
    """The rule in words, with its constants."""
    if is_given(tolerance):
        return (
            f"|got - fp64 reference| <= {tolerance.atol or 0:g} + {tolerance.rtol or 0:g} * "
            "|fp64 reference|, as the task demands"
        )
    return (
        "|got - fp64 reference| <= reach * (|fp64 reference| + row scale), reach = "
        f"{tolerance.factor:g} x the reference's own relative error, at least eps * min({LEEWAY} + "
        f"{GROWTH} * "
        f"sqrt({depth}), {MOST}), at most min(8 * sqrt(eps), 0.1)"
    )


def floor(dtype: torch.dtype, depth: int) -> float:
    """Smallest relative error that is allowed whatever the reference's own."""
    import torch

    growth = _growth(depth)
    eps = float(torch.finfo(dtype).eps)
    single = float(torch.finfo(torch.float32).eps)
    return 2 * eps + growth * single if eps > single else growth * eps


def _growth(depth: int) -> float:
    """Roundings of a reduction that add up, of results or of subnormal terms."""
    return min(LEEWAY + GROWTH * math.sqrt(max(depth, 1)), MOST)


def shake(dtype: torch.dtype, depth: int) -> float:
    """Relative change of inputs that stands for the errors of summation."""
    import torch

    growth = min(math.sqrt(max(depth, 1)), SHAKEN)
    eps = float(torch.finfo(dtype).eps)
    return 0.5 * growth * min(eps, float(torch.finfo(torch.float32).eps))


def cap(dtype: torch.dtype) -> float:
    """Largest relative error that is ever allowed."""
    import torch

    return min(8 * math.sqrt(float(torch.finfo(dtype).eps)), 0.1)


def limits(
    own: torch.Tensor,
    exact: torch.Tensor,
    tolerance: Tolerance,
    depth: int,
    follow: bool,
    moved: torch.Tensor | None = None,
) -> Limits:
    """Set the limits for one output.

    Args:
        own: The reference's output at the task's precision.
        exact: The fp64 reference's output on the same inputs, any float dtype.
        tolerance: The task's rule.
        depth: Longest reduction behind an element.
        follow: Whether NaN and infinities must come out as the reference gives them.
        moved: The fp64 reference's output on inputs that were changed by `shake`, for hard ones.
    """
    own, exact = pieces.rows(own), pieces.rows(exact)
    if not own.is_floating_point():
        return _integers(own, exact)
    expected = exact.to(own.dtype)
    is_plain = _is_finite(own) and _is_finite(expected)
    disputed = None if is_plain else _disputed(own, expected, follow)
    scale = _scale(exact, is_plain)
    found = _errors(own, exact, scale, moved)
    reach, lost = found.reach(tolerance, own.dtype, depth), found.lost
    tiny = _growth(depth) * _smallest_subnormal(own.dtype)
    if is_given(tolerance):
        scale, reach = scale * 0, reach * 0 + (tolerance.rtol or 0.0)
        tiny, lost = tolerance.atol or 0.0, lost[:0]
    finite = expected.numel() if is_plain else int(expected.isfinite().sum())
    return Limits(
        values=expected.clone() if expected is exact else expected,
        other=None,
        scale=scale.to(_working(own.dtype)),
        reach=reach.to(_working(own.dtype)),
        tiny=tiny,
        unjudged=disputed,
        lost=lost if lost.numel() else None,
        finite=finite,
        judged=finite - _finite_among(expected, disputed, lost),
        has_pattern=0 < finite < expected.numel(),
    )


def _integers(own: torch.Tensor, exact: torch.Tensor) -> Limits:
    import torch

    rounded = exact.to(own.dtype)
    none = torch.zeros(own.shape[0], device=own.device)
    return Limits(
        values=own.clone(),
        other=None if torch.equal(own, rounded) else rounded,
        scale=none,
        reach=none,
        tiny=0.0,
        unjudged=None,
        lost=None,
        finite=own.numel(),
        judged=own.numel(),
        has_pattern=False,
    )


def _is_finite(values: torch.Tensor) -> bool:
    """Whether all are finite; an overflowing sum makes it say no, which only costs time."""
    return math.isfinite(float(values.sum()))


def _disputed(own: torch.Tensor, expected: torch.Tensor, follow: bool) -> torch.Tensor | None:
    """Flat indices of special values that need not come out as the reference gives them.

    At its precision and in fp64 the reference may disagree about being finite, because something
    overflowed on the way.
    """
    special = ~(own.isfinite() & expected.isfinite())
    places = special.flatten().nonzero().flatten()
    mine, truth = own.flatten()[places], expected.flatten()[places]
    same = ((mine == truth) | (mine.isnan() & truth.isnan())) & follow
    skipped = places[~same]
    return skipped if skipped.numel() else None


def _scale(exact: torch.Tensor, is_plain: bool) -> torch.Tensor:
    """Half-power mean of the finite values of each row."""
    import torch

    count, width = exact.shape
    roots = torch.zeros(count, dtype=torch.float64, device=exact.device)
    numbers = torch.zeros_like(roots)
    for top, left in pieces.chunks(exact):
        piece = exact[top, left].double()
        if not is_plain:
            numbers[top] += piece.isfinite().sum(1)
            piece = piece.nan_to_num(0.0, 0.0, 0.0)
        roots[top] += piece.abs().sqrt_().sum(1)
    return (roots / (numbers.clamp(min=1) if not is_plain else width)).square()


class _Errors(NamedTuple):
    """The reference's relative errors."""

    worst: torch.Tensor
    """The largest one of each row."""
    sample: torch.Tensor
    """Of all."""
    lost: torch.Tensor
    """Flat indices of those above the largest that is ever allowed."""
    wild: torch.Tensor
    """Rows that a small change of the inputs moves by more than that."""

    def reach(self, tolerance: Tolerance, dtype: torch.dtype, depth: int) -> torch.Tensor:
        """Allowed relative error of each row."""
        usual = self.worst.clamp(min=_quantile(self.sample))
        reach = (tolerance.factor * usual).clamp(max=cap(dtype))
        return reach.clamp(min=floor(dtype, depth)).masked_fill(self.wild, WILD)


def _errors(
    own: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor, moved: torch.Tensor | None
) -> _Errors:
    """Those of the reference, and of what a change of its inputs makes of it on hard ones."""
    import torch

    highest = cap(own.dtype)
    found = _own_error(own, exact, scale, highest)
    if moved is None:
        return found
    wander = _own_error(pieces.rows(moved), exact, scale, highest)
    return _Errors(
        torch.maximum(found.worst, wander.worst),
        torch.maximum(found.sample, wander.sample),
        torch.unique(torch.cat([found.lost, wander.lost])),
        wander.worst > highest,
    )


def _own_error(
    own: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor, highest: float
) -> _Errors:
    import torch

    count, width = own.shape
    worst = torch.zeros(count, dtype=torch.float64, device=own.device)
    stride = max(1, own.numel() // SAMPLE)
    sample = [worst[:0]]
    lost = [torch.zeros(0, dtype=torch.int64, device=own.device)]
    for top, left in pieces.chunks(own):
        error = _relative(own[top, left], exact[top, left], scale[top])
        largest = error.amax(1)
        worst[top] = torch.maximum(worst[top], largest)
        sample.append(error.flatten()[::stride])
        if float(largest.max()) > highest:
            at = (error > highest).nonzero()
            lost.append((at[:, 0] + top.start) * width + at[:, 1] + left.start)
    none = torch.zeros_like(worst, dtype=torch.bool)
    return _Errors(worst, torch.cat(sample), torch.cat(lost), none)


def _relative(own: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """|own - exact| / (|exact| + scale), 0 where either is not finite or both are zero.

    The rounding of a subnormal result is no error of the reference.
    """
    truth = exact.double()
    error = (own.double() - truth).abs_().sub_(_smallest_subnormal(own.dtype)).clamp_(min=0)
    error /= truth.abs().add_(scale[:, None]).clamp_(min=1e-300)
    if not math.isfinite(float(error.sum())):
        error.masked_fill_(~(own.isfinite() & truth.isfinite()), 0.0)
    return error


def _quantile(sample: torch.Tensor) -> float:
    """The smallest value that at least this share of all does not exceed; `quantile` would sort."""
    count = math.ceil(QUANTILE * sample.numel())
    return float(sample.kthvalue(count).values) if count else 0.0


def _smallest_subnormal(dtype: torch.dtype) -> float:
    import torch

    facts = torch.finfo(dtype)
    return float(facts.tiny) * float(facts.eps)


def _working(dtype: torch.dtype) -> torch.dtype:
    """The precision in which outputs of a dtype are compared."""
    import torch

    return torch.float64 if dtype is torch.float64 else torch.float32


def _finite_among(values: torch.Tensor, first: torch.Tensor | None, second: torch.Tensor) -> int:
    import torch

    places = second if first is None else torch.unique(torch.cat([first, second]))
    return int(values.flatten()[places].isfinite().sum())
