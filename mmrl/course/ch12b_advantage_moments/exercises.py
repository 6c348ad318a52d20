"""Exercises for chapter 12b: advantage moments and phases."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _stretch(decay, c):
    span = c * (1 + decay) / (1 - decay)
    return (span - 1) / (span + 1)


def _table(c, decay, iterations):
    return _stretch(decay, c), c * iterations


table = Exercise(
    "12b.1",
    solution=_table,
    cases=lambda rng: [(16, 0.0, 32), (4, 0.0, 32), (64, 0.5, 8), (2, 0.9, 1)],
    mistakes=(
        Mistake(
            lambda c, decay, iterations: (1 - (1 - decay) / c, c * iterations),
            "You multiply 1/(1 - b) by c. For advantages, multiply the effective sample size, "
            "which is 2/(1 - b) - 1.",
        ),
        Mistake(
            lambda c, decay, iterations: (c * decay / (1 - decay + c * decay), c * iterations),
            "You multiply the center of mass, which is a mean age. For advantages, multiply the "
            "effective sample size, 2/(1 - b) - 1. With b = 0 it is one iteration, not none.",
        ),
        Mistake(
            lambda c, decay, iterations: (decay, c * iterations),
            "You did not change the decay of the advantage moments. Each iteration is c times "
            "smaller, so the moments would cover c times fewer steps.",
        ),
        Mistake(
            lambda c, decay, iterations: ((c - 1) / (c + 1), c * iterations),
            "That holds only for b = 0, where the span is 1. In general, the old span is 2/(1 - b) "
            "- 1, and the new span is c times as large.",
        ),
        Mistake(
            lambda c, decay, iterations: (decay ** (1 / c), c * iterations),
            "b to the power 1/c preserves how fast weights decay per example, so b = 0 stays 0. "
            "The effective sample size, 2/(1 - b) - 1 iterations, should cover the same number of "
            "steps instead.",
        ),
        Mistake(
            lambda c, decay, iterations: (c * (1 + decay) / (1 - decay), c * iterations),
            "Your first value is the new span, in iterations. Return the corresponding decay: "
            "solve span = 2/(1 - b) - 1 for b.",
        ),
        Mistake(
            lambda c, decay, iterations: (_stretch(decay, c), iterations),
            "You did not change N_π, the number of iterations per phase. An iteration is now c "
            "times smaller, so a phase would have c times fewer steps.",
        ),
        Mistake(
            lambda c, decay, iterations: (_stretch(decay, c), iterations / c),
            "You changed N_π in the wrong direction: iterations are smaller, so a phase needs more "
            "of them.",
        ),
    ),
    tolerance=1e-6,
)


def _weigh(batches, decay):
    """Compute the mean and deviation, weighting each batch by decay^age."""
    ages = range(len(batches) - 1, -1, -1)
    weights = [np.full(len(x), float(decay) ** age) for x, age in zip(batches, ages, strict=True)]
    x, w = np.concatenate(batches), np.concatenate(weights)
    mean = np.average(x, weights=w)
    return mean, np.sqrt(np.average((x - mean) ** 2, weights=w))


def _mean_faded(batches, decay):
    """Apply Chan's merge, but with a mean that decays too."""
    count = mean = square = 0.0
    for x in batches:
        count, mean, square = decay * count, decay * mean, decay * square
        total, step = count + len(x), np.mean(x) - mean
        square += np.sum((x - np.mean(x)) ** 2) + count * len(x) / total * step**2
        mean, count = mean + len(x) / total * step, total
    return mean, np.sqrt(square / count)


def _count_fades(batches, decay):
    """Apply Chan's merge, but with a decay of the count only."""
    count = mean = square = 0.0
    for x in batches:
        count *= decay
        total, step = count + len(x), np.mean(x) - mean
        square += np.sum((x - np.mean(x)) ** 2) + count * len(x) / total * step**2
        mean, count = mean + len(x) / total * step, total
    return mean, np.sqrt(square / count)


def _moving_averages(batches, decay):
    """Compute running averages of the means and deviations of batches."""
    mean, deviation = np.mean(batches[0]), np.std(batches[0])
    for x in batches[1:]:
        mean = decay * mean + (1 - decay) * np.mean(x)
        deviation = decay * deviation + (1 - decay) * np.std(x)
    return mean, deviation


def _within(batches, decay):
    """Compute the mean, and a deviation that ignores differences between batch means."""
    ages = np.arange(len(batches))[::-1]
    weights = [float(decay) ** age * len(x) for x, age in zip(batches, ages, strict=True)]
    variances = [np.var(x) for x in batches]
    return _weigh(batches, decay)[0], np.sqrt(np.average(variances, weights=weights))


