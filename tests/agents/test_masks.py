"""Agents in tasks with illegal actions: they never take one, nor look ahead to one."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import AGENTS, clear, dqn, pqn, r2d2
from mmrl.agents.common import explore
from mmrl.agents.minibatches import Rollout
from mmrl.course import plain
from mmrl.envs import masked
from mmrl.envs.wrappers.observation import with_inputs
from mmrl.nets import MaskedNet
from mmrl.replay import sequences, tape
from mmrl.rollout import Transition
from mmrl.runs import Run, RunError, Setup
from tests.envs.test_masked import Doors, Params

ACTIONS, TIME = 4, 30


class Reading(eqx.Module):
    """Q(s, ·) = scale · the first numbers of an observation."""

    scale: Any

    def init(self) -> tuple[()]:
        return ()

    def __call__(self, state: Any, obs: Any, begin: Any) -> Any:
        return state, self.scale * obs[..., :ACTIONS]

    def lookahead(self, state: Any, obs: Any, begin: Any, next_obs: Any) -> Any:
        return state, *(self.scale * x[..., :ACTIONS] for x in (obs, next_obs))


NET, TARGET = (MaskedNet(Reading(jnp.float32(x)), ACTIONS, ACTIONS) for x in (1, 3))


def steps() -> Transition:
    """Episodes of ten steps, of noise, with masks; the last state of the second has none."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2, TIME + 1, 2 * ACTIONS)).astype(np.float32)
    mask = rng.random((2, TIME + 1, ACTIONS)) < 0.4
    mask[..., 0] |= ~mask.any(-1)
    features[..., ACTIONS:] = mask
    last = np.arange(TIME) % 10 == 9
    obs = features[0, :TIME]
    next_obs = np.where(last[:, None], features[1, 1:], features[0, 1:])
    next_obs[19, ACTIONS:] = 0
    rollout = Transition(
        obs=obs,
        action=np.argmax(rng.random((TIME, ACTIONS)) * obs[:, ACTIONS:], 1).astype(np.int32),
        reward=rng.normal(size=TIME).astype(np.float32),
        next_obs=next_obs,
        begin=np.roll(last, 1),
        terminated=last & (np.arange(TIME) != 9),
        truncated=last & (np.arange(TIME) == 9),
    )
    return jax.tree.map(jnp.asarray, rollout)


def best_legal(rollout: Any) -> np.ndarray:
    """Q⁻ of the best legal action after each step, by a loop; 0 where there is none."""
    values = np.zeros(TIME)
    for t in range(TIME):
        q, mask = np.split(np.asarray(rollout.next_obs[t]), 2)
        values[t] = max((3 * x for x, legal in zip(q, mask, strict=True) if legal), default=0)
    return values


def test_a_target_looks_ahead_to_legal_actions_only():
    """DQN's, of λ-returns, on a tape with padding behind it."""
    rollout, gamma, lam = steps(), 0.9, 0.7
    real = np.arange(TIME) < 25
    empty = jax.tree.map(
        lambda x: jnp.where(real.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros((), x.dtype)),
        rollout,
    )
    begin, nothing = empty.begin | ~real, jnp.zeros(TIME, jnp.int32)
    batch = tape.Sample(empty, jnp.asarray(begin), jnp.asarray(real), nothing, nothing)
    config = dataclasses.replace(plain.DQN, gamma=gamma, lam=lam, reward_scale=1.0)
    value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(dqn.loss))(
        NET, TARGET, batch, config
    )
    best, y, losses = best_legal(rollout), 0.0, []
    for t in reversed(range(25)):
        discount = 0.0 if rollout.terminated[t] else gamma
        ends = rollout.last[t] or t == 24
        y = rollout.reward[t] + discount * (best[t] if ends else (1 - lam) * best[t] + lam * y)
        error = abs(y - rollout.obs[t, rollout.action[t]])
        losses.append(error**2 / 2 if error < 1 else error - 0.5)
    np.testing.assert_allclose(value, np.mean(losses), rtol=1e-5)
    assert np.isfinite(gradient.net.scale)


def test_r2d2_looks_ahead_to_legal_actions_only():
    rollout, rows = steps(), 3
    windows = jax.tree.map(lambda x: x.reshape(rows, 10, *x.shape[1:]), rollout)
    flags = jnp.ones((rows, 10), bool)
    sample = sequences.Sample(
        windows, (), windows.begin, flags, flags, jnp.arange(rows), jnp.ones(rows)
    )
    config = dataclasses.replace(plain.R2D2, gamma=0.9, n_step=1, burn_in=0, rescale=False)
    (value, errors), gradient = eqx.filter_jit(
        eqx.filter_value_and_grad(partial(r2d2.loss, config=config), has_aux=True)
    )(NET, TARGET, sample)
    y = rollout.reward + 0.9 * (1 - rollout.terminated) * best_legal(rollout)
    expected = y - rollout.obs[np.arange(TIME), rollout.action]
    np.testing.assert_allclose(errors.ravel(), expected, rtol=1e-5, atol=1e-5)
    assert np.isfinite(value) and np.isfinite(gradient.net.scale)


