"""What is rescaled with the batch: the paper's table, what can be left out, and what cannot be."""

import dataclasses
import math
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import ppo
from mmrl.agents.ppo import learner
from mmrl.course import plain
from mmrl.course.invariance import rescale

PAPER = dataclasses.replace(
    plain.PPG,
    environments=256,
    policy_iterations=32,
    block=32,
    advantage_decay=0.0,
    prox_center=8.0,
)
# c: learning rate, β_prox, decay of the advantages' moments, β₁, β₂, N_π
TABLE = {
    1: (5.00e-4, 0.888889, 0.0, 0.9, 0.999, 32),
    4: (2.50e-4, 0.969697, 0.6, 0.974004, 0.9997499, 128),
    16: (1.25e-4, 0.992248, 0.88235, 0.993437, 0.9999375, 512),
    64: (6.25e-5, 0.998051, 0.96923, 0.998355, 0.9999844, 2048),
    256: (3.125e-5, 0.999512, 0.99222, 0.999589, 0.9999961, 8192),
}


@pytest.mark.parametrize("c", list(TABLE))
def test_a_batch_c_times_smaller(c: int):
    new = rescale(PAPER, c, betas=True)
    beta = 1 - 1 / (1 + new.prox_center)
    numbers = (new.learning_rate, beta, new.advantage_decay, new.beta1, new.beta2)
    np.testing.assert_allclose(numbers, TABLE[c][:5], rtol=1e-5, atol=1e-6)
    assert new.policy_iterations == TABLE[c][5]
    assert new.environments * c == 256 and new.block == 32 * c
    assert (new.minibatches, new.auxiliary_minibatches) == (4, 32)
    # A phase has the same steps, and the run too.
    assert new.environments * new.policy_iterations == 256 * 32
    assert new.environments * new.block == 256 * 32
    assert rescale(new, Fraction(1, c), betas=True).environments == 256
    back = rescale(new, Fraction(1, c), betas=True)
    assert math.isclose(back.learning_rate, 5e-4) and math.isclose(back.prox_center, 8.0)
    assert math.isclose(back.advantage_decay, 0.0, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("off", "fields"),
    [
        ("adam", {"learning_rate"}),
        ("prox", {"prox_center"}),
        ("advantages", {"advantage_decay"}),
        ("phases", {"policy_iterations", "auxiliary_minibatches"}),
        ("betas", {"beta1", "beta2"}),
    ],
)
def test_every_adjustment_can_be_left_out(off: str, fields: set[str]):
    whole = rescale(PAPER, 4, betas=True)
    part = rescale(PAPER, 4, **({"betas": True} | {off: False}))
    names = {f.name for f in dataclasses.fields(PAPER)}
    assert {n for n in names if getattr(whole, n) != getattr(part, n)} == fields
    for name in fields - {"auxiliary_minibatches"}:
        assert getattr(part, name) == getattr(PAPER, name)
    assert off != "phases" or part.auxiliary_minibatches == 8  # of the same size


def test_plain_descent_is_divided_by_c_itself():
    config = dataclasses.replace(PAPER, optimizer="sgd")
    assert rescale(config, 16).learning_rate == config.learning_rate / 16
    assert rescale(config, 16, adam=False).learning_rate == config.learning_rate
    assert rescale(plain.PPO, Fraction(1, 2)).advantage_decay == 0  # nothing spans less
    new = rescale(plain.PPO, 4)  # and PPO has no phases
    assert type(new) is ppo.Config and new.environments == 16


@pytest.mark.parametrize("c", [0, -2, 3, Fraction(1, 5)])
def test_batches_that_are_not_whole_are_refused(c: Any):
    with pytest.raises(ValueError, match="`c` must"):
        rescale(PAPER, c)


def test_a_smaller_batch_ages_the_average_as_much():
    """θ moving in a line, measured in environment steps: the average trails by as many."""
    trails = []
    for c in (1, 16):
        center = rescale(PAPER, c).prox_center
        absorb = jax.jit(partial(learner.update_average, center=center))
        average = learner.Average(jnp.ones(()), jnp.zeros(1))
        for t in range(1, 60 * c):
            average = absorb(average, jnp.full(1, t / c))
        trails.append(60 - 1 / c - float(average.net[0]))
    np.testing.assert_allclose(trails, 8.0, rtol=0.05)