def _unbias(batches, decay):
    mean, deviation = _weigh(batches, decay)
    ages = np.arange(len(batches))[::-1]
    total = sum(float(decay) ** age * len(x) for x, age in zip(batches, ages, strict=True))
    return mean, deviation * np.sqrt(total / (total - 1))


def _draw(rng, sizes):
    return [rng.normal(rng.normal(), rng.uniform(0.5, 2), size=size) for size in sizes]


moments = Exercise(
    "12b.2",
    solution=_weigh,
    cases=lambda rng: [
        (_draw(rng, (3, 3)), 0.5),
        (_draw(rng, (4, 4, 4)), 0.6),
        (_draw(rng, (2, 5, 3, 4)), 0.9),
    ],
    mistakes=(
        Mistake(
            _mean_faded,
            "You multiply the mean by the decay too. The count and the squares are weighted sums, "
            "so they decay. The mean is a sum divided by a count, so it does not.",
        ),
        Mistake(
            lambda batches, decay: (np.mean(batches[-1]), np.std(batches[-1])),
            "Those are only the moments of the last batch, as with a decay of 0. Earlier batches "
            "must count too, with smaller weights.",
        ),
        Mistake(
            lambda batches, decay: _weigh(batches, 1.0),
            "There is no decay: all batches have the same weight. Multiply the count and the "
            "squares by the decay before you merge a new batch.",
        ),
        Mistake(
            lambda batches, decay: tuple(np.power(_weigh(batches, decay), (1, 2))),
            "Your second value is the variance, M / n. Return its square root, the deviation.",
        ),
        Mistake(
            _count_fades,
            "Your count decays, but your sum of squares M does not. It is a weighted sum too, so "
            "multiply it by the decay before each merge.",
        ),
        Mistake(
            _moving_averages,
            "You keep running averages of means and deviations. They ignore the sizes of batches "
            "and the differences between their means: keep (n, μ, M) instead.",
        ),
        Mistake(
            _within,
            "You average the variances of the batches. Differences between their means contribute "
            "to the variance as well: this is the last term of Eq. 12b.1.",
        ),
        Mistake(
            _unbias,
            "You divide the squares by the count minus one. Here the variance is M / n, because a "
            "decayed count is not a number of examples.",
        ),
    ),
)


def _decay(center):
    return center / (1 + center)


def _weights(center, steps):
    return _decay(center) ** np.arange(steps + 1.0)


def _age(center, steps):
    return np.average(np.arange(steps + 1), weights=_weights(center, steps))


age = Exercise(
    "12b.3",
    solution=_age,
    cases=lambda rng: [(8.0, 1), (8.0, 8), (8.0, 300), (128.0, 60), (1.0, 5), (2.5, 40)],
    mistakes=(
        Mistake(
            lambda center, steps: center,
            "That is the mean age after infinitely many steps. After few steps, the average does "
            "not contain parameters that old, so it is younger.",
        ),
        Mistake(
            lambda center, steps: steps / 2,
            "You give all parameters equal weights. The weight decreases by the factor β per step "
            "of age, so the mean age is below steps / 2.",
        ),
        Mistake(
            lambda center, steps: np.average(
                np.arange(steps + 1), weights=(1 - 1 / center) ** np.arange(steps + 1.0)
            ),
            "The decay is wrong: center = 1/(1 - β) - 1 implies β = 1 - 1/(1 + center).",
        ),
        Mistake(
            lambda center, steps: _age(center, steps - 1),
            "There is one parameter vector too few. After t gradient steps there are t + 1 vectors "
            "to average, including the initial one.",
        ),
        Mistake(
            lambda center, steps: steps - _age(center, steps),
            "Your ages are reversed: the current parameters have age 0 and the largest weight, 1.",
        ),
        Mistake(
            lambda center, steps: (
                np.sum(np.arange(steps + 1) * _weights(center, steps)) / (1 + center)
            ),
            "You divide by 1/(1 - β), the sum of infinitely many weights. After `steps` steps the "
            "sum is smaller, so divide by the sum of the actual weights.",
        ),
        Mistake(
            lambda center, steps: np.average(
                np.arange(steps + 1),
                weights=_weights(center, steps) * np.append(np.ones(steps), 1 + center),
            ),
            "You give the initial parameters all of the remaining weight, as in an average that "
            "starts with them. Here all parameters have the weight β^age, divided by the sum of "
            "these weights.",
        ),
    ),
)
