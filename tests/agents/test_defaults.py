"""The defaults of every agent learn a small task, and stay."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from mmrl import runs
from mmrl.agents import AGENTS, find
from tests.helpers.compiling import jit_long

BLOCKS = {"r2d2": 10, "ppo": 2, "clear": 3, "dqn": 3, "ppg": 3}  # others take five
LEVEL, FINAL = 0.9, 0.95


@pytest.mark.full
@pytest.mark.parametrize("agent", AGENTS)
def test_defaults_learn_and_stay(agent: str):
    """Catch, of which chance is about -0.6, in some blocks of a whole run."""
    program, module = runs.program(agent, "Catch-bsuite"), find(agent)
    config = dataclasses.replace(module.Config(), memory="gru", blocks=BLOCKS.get(agent, 5))
    train = partial(module.train, config, program.env, program.params)
    # CLEAR compiles for longer than it computes.
    _, metrics = (jax.jit if agent == "clear" else jit_long)(train)(jax.random.key(200))
    curve = np.asarray(metrics.returns.mean(-1))
    assert curve[-1] >= LEVEL, curve
    assert 1 + curve[-1] >= FINAL * (1 + curve.max()), curve
