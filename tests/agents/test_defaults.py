"""The defaults of every agent learn a small task, and stay."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import runs
from mmrl.agents import AGENTS, find
from tests.helpers.compiling import jit_long

BLOCKS = {"dqn": 6, "r2d2": 10, "ppo": 2, "ppg": 3, "clear": 6}
LEVEL, STAYED = 0.9, 0.95


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_defaults_learn_and_stay(agent: str):
    """Catch, of which chance is about -0.6, in some blocks of a whole run."""
    program, module = runs.program(agent, "Catch-bsuite"), find(agent)
    config = dataclasses.replace(module.Config(), memory="gru", blocks=BLOCKS[agent])
    keys = jax.vmap(jax.random.key)(jnp.arange(200, 201))
    train = jax.vmap(lambda key: module.train(config, program.env, program.params, key))
    _, metrics = jit_long(train)(keys)
    curves = np.asarray(metrics.returns.mean(-1))  # [seed, block]
    assert (curves[:, -1] >= LEVEL).all(), curves
    assert (1 + curves[:, -1] >= STAYED * (1 + curves.max(1))).all(), curves
