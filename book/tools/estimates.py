"""Estimates for the expressions in `book/claims`: statistics with intervals."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

Scores = Float[np.ndarray, " _seed"]
MISSING = "a score is missing"
LEAST = 5  # minimum number of seeds for the mean of a single arm
# Uncertainty of a measured time as a factor, in either direction. This is an allowance that we
# chose, because most times were measured only once, so their variation is unknown.
NOISE = 1.15
FURTHEST = 3.0  # largest absolute value in `Estimate.others`
# The order 1, -1, 0.99, -0.99, …, 0 tests extreme values first, because they satisfy most
# conditions.
_STEPS = np.linspace(1.0, 0.0, 301).repeat(2) * np.tile([1.0, -1.0], 301)


class Interval(NamedTuple):
    """An estimate with the bounds of its interval."""

    low: float
    middle: float
    high: float


class Estimate(Protocol):
    """Interface of a statistic with an interval."""

    def interval(self, alpha: float) -> Interval:
        """Return the interval, at level 1 - `alpha` if it is a confidence interval."""
        ...

    def others(self, alpha: float) -> Iterator[Interval]:
        """Yield intervals of the same width around other values, the most extreme ones first."""
        ...

    def missing(self) -> str:
        """Return the reason why there is no estimate, or ""."""
        ...

    def few(self, alpha: float) -> str:
        """Return the reason why there are too few data for the level 1 - `alpha`, or ""."""
        ...


class Contrast(NamedTuple):
    """A weighted sum of the means of several arms over independent seeds.

    The interval follows Welch's t-test, which allows unequal variances. Its degrees of freedom
    follow Satterthwaite's formula.
    """

    terms: tuple[tuple[float, Scores], ...]

    def interval(self, alpha: float) -> Interval:
        """Return the weighted sum of the means with its interval."""
        from scipy import stats  # imported here, because it takes half a second

        middle = sum(weight * float(np.mean(x)) for weight, x in self.terms)
        parts = [(w**2 * float(np.var(x, ddof=1)) / len(x), len(x) - 1) for w, x in self.terms]
        variance = sum(part for part, _ in parts)
        if variance < 1e-16:
            return Interval(middle, middle, middle)
        freedom = variance**2 / sum(part**2 / less for part, less in parts)
        half = float(stats.t.ppf(1 - alpha / 2, freedom)) * math.sqrt(variance)
        return Interval(middle - half, middle, middle + half)

    def others(self, alpha: float) -> Iterator[Interval]:
        """Yield intervals around values from ±3 to 0."""
        low, middle, high = self.interval(alpha)
        for value in FURTHEST * _STEPS:
            yield Interval(value - (middle - low), value, value + (high - middle))

    def missing(self) -> str:
        """Report missing scores."""
        return "" if all(np.all(np.isfinite(x)) for _, x in self.terms) else MISSING

    def few(self, alpha: float) -> str:
        """Report too few seeds for a rank test to reach `alpha`."""
        counts = sorted(len(x) for _, x in self.terms)
        if counts[0] < LEAST and len(counts) == 1:
            return f"there are too few seeds: {counts[0]}, and a mean requires {LEAST}"
        reach = 2 / math.comb(counts[0] + counts[-1], counts[0]) if len(counts) > 1 else 0.0
        if counts[0] < 2 or reach > alpha:
            return f"there are too few seeds: {counts[0]} per arm cannot reach p < {alpha:.2g}"
        return ""


class Within(NamedTuple):
    """A value that is known up to a factor, such as a time.

    We chose the factor as an allowance for noise, so the bounds have no confidence level.
    """

    value: float
    factor: float = 1.0

    def interval(self, alpha: float) -> Interval:
        """Return the value with its bounds, which do not depend on the level."""
        return Interval(self.value / self.factor, self.value, self.value * self.factor)

    def others(self, alpha: float) -> Iterator[Interval]:
        """Yield intervals around values from 10⁻⁶ and 10⁶ to 1."""
        for power in 2 * FURTHEST * _STEPS:
            yield Within(10.0**power, self.factor).interval(alpha)

    def missing(self) -> str:
        """Report a missing value."""
        return "" if math.isfinite(self.value) else "a number is missing"

    def few(self, alpha: float) -> str:
        """Return "", because a single value has bounds."""
        return ""


def gap(*scores: Any) -> str:
    """Report missing scores, or arms without an interval because they have fewer than two seeds."""
    arms = [np.asarray(x, float) for x in scores]
    if not all(np.all(np.isfinite(x)) for x in arms):
        return MISSING
    fewest = min(map(len, arms))
    return "" if fewest > 1 else f"there are too few seeds: {fewest} in one arm"


def contrast(*terms: tuple[float, Any]) -> Contrast:
    """Return a weighted sum of means, for example `contrast((1, a), (-0.9, b))`."""
    return Contrast(tuple((weight, np.asarray(x, float)) for weight, x in terms))


def difference(scores: Any, others: Any) -> Contrast:
    """Return the difference between two means over seeds."""
    return contrast((1.0, scores), (-1.0, others))


def mean(scores: Any) -> Contrast:
    """Return a mean over seeds."""
    return contrast((1.0, scores))


def time_ratio(value: float, times: int = 2) -> Within:
    """Return a ratio of `times` measured times, each of which may be wrong by `NOISE`."""
    return Within(float(value), NOISE**times)


def exact(value: float) -> Within:
    """Return a count without noise, such as a number of bytes."""
    return Within(float(value))
