"""The defaults of every agent learn a small task, and stay."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from mmrl import runs
from mmrl.agents import AGENTS, find
from tests.helpers.compiling import jit_long

# A GRU that reads a tape step by step takes four times as long; with less, PPG does not stay.
MEMORIES = {"ppg": "gru"}
SIZES = {"dqn": {"blocks": 5}, "r2d2": {"blocks": 10}, "ppo": {"block": 5, "blocks": 2}}
LONG = ("r2d2", "ppg")  # others compile for longer than they compute
LEVEL, STAYED = 0.9, 0.95


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_defaults_learn_and_stay(agent: str):
    """Catch, of which chance is about -0.6, in some blocks of a whole run."""
    program, module = runs.program(agent, "Catch-bsuite"), find(agent)
    sizes = {"memory": MEMORIES.get(agent, "min_gru"), **SIZES.get(agent, {"blocks": 3})}
    config = dataclasses.replace(module.Config(), **sizes)
    train = partial(module.train, config, program.env, program.params)
    _, metrics = (jit_long if agent in LONG else jax.jit)(train)(jax.random.key(200))
    curve = np.asarray(metrics.returns.mean(-1))
    assert curve[-1] >= LEVEL, curve
    assert 1 + curve[-1] >= STAYED * (1 + curve.max()), curve
