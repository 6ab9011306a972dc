"""Owns the numbers that are made of times: medians, spreads, and bootstrap intervals of ratios."""

from collections.abc import Sequence

import numpy as np

from evokernel.evaluation import Interval

Pairs = Sequence[tuple[float, float]]
"""Blocks of one process: the opponent's and the candidate's time, taken next to each other."""

LEVEL = 0.95
RESAMPLES = 2000


def median(values: Sequence[float]) -> float:
    """The median; the mean of the two middle values where their number is even.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("the median of no values is not a number")
    return float(np.median(np.asarray(values, dtype=np.float64)))


def spread(values: Sequence[float]) -> float:
    """Interquartile range divided by the median; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    low, middle, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
    return float((high - low) / middle) if middle > 0 else 0.0


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values.

    Raises:
        ValueError: There are none, or one is not positive.
    """
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean needs at least one value, and only positive ones")
    return float(np.exp(np.mean(np.log(np.asarray(values, dtype=np.float64)))))


def ratio_interval(
    processes: Sequence[Pairs],
    seed: int = 0,
    between: float = 0.0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Interval:
    """How much slower the opponent is than the candidate, from paired blocks of some processes.

    The estimate of a process is the median of its blocks' log ratios: pairing by block cancels
    whatever slows both sides alike, and the logarithm makes a kernel against itself symmetric.
    Processes are averaged. The interval is a percentile bootstrap over processes, then over the
    blocks of each drawn process (Davison and Hinkley 1997, section 3.8). Draws of few processes
    spread too little by the factor sqrt((n - 1) / n), so that their deviations are stretched by
    its inverse.

    Args:
        processes: For each process its blocks of (opponent, candidate) times, one common unit.
        seed: Seed of the resampling; the same blocks and seed give the same interval.
        between: Standard deviation of the log ratio between fresh processes that is taken for
            granted where one process alone cannot show it.
        level: Two-sided confidence level.
        resamples: Number of bootstrap draws.

    Raises:
        ValueError: A process without blocks, no process, or a time that is not positive.
    """
    logs = [_log_ratios(pairs) for pairs in processes]
    if not logs:
        raise ValueError("a ratio needs the blocks of at least one process")
    rng = np.random.default_rng(seed)
    drawn = np.stack([_resampled_medians(values, resamples, rng) for values in logs])
    centres = np.array([np.median(values) for values in logs])
    estimate = float(centres.mean())
    means = _resampled_means(drawn, centres, rng)
    means = means + rng.normal(0.0, between / np.sqrt(len(logs)), resamples)
    low, high = np.exp(np.quantile(means, ((1 - level) / 2, (1 + level) / 2)))
    value = float(np.exp(estimate))
    return Interval(value=value, low=min(float(low), value), high=max(float(high), value))


def _log_ratios(pairs: Pairs) -> np.ndarray:
    times = np.asarray(pairs, dtype=np.float64)
    if times.size == 0 or not (times > 0).all():
        raise ValueError("every process needs at least one block of two positive times")
    return np.asarray(np.log(times[:, 0] / times[:, 1]))


def _resampled_medians(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    picks = rng.integers(0, len(values), (resamples, len(values)))
    return np.asarray(np.median(values[picks], axis=1))


def _resampled_means(
    drawn: np.ndarray, centres: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    count, resamples = drawn.shape
    picks = rng.integers(0, count, (count, resamples))
    within = np.take_along_axis(drawn - centres[:, None], picks, axis=0).mean(axis=0)
    across = centres[picks].mean(axis=0) - centres.mean()
    stretch = np.sqrt(count / (count - 1)) if count > 1 else 1.0
    return np.asarray(centres.mean() + within + stretch * across)
