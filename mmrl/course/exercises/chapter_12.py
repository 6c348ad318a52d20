"""The exercises of chapter 12: batch size-invariance."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _center(decay):
    return decay / (1 - decay)


def _decay(center):
    return center / (1 + center)


def _stretched(decay, c):
    span = c * (1 + decay) / (1 - decay)
    return (span - 1) / (span + 1)


def _table(c, step_size, beta_prox, decay, iterations):
    beta = _decay(c * _center(beta_prox))
    return step_size / np.sqrt(c), beta, _stretched(decay, c), c * iterations


def _changed(place, value):
    """The right table with one entry computed otherwise."""

    def table(*case):
        entries = list(_table(*case))
        entries[place] = value(*case)
        return tuple(entries)

    return table


table = Exercise(
    "12.1",
    wanted=_table,
    cases=lambda rng: [
        (16, 5e-4, 8 / 9, 0.0, 32),
        (4, 5e-4, 8 / 9, 0.0, 32),
        (64, 3e-3, 0.8, 0.5, 8),
        (2, 1e-2, 0.5, 0.9, 1),
    ],
    mistakes=(
        Mistake(
            _changed(0, lambda c, rate, *_: rate / c),
            "The step size is divided by c, as for plain descent. Adam divides by the size of a "
            "noise that has itself grown by √c.",
        ),
        Mistake(
            _changed(0, lambda c, rate, *_: rate),
            "The step size is as it was. Adam's denominator grows by √c only, but there are now c "
            "steps in place of one.",
        ),
        Mistake(
            _changed(1, lambda c, _, beta, *__: beta ** (1 / c)),
            "β_prox to the power 1/c is nearly right: the weights fall as fast, but the mean age "
            "is another. Multiply the center of mass, 1/(1 - β) - 1.",
        ),
        Mistake(
            _changed(1, lambda c, _, beta, *__: 1 - (1 - beta) / c),
            "You multiply 1/(1 - β) by c. The mean age, the center of mass, is one less: today's "
            "parameters have age 0.",
        ),
        Mistake(
            _changed(1, lambda c, _, beta, *__: c * _center(beta)),
            "That is the center of mass, in gradient steps. Asked is the decay that goes with it.",
        ),
        Mistake(
            _changed(1, lambda c, _, beta, *__: beta),
            "β_prox is as it was: with steps of fewer examples the proximal policy is now c times "
            "younger.",
        ),
        Mistake(
            _changed(2, lambda c, rate, beta, decay, _: 1 - (1 - decay) / c),
            "For the advantages it is the effective sample that counts, 2/(1 - b) - 1, and you "
            "multiply 1/(1 - b).",
        ),
        Mistake(
            _changed(2, lambda c, rate, beta, decay, _: _decay(c * _center(decay))),
            "For the advantages you multiply the center of mass. It is the effective sample that "
            "shall stay, 2/(1 - b) - 1: with b = 0 it is one iteration, not none.",
        ),
        Mistake(
            _changed(2, lambda c, rate, beta, decay, _: decay),
            "The decay of the advantages' moments is as it was, so that they come from c times "
            "fewer steps.",
        ),
        Mistake(
            _changed(3, lambda *case: case[-1]),
            "N_π is as it was. It counts iterations, and an iteration is now c times smaller.",
        ),
        Mistake(
            _changed(3, lambda c, *case: case[-1] / c),
            "The wrong way round: smaller iterations, so more of them make a phase.",
        ),
    ),
    tolerance=1e-6,
)


def _weights(center, steps):
    return _decay(center) ** np.arange(steps + 1.0)


def _age(center, steps):
    return np.average(np.arange(steps + 1), weights=_weights(center, steps))


age = Exercise(
    "12.2",
    wanted=_age,
    cases=lambda rng: [(8.0, 1), (8.0, 8), (8.0, 300), (128.0, 60), (1.0, 5), (2.5, 40)],
    mistakes=(
        Mistake(
            lambda center, steps: center,
            "That is the age after infinitely many steps. An average that has just begun holds "
            "nothing so old.",
        ),
        Mistake(
            lambda center, steps: np.average(
                np.arange(steps + 1), weights=(1 - 1 / center) ** np.arange(steps + 1.0)
            ),
            "The decay is off: from center = 1/(1 - β) - 1 follows β = 1 - 1/(1 + center).",
        ),
        Mistake(
            lambda center, steps: _age(center, steps - 1),
            "One too few: after t gradient steps there are t + 1 parameters to average, the "
            "first of them from before any step.",
        ),
        Mistake(
            lambda center, steps: steps - _age(center, steps),
            "The wrong way round: today's parameters have age 0 and the largest weight, 1.",
        ),
        Mistake(
            lambda center, steps: (
                np.sum(np.arange(steps + 1) * _weights(center, steps)) / (1 + center)
            ),
            "You divide by 1/(1 - β), the sum of all weights that there will ever be. So far they "
            "add up to less: divide by their sum.",
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
    wanted=_momentum,
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
            "Good for what an example weighs in the end, but the velocity now forgets after c "
            "times fewer examples. Multiply its center of mass.",
        ),
        Mistake(
            lambda c, rate, momentum: (rate / c, _momentum(c, rate, momentum)[1]),
            "The momentum is right. But a velocity that remembers longer adds up more gradients: "
            "it is rate / (1 - momentum) that must be divided by c.",
        ),
        Mistake(
            lambda c, rate, momentum: (
                np.sqrt(c) * _momentum(c, rate, momentum)[0],
                _momentum(c, rate, momentum)[1],
            ),
            "That is Adam's √c. Nothing here divides by the size of the gradient, so c it is.",
        ),
        Mistake(
            lambda c, rate, momentum: (
                c * _momentum(c, rate, momentum)[0],
                _momentum(c, rate, momentum)[1],
            ),
            "You keep rate / (1 - momentum). There are c times as many steps, so that it must be "
            "divided by c.",
        ),
        Mistake(
            _by_power,
            "With momentum to the power 1/c the velocity falls as fast as before, but its mean "
            "age is another. Multiply the center of mass, momentum / (1 - momentum).",
        ),
    ),
    tolerance=1e-6,
)
