"""Exercises for chapter 12: batch size-invariance."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _center(decay):
    return decay / (1 - decay)


def _decay(center):
    return center / (1 + center)


def _adjust(c, step_size, beta_prox):
    return step_size / np.sqrt(c), _decay(c * _center(beta_prox))


def _other_step(step):
    """Return the correct answer with a different step size."""
    return lambda c, step_size, beta: (step(c, step_size), _adjust(c, step_size, beta)[1])


def _other_decay(decay):
    """Return the correct answer with a different β_prox."""
    return lambda c, step_size, beta: (step_size / np.sqrt(c), decay(c, beta))


new_settings = Exercise(
    "12.1",
    solution=_adjust,
    cases=lambda rng: [(16, 5e-4, 8 / 9), (4, 5e-4, 8 / 9), (64, 3e-3, 0.8), (2, 1e-2, 0.5)],
    mistakes=(
        Mistake(
            _other_step(lambda c, step_size: step_size / c),
            "You divide the step size by c, as for plain gradient descent. Adam already divides by "
            "the size of the noise, which is √c times larger, so divide the step size only by √c.",
        ),
        Mistake(
            _other_step(lambda c, step_size: step_size),
            "You did not change the step size. Adam's denominator makes each step √c times "
            "shorter, but there are now c steps instead of one, so together they move √c times too "
            "far.",
        ),
        Mistake(
            _other_step(lambda c, step_size: step_size * np.sqrt(c)),
            "The root is right, but you multiply by it. There are more steps now, so each step "
            "must be shorter: divide by the root.",
        ),
        Mistake(
            _other_decay(lambda c, beta: beta ** (1 / c)),
            "β_prox to the power 1/c is nearly right, because the weights decay equally fast per "
            "example, but the mean age differs. Multiply the center of mass, 1/(1 - β) - 1, by c.",
        ),
        Mistake(
            _other_decay(lambda c, beta: 1 - (1 - beta) / c),
            "You multiply 1/(1 - β) by c. Multiply the center of mass instead, which is one less, "
            "because the current parameters have age 0.",
        ),
        Mistake(
            _other_decay(lambda c, beta: _decay(_center(beta) / c)),
            "You divide the center of mass by c. Its unit is gradient steps, each of which now has "
            "fewer examples, so it must be c times larger.",
        ),
        Mistake(
            _other_decay(lambda c, beta: c * _center(beta)),
            "Your second value is the new center of mass, in gradient steps. Return the "
            "corresponding decay: solve COM = 1/(1 - β) - 1 for β.",
        ),
        Mistake(
            _other_decay(lambda c, beta: beta),
            "You did not change β_prox. A gradient step now has c times fewer examples, so the "
            "proximal policy would be c times younger than before.",
        ),
    ),
    tolerance=1e-6,
)


def _factor(c, small, large, n_small, n):
    """Compute α'/α by Eq. 12.3 from the mean squared gradients of two batches."""
    trace = (small - large) / (1 / n_small - 1 / n)
    noise = trace / n / (large - trace / n)
    return np.sqrt((1 + c * noise) / (1 + noise)) / c


def _case(rng, c, ratio):
    """Return a case with B/n = `ratio`."""
    n, n_small, signal = 64, int(rng.choice([4, 8, 16])), rng.uniform(0.1, 3)
    trace = ratio * n * signal
    return c, signal + trace / n_small, signal + trace / n, n_small, n


def _noise_of(c, trace, signal, n):
    noise = trace / signal / n
    return np.sqrt((1 + c * noise) / (1 + noise)) / c


def _trace(small, large, n_small, n):
    return (small - large) / (1 / n_small - 1 / n)


