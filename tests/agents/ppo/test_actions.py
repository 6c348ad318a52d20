"""Continuous actions: environments receive legal ones, and a fresh policy reaches all of them."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnax.environments import environment, spaces

from mmrl import checks
from mmrl.agents import ppo
from mmrl.agents.ppo import ppg
from mmrl.rollout import collect, start

INF = np.inf


@struct.dataclass
class Params(environment.EnvParams):
    max_steps_in_episode: int = 8


class Target(environment.Environment):
    """Shows the action that it received, and pays for the upper end of finite bounds."""

    def __init__(self, low: Any, high: Any):
        self.low, self.high = low, high

    @property
    def default_params(self) -> Params:
        return Params()

    def reset_env(self, key: Any, params: Params) -> Any:
        return jnp.zeros(2), environment.EnvState(time=jnp.int32(0))

    def step_env(self, key: Any, state: Any, action: Any, params: Params) -> Any:
        after = environment.EnvState(time=state.time + 1)
        place = (action - self.low) / (self.high - self.low)
        return action, after, jnp.sqrt(1 - place**2).sum(), jnp.array(False), {}

    def action_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(self.low, self.high, (2,), jnp.float32)

    def observation_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(-INF, INF, (2,), jnp.float32)


SIZES: dict[str, Any] = {
    **{"memory": "none", "width": 8, "environments": 4, "rollout": 16, "minibatches": 2},
    **{"block": 2, "blocks": 1, "episodes": 2},
}
AGENTS: dict[str, tuple[Any, dict[str, int]]] = {
    "ppo": (ppo, {}),
    "ppg": (ppg, {"policy_iterations": 2, "auxiliary_minibatches": 2}),
}


def train_and_play(agent: str, env: Target) -> tuple[Any, Any, Any]:
    """The metrics of a block, then steps of the stochastic and of the greedy policy."""
    module, more = AGENTS[agent]
    config, params = module.Config(**SIZES, **more), env.default_params

    @jax.jit
    def run(key: Any) -> Any:
        state, metrics = module.train(config, env, params, key)
        carry = start(env, params, state.net.init(), key)
        act = partial(collect, env=env, params=params, carry=carry, key=key, steps=256)
        return metrics, act(ppo.stochastic(state.net))[1], act(module.greedy(state.net))[1]

    return jax.device_get(run(jax.random.key(0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "low", "high"),
    [
        ("ppo", 100.0, 200.0),
        pytest.param(
            *("ppg", np.array([-0.125, 100.0], np.float32), np.array([0.125, 228.0], np.float32)),
            marks=pytest.mark.full,
        ),
    ],
)
def test_environments_receive_legal_actions_and_all_of_them(agent: str, low: Any, high: Any):
    metrics, sample, greedy = train_and_play(agent, Target(low, high))
    assert metrics.finite.all()
    for steps in (sample, greedy):
        assert (steps.next_obs >= low).all() and (steps.next_obs <= high).all()
        assert np.isfinite(steps.reward).all()
    np.testing.assert_array_equal(greedy.action, greedy.next_obs)
    share = (sample.next_obs - low) / (high - low)
    assert (share.min(0) == 0).all() and (share.max(0) == 1).all()
    assert (np.std(share, 0) > 0.2).all()
    # The stored action is the sample, which has the density that is learned from.
    log_prob = jax.vmap(lambda policy, action: policy.log_prob(action))
    assert np.isfinite(log_prob(sample.extras.policy, sample.action)).all()
    np.testing.assert_array_equal(np.clip(sample.action, low, high), sample.next_obs)
    assert (sample.action > high).any() and (sample.action < low).any()


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 1.0, "low=1 and high=1"),
        (np.array([0.0, 2.0]), np.array([1.0, 1.0]), "low=2 and high=1 at index 1"),
        (np.nan, 1.0, "low=nan"),
        (np.array([0.0, 0.0]), np.array([1.0, np.nan]), "high=nan at index 1"),
    ],
)
def test_boxes_without_an_inside_are_refused(low: Any, high: Any, message: str):
    env = Target(low, high)
    for module, more in AGENTS.values():
        with pytest.raises(ValueError, match=f"`action_space` .* low < high .*{message}"):
            module.check(module.Config(**SIZES, **more), env, env.default_params)
    with pytest.raises(ValueError, match=f"`action_space` must have low < high .*{message}"):
        checks.environment(env, steps=0)
