"""Plants formulas that lose digits: changes in places that belong together."""

# ruff: noqa: E501

import re
from collections.abc import Iterator
from typing import NamedTuple

from fault import Fault


class Formula(NamedTuple):
    """Another way to compute the same, less accurately."""

    what: str
    """The change, for people."""
    pattern: str
    """What is looked for, everywhere."""
    by: str
    """What takes its place."""


CANCELLING = (
    Formula(
        "lanes without an element count for the variance",
        r"select\(first\(n\), (\w+) - mean_lanes_, 0\.0f\)",
        r"\1 - mean_lanes_",
    ),
    Formula(
        "the square of a difference is multiplied out",
        r"(const (?:float|V) pow1 = )sub1 \* sub1;",
        r"\1predictions_c * predictions_c - 2.0f * predictions_c * targets_c + targets_c * targets_c;",
    ),
    Formula(
        "the logarithm of the softmax",
        r"(const float log_softmax = )logits_c - row_max - log_sum;",
        r"\1std::log(std::exp(logits_c - row_max) / exp_sum);",
    ),
    Formula(
        "the exponential of the maximum is multiplied in again",
        r"(const float logsumexp = )log1 \+ shift;",
        r"\1std::log(exp_sum * std::exp(shift));",
    ),
    Formula(
        "mean and value are scaled before they are subtracted",
        r"\((x_c|add1) - mean\) \* inv_std",
        r"(\1 * inv_std - mean * inv_std)",
    ),
)


def faults(body: str) -> Iterator[Fault]:
    """The kernels with one formula exchanged, for each that is in them."""
    if (changed := _mean_of_squares(body)) != body:
        what = "the variance is the mean square less the squared mean"
        yield Fault("cancellation", what, changed)
    for formula in CANCELLING:
        changed = re.sub(formula.pattern, formula.by, body)
        if changed != body:
            yield Fault("cancellation", formula.what, changed)


def _mean_of_squares(body: str) -> str:
    """Not to be had by one replacement: the sum is that of the squares of what is not centred."""
    changed = re.sub(r"(const (?:float|V) centred = )(.+) - mean;", r"\1\2;", body)
    if "centred" not in changed:
        return changed
    variance = r"(const float variance = )(.+);"
    return re.sub(variance, r"\1(\2) - mean * mean;", changed, count=1)