factor = Exercise(
    "12.2",
    solution=_factor,
    cases=lambda rng: [
        _case(rng, c, ratio) for c, ratio in ((16, 0.25), (4, 1.0), (64, 10.0), (8, 0.01))
    ],
    mistakes=(
        Mistake(
            lambda c, *_: 1 / np.sqrt(c),
            "That is the limit for a batch that is nearly all noise. Here the measurements "
            "determine how noisy the batch is: compute S and |∇L|² from them first.",
        ),
        Mistake(
            lambda c, small, large, n_small, n: _noise_of(
                c, _trace(small, large, n_small, n), large, n
            ),
            "You divide S by the mean square of the larger batch, part of which is noise. Divide "
            "by |∇L|² instead, which is the mean square minus S/n.",
        ),
        Mistake(
            lambda c, small, large, n_small, n: _noise_of(
                c,
                _trace(small, large, n_small, n),
                large - _trace(small, large, n_small, n) / n,
                1,
            ),
            "You use B instead of B/n. The noise of a batch of n examples is S/n, which is to be "
            "compared with |∇L|².",
        ),
        Mistake(
            lambda c, small, large, n_small, n: 1 / _factor(c, small, large, n_small, n),
            "That is α/α', by which the step size is divided. Return α'/α, which is less than 1.",
        ),
        Mistake(
            lambda c, small, large, n_small, n: c * _factor(c, small, large, n_small, n),
            "Your root is right, but the factor 1/c is missing: Eq. 12.3 spreads one large step "
            "over c small steps.",
        ),
        Mistake(
            lambda c, small, large, n_small, n: _noise_of(
                c,
                _trace(small, large, n_small, n),
                large - _trace(small, large, n_small, n) / n,
                n_small,
            ),
            "You use the noise of the smaller batch, S/n_small. The batch of n examples is the one "
            "that is divided by c, so use its noise, S/n, in Eq. 12.3.",
        ),
        Mistake(
            lambda c, small, large, n_small, n: np.sqrt(small / large) / c,
            "√(small/large) is right only if `n_small` is n/c, which is not always the case here. "
            "Compute S and |∇L|² first, and from them the noise at n and at n/c.",
        ),
        Mistake(
            lambda c, small, large, n_small, n: c * _factor(c, small, large, n_small, n) ** 2,
            "The root is missing: Adam divides by the root of the mean square. Without the root, "
            "your factor tends to 1 for a noisy batch instead of 1/√c.",
        ),
    ),
)


def _momentum(c, rate, momentum):
    slower = _decay(c * _center(momentum))
    return rate * (1 - slower) / (c * (1 - momentum)), slower


def _by_power(c, rate, momentum):
    slower = momentum ** (1 / c)
    return rate * (1 - slower) / (c * (1 - momentum)), slower


adjust = Exercise(
    "12.3",
    solution=_momentum,
    cases=lambda rng: [
        (4, 0.5, 0.9),
        (16, 0.2, 0.9),
        (64, 1.0, 0.5),
        (4, 0.3, 0.0),
        (1, 0.1, 0.8),
    ],
    mistakes=(
        Mistake(
            lambda c, rate, momentum: (rate / c, momentum),
            "That is right for the total weight of an example, but the velocity now forgets after "
            "c times fewer examples. Multiply its center of mass by c as well.",
        ),
        Mistake(
            lambda c, rate, momentum: (rate / np.sqrt(c), _momentum(c, rate, momentum)[1]),
            "The momentum is right, but √c is for Adam, which divides by the size of the gradient. "
            "Here, divide the total contribution of an example, rate / (1 - momentum), by c.",
        ),
        Mistake(
            lambda c, rate, momentum: (rate / np.sqrt(c), momentum),
            "√c is for Adam, which divides by the size of the gradient. Also, the velocity now "
            "forgets after c times fewer examples, so multiply its center of mass by c.",
        ),
        Mistake(
            lambda c, rate, momentum: (rate / c, _momentum(c, rate, momentum)[1]),
            "The momentum is right, but a velocity that remembers longer accumulates more "
            "gradients. Divide rate / (1 - momentum) by c, not the rate.",
        ),
        Mistake(
            lambda c, rate, momentum: (
                np.sqrt(c) * _momentum(c, rate, momentum)[0],
                _momentum(c, rate, momentum)[1],
            ),
            "You divide by √c, as for Adam. Here nothing divides by the size of the gradient, so "
            "divide by c.",
        ),
        Mistake(
            lambda c, rate, momentum: (
                c * _momentum(c, rate, momentum)[0],
                _momentum(c, rate, momentum)[1],
            ),
            "You did not change rate / (1 - momentum). There are c times as many steps, so it must "
            "be divided by c.",
        ),
        Mistake(
            _by_power,
            "With momentum to the power 1/c the velocity decays as fast as before, but the mean "
            "age differs. Multiply the center of mass, momentum / (1 - momentum), by c.",
        ),
    ),
    tolerance=1e-6,
)