def test_pqn_looks_ahead_to_legal_actions_only():
    config, data = pqn.Config(gamma=0.9, lam=0.0), steps()
    y = jax.jit(partial(pqn.targets, config, TARGET))(Rollout((), data))
    expected = data.reward + 0.9 * (1 - data.terminated) * best_legal(data)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_explorers_draw_each_legal_action_as_often():
    mask = jnp.array([False, True, False, True, True, False])
    q = jnp.where(mask, jnp.arange(6.0), -jnp.inf)

    @jax.jit
    def counts(epsilon: Any) -> Any:
        keys = jax.random.split(jax.random.key(0), 6000)
        actions = jax.vmap(lambda key: explore(q, epsilon, key, mask))(keys)
        return jnp.bincount(actions, length=6)

    np.testing.assert_allclose(counts(1.0) / 6000, mask / 3, atol=0.03)
    np.testing.assert_allclose(counts(0.3) / 6000, mask / 10 + 0.7 * (q == 4), atol=0.03)


# Whole agents


def strict(game: Any) -> Any:
    """Pays NaN for an illegal action: losses, rewards and returns are finite only without one."""

    class Strict(type(game)):
        def advance(self, u: Any, state: Any, action: Any, params: Any) -> Any:
            after, reward = super().advance(u, state, action, params)
            return after, jnp.where(self.action_mask(state, params)[action], reward, jnp.nan)

    return Strict()


SIZES: dict[str, dict[str, Any]] = {
    "dqn": {"block": 8, "rollout": 16},
    "r2d2": {"length": 3, "overlap": 0, "burn_in": 1, "n_step": 2, "capacity": 1200, "updates": 4},
    "ppo": {"rollout": 32, "block": 4},
    "ppg": {"rollout": 32, "block": 4},
    "clear": {"rollout": 12, "capacity": 480, "block": 30, "storage_dtype": "uint8"},
    "pqn": {"rollout": 32, "block": 8, "minibatches": 8, "epochs": 4},
}
CARDS: dict[str, dict[str, Any]] = {
    "dqn": {"block": 16, "rollout": 16, "lam": 0.0},
    "r2d2": {"length": 8, "overlap": 0, "burn_in": 0, "n_step": 1, "capacity": 3968, "updates": 4}
    | {"block": 16},
    "ppo": {"rollout": 64, "block": 4},
    "ppg": {"rollout": 64, "block": 12},
    "clear": {"rollout": 16, "capacity": 1280, "block": 60},
    "pqn": {"rollout": 64, "block": 12, "minibatches": 8, "epochs": 4},
}
STEPS = 25_000  # of an agent without an entry, which has the sizes of its `SMALL`


def settings(name: str, sizes: dict[str, dict[str, Any]], **more: Any) -> Any:
    """Return the settings of an agent with a small network, and with its entry in `sizes`."""
    agent, kind = AGENTS[name], {"memory": "none", "width": 16, "environments": 8, **more}
    if name not in sizes:
        return agent.Config(**{**kind, **agent.SMALL, "episodes": 128}).for_steps(STEPS)
    return agent.Config(**{**agent.SMALL, **kind, "episodes": 128, **sizes[name]})


@pytest.mark.full
@pytest.mark.parametrize("name", AGENTS)
def test_agents_solve_a_masked_card_game(name: str):
    """As well as the best player who does not count cards: an episode pays 0.497 on average."""
    agent, env = AGENTS[name], strict(masked.MaskedHigherLower())
    config = settings(name, CARDS, blocks=4, gamma=0.5)
    env, params = with_inputs(env, env.default_params, agent.OBSERVES), env.default_params
    train = jax.jit(jax.vmap(lambda key: agent.train(config, env, params, key)))
    _, metrics = train(jax.random.split(jax.random.key(0), 3))
    assert metrics.finite.all() and not metrics.stuck.any()
    # The deviation of a return is 0.12, of their mean 0.01.
    cards = masked.RANKS * 4
    better = np.abs(np.arange(masked.RANKS) * 2 - masked.RANKS + 1).mean() * 4 / (cards - 1)
    assert (metrics.returns[:, -1].mean(-1) > 0.9 * better * (cards - 1) / cards).all()


@pytest.mark.full
@pytest.mark.parametrize("name", AGENTS)
def test_agents_solve_the_masked_bandit_and_never_take_an_illegal_arm(name: str):
    agent, env = AGENTS[name], strict(masked.MaskedBandit())
    config = settings(name, SIZES, blocks=6)
    env, params = with_inputs(env, env.default_params, agent.OBSERVES), env.default_params
    train = jax.jit(jax.vmap(lambda key: agent.train(config, env, params, key)))
    state, metrics = train(jax.random.split(jax.random.key(0), 3))
    assert metrics.finite.all() and not metrics.stuck.any()  # acting and greedy
    # A return is the mean of 128 episodes, whose standard deviation is 0.5.
    assert (metrics.returns[:, -1].mean(-1) > env.unwrapped.optimal_return - 0.15).all()
    storage = {
        dqn: lambda: state.tape.steps,
        r2d2: lambda: state.sequences.steps,
        clear: lambda: state.reservoir.unrolls.steps,
    }
    if agent in storage:
        masks = storage[agent]()
        actions = np.ravel(masks.action)
        mask = np.reshape(masks.obs, (actions.size, -1))[:, 1 : 1 + masked.ARMS]
        real = mask.any(1)
        assert real.sum() > 100 and mask[real, actions[real]].all()


@pytest.mark.full
def test_a_run_names_the_step_without_a_legal_action(tmp_path: Any):
    config = dqn.Config(**dqn.SMALL, memory="none", width=8, rollout=8, block=1, blocks=2)
    setup = Setup((Doors(), Params(shut=3)), config=config, seeds=(0,))
    with pytest.raises(RunError, match=r"No action was legal in step 3 of an episode of .*Doors"):
        list(Run(setup, tmp_path / "run"))
