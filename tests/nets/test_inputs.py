"""Running normalization of observations: its statistics, its laws, and every agent that has it."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mmrl import envs
from mmrl.agents import AGENTS, find
from mmrl.agents.checks import normalized_features
from mmrl.envs import wrappers
from mmrl.envs._gymnax import spaces
from mmrl.envs.wrappers import ObservationWrapper
from mmrl.nets import Net, inputs
from mmrl.nets.inputs import Normalizer

RNG = np.random.default_rng(0)
SAMPLES = RNG.normal(size=(7, 50, 3)).astype(np.float32)
FIRST = jnp.asarray(SAMPLES[0, 0])


def statistics_of(samples: Any) -> Normalizer:
    return Normalizer((True,) * samples.shape[-1]).count(jnp.asarray(samples))


@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (30, 1), (30_000, 100), (0, 1e-3), (0, 1e4)])
def test_outputs_do_not_depend_on_offset_and_scale(offset, scale):
    plain, other = statistics_of(SAMPLES), statistics_of(offset + scale * SAMPLES)
    x = SAMPLES[0, :5]
    outputs = jax.vmap(other)(jnp.asarray(offset + scale * x))
    np.testing.assert_allclose(outputs, jax.vmap(plain)(jnp.asarray(x)), atol=1e-3)


def test_statistics_are_those_of_all_samples_in_any_pieces():
    whole, pieces = statistics_of(SAMPLES), Normalizer((True,) * 3)
    for piece in (SAMPLES[:2], SAMPLES[2:3], SAMPLES[3:]):
        pieces = pieces.count(jnp.asarray(piece))
    rows = SAMPLES.reshape(-1, 3).astype(np.float64)
    for module in (whole, pieces):
        center, scale = module.units
        np.testing.assert_allclose(center, rows.mean(0), atol=1e-6)
        np.testing.assert_allclose(scale, 1 / rows.std(0), rtol=1e-5)


def test_a_constant_feature_gives_zero_and_an_outlier_is_cut():
    samples = np.concatenate([np.full((7, 50, 1), 12.3, np.float32), SAMPLES[..., :1]], -1)
    outputs = statistics_of(samples)(jnp.array([12.3, 1e6]))
    np.testing.assert_array_equal(outputs, [0, inputs.MOST])


@pytest.mark.parametrize("huge", [1e20, jnp.inf, jnp.nan])
def test_later_observations_outweigh_a_huge_one(huge):
    module = Normalizer((True,)).count(jnp.array([[huge], [1.0]]))
    assert all(jnp.isfinite(x).all() for x in module.moments)
    assert jnp.isfinite(module(jnp.array([2.5]))).all()


def test_features_that_are_not_chosen_pass_unchanged():
    module = Normalizer((False, True, False)).count(jnp.asarray(30 + SAMPLES))
    outputs = module(jnp.array([1e6, 30.0, -5.0]))
    assert outputs[0] == 1e6 and outputs[2] == -5 and abs(outputs[1]) < 1
    np.testing.assert_array_equal(Normalizer((True,) * 3)(FIRST), FIRST)


@pytest.mark.full
def test_gradient_steps_do_not_change_statistics():
    net = Net.make("none", 3, 2, width=8, normalized=(True,) * 3, key=jax.random.key(0))
    net = inputs.count(net, jnp.asarray(SAMPLES))
    loss = lambda net: jnp.sum(net.step((), FIRST, jnp.array(True))[1] ** 2)  # noqa: E731
    gradient = eqx.filter_grad(loss)(net)
    rule = optax.adam(0.1)
    weights = eqx.filter(net, eqx.is_inexact_array)
    update, _ = rule.update(gradient, rule.init(weights), weights)
    after = eqx.apply_updates(net, update)
    before, now = (x.encoder.layers[0].moments for x in (net, after))
    for a, b in zip(before, now, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(
        net.encoder.layers[1].linear.weight, after.encoder.layers[1].linear.weight
    )


class Shift(ObservationWrapper):
    """o ↦ offset + o, in a space without bounds."""

    def __init__(self, env: Any, offset: float, bound: float = jnp.inf):
        super().__init__(env)
        self.offset, self.bound = offset, bound

    def view(self, key: Any, obs: Any, state: Any, cause: Any, params: Any) -> Any:
        return obs + self.offset

    def observation_space(self, params: Any) -> Any:
        shape = self.env.observation_space(params).shape
        return spaces.Box(-self.bound, self.bound, shape, jnp.float32)


@dataclasses.dataclass
class Flags:
    """What `normalized_features` reads of a config."""

    normalize_observations: bool | None = None


PROBE, PARAMS = envs.make("probe-Match-v0")


@pytest.mark.parametrize(
    ("env", "features"),
    [
        (PROBE, ()),
        (Shift(PROBE, 0.0), (True, True)),
        (Shift(PROBE, 0.0, 11.0), (True, True)),
        (Shift(PROBE, 0.0, 9.0), ()),
        (wrappers.BeginFlag(Shift(PROBE, 30.0)), (True, True, False)),
        (wrappers.PreviousReward(PROBE), ()),
    ],
)
def test_features_are_chosen_by_bounds_and_by_random_steps(env, features):
    assert normalized_features(Flags(), env, PARAMS) == features
    assert normalized_features(Flags(False), env, PARAMS) == ()


@pytest.mark.parametrize(
    "env_id",
    ["CartPole-v1", "Catch-bsuite"]
    + [f"popgym-{x}Easy-v0" for x in ("RepeatFirst", "RepeatPrevious", "PositionOnlyCartPole")],
)
def test_the_default_tasks_are_seen_as_they_are(env_id):
    env, params = envs.make(env_id)
    env = env if len(env.observation_space(params).shape) == 1 else wrappers.FlattenObservation(env)
    assert normalized_features(Flags(), env, params) == ()


@pytest.mark.parametrize(
    ("wrap", "shown"),
    [
        (lambda env: env, ()),
        (wrappers.PreviousAction, ()),
        (lambda env: wrappers.TimeLimit(env, 9), ()),
        (lambda env: wrappers.MaskObservation(env, [True, False, True, False]), ()),
        (lambda env: Shift(env, 30_000.0), (True,) * 4),
        (lambda env: wrappers.TimeLimit(Shift(env, 30_000.0), 9), (True,) * 4),
    ],
)
def test_cart_pole_is_seen_as_it_is_unless_a_wrapper_changes_its_numbers(wrap, shown):
    env = wrap(envs.make("CartPole-v1")[0])
    assert normalized_features(Flags(), env, env.default_params) == shown


SIZES: dict[str, Any] = {"memory": "lru", "width": 8, "environments": 2, "block": 2, "blocks": 1}
SIZES |= {"episodes": 2, "rollout": 4, "normalize_observations": None}
OWN: dict[str, dict[str, Any]] = {
    "dqn": {"updates": 1, "batch": 8, "capacity": 64},
    "r2d2": {"updates": 1, "length": 4, "burn_in": 2, "n_step": 2, "batch": 2, "capacity": 64},
    "ppo": {"epochs": 1, "minibatches": 1, "proximal": "ewma"},
    "ppg": {"policy_iterations": 1, "minibatches": 1, "auxiliary_minibatches": 1}
    | {"auxiliary_epochs": 1},
    "clear": {"capacity": 64},
}


@pytest.mark.full_except("dqn")
@pytest.mark.parametrize("name", AGENTS)
def test_all_networks_of_an_agent_have_counted_every_observation(name):
    agent, env = find(name), Shift(PROBE, 30.0)
    sizes = {**SIZES, **OWN[name]} if name in OWN else {**agent.SMALL, **SIZES}
    config = agent.Config(**sizes)

    @jax.jit
    def run(key: Any) -> Any:
        state = agent.init(config, env, PARAMS, key)
        return state, agent.block(config, env, PARAMS, state)[0]

    before, after = run(jax.random.key(0))
    steps = config.environments * config.rollout * config.block
    # R2D2 acts `n_step` steps before it learns, which are counted with the others later on.
    for state, number in ((before, config.environments), (after, config.environments + steps)):
        nets = [
            part
            for path, part in jax.tree_util.tree_leaves_with_path(
                state, is_leaf=lambda x: isinstance(x, Normalizer)
            )
            if isinstance(part, Normalizer)
            and "optimizer" not in jax.tree_util.keystr(path)
            and "auxiliary" not in jax.tree_util.keystr(path)
        ]
        least = {"dqn": 2, "r2d2": 3, "ppo": 4, "ppg": 2, "clear": 2}
        assert len(nets) >= least.get(name, 1)
        for module in nets:
            np.testing.assert_array_equal(module.moments[0], number)
            center, scale = module.units
            np.testing.assert_allclose(center, 30.5, atol=0.5)
            assert (np.asarray(scale) >= 1.9).all()
