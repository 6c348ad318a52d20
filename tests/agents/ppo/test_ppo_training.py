"""PPO and PPG learn: probes to their closed forms, and a cart pole."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from mmrl.agents import ppo
from mmrl.agents.ppo import ppg
from mmrl.course import plain
from mmrl.envs import make
from tests.helpers.any_probe import check_learned
from tests.helpers.compiling import jit_long

pytestmark = pytest.mark.slow

PROBING = dataclasses.replace(
    plain.PPO,
    memory="none",
    width=32,
    environments=8,
    rollout=32,
    minibatches=2,
    block=30,
    blocks=3,
    episodes=64,
    learning_rate=3e-3,
    gamma=0.8,
    entropy_weight=0.001,
)
OTHER = {"objective": "kl", "proximal": "ewma", "prox_center": 4.0, "shared": True, "staleness": 2}


def check_probes(agent: Any, config: Any, *names: str, **seeds: int) -> None:
    def values(net: Any, seen: Any) -> Any:
        return net(net.init(), seen.obs, seen.begin)[1].value

    about = {"policy": agent.greedy, "values": values, "state_values": True, "within": 0.15}
    check_learned(agent, config, *names, **about, **seeds)


def test_probes_are_learned_to_their_values():
    check_probes(ppo, PROBING, "Constant", "Observation", "Delay", "Truncation", "Choice", "Match")


def test_a_memory_is_learned_to_its_values():
    # A seed may settle for one answer to both cues, at which no gradient is left: at 3e-3 two of
    # twelve did, here none of sixteen, of which one was off in a value.
    config = dataclasses.replace(PROBING, memory="lru", entropy_weight=0.03, learning_rate=1e-3)
    check_probes(ppo, config, "Memory", seeds=6, failures=2)


def test_another_objective_learns_from_what_is_stale():
    check_probes(ppo, dataclasses.replace(PROBING, **OTHER), "Match")


def test_ppg_learns():
    fields = {f.name: getattr(PROBING, f.name) for f in dataclasses.fields(PROBING)}
    phases = dict(policy_iterations=5, auxiliary_minibatches=8, auxiliary_rate=1e-3)
    config = dataclasses.replace(
        plain.PPG, **(fields | dict(epochs=2, value_epochs=3, proximal="ewma")), **phases
    )
    check_probes(ppg, config, "Match")


CART_POLE = dataclasses.replace(
    plain.PPO,
    memory="none",
    learning_rate=2.5e-4,
    anneal=1.0,
    adam_eps=1e-5,
    max_grad_norm=0.5,
    normalize_rewards=True,
    block=61,
    blocks=1,
)


def test_cart_pole_is_balanced():
    """PureJaxRL's settings, and normalized rewards: 500 000 steps."""
    env, params = make("CartPole-v1")
    keys = jax.random.split(jax.random.key(0), 4)
    train = jit_long(jax.vmap(lambda k: ppo.train(CART_POLE, env, params, k)[1]))
    metrics = train(keys)
    # Of 25 other keys two ended at 390 and 423, the others above 475: not each seed does.
    assert np.mean(metrics.returns) > 400
