"""Recall and leaks: against agents whose memory is written by hand, and plain loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.inspect import Recall, Subject, leak, recall
from mmrl.inspect.recalling import _donors, last_above
from mmrl.inspect.report import _recall
from tests.helpers.inspection import Window, noise, record, window

KEYS = range(10)


def round_values(obs: np.ndarray, kind: str) -> np.ndarray:
    return np.asarray(jnp.asarray(obs).astype(kind).astype(jnp.float32))


@pytest.mark.full_except("4-float32", "4-bfloat16")
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("steps", [1, 4])
def test_a_memory_of_k_steps_reads_k(steps: int, kind: str):
    for seed in KEYS:
        agent = window(steps, seed)
        result = recall(agent, record(agent, round_values(noise(seed), kind)), jax.random.key(seed))
        assert abs(result.reach()["flips"] - steps) <= 1
        assert result.reach()["gradient"] == result.reach()["change"] == steps
        # Beyond the window the effects are exactly 0.
        for sizes in (result.gradient, result.change, result.flips):
            assert (sizes[:steps] > 0).all() and not sizes[steps:].any()
        assert result.ignores_memory == (steps == 1)


@pytest.fixture(scope="module")
def case() -> tuple[Subject, Any, Any]:
    """An agent with a window of three, episodes of several lengths, and its recall."""
    agent = window(3, 0)
    episodes = record(agent, noise(0, 4, 7), lengths=[7, 4, 7, 2])
    return agent, episodes, recall(agent, episodes, jax.random.key(1), swaps=3)


def replay_values(agent: Subject, obs: np.ndarray) -> np.ndarray:
    """Values of a window, by a plain loop."""
    weights = np.asarray(agent.step.weights, np.float64)
    past, values = np.zeros(weights.shape[:2]), []
    for now in obs:
        past = np.concatenate([past[1:], now[None]])
        values.append(np.tensordot(past, weights, 2))
    return np.array(values)


def test_an_intervention_is_another_tape_that_is_read_again(case: Any):
    agent, episodes, result = case
    donor, step = _donors(episodes.mask, jax.random.key(1), 3)
    change, flips, pairs = np.zeros((3, 7))
    for swap, e, i in np.ndindex(3, 4, 7):
        obs = episodes.obs[e].copy()
        obs[i] = episodes.obs[donor[swap, e, i], step[swap, e, i]]
        new, old = replay_values(agent, obs), replay_values(agent, episodes.obs[e])
        for t in range(i, int(episodes.mask[e].sum())):
            action = old[t].argmax()
            change[t - i] += abs(new[t, action] - old[t, action])
            flips[t - i] += new[t].argmax() != action
            pairs[t - i] += 1
    np.testing.assert_array_equal(result.pairs, pairs)
    np.testing.assert_allclose(result.change, change / pairs, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.flips, flips / pairs, rtol=1e-6)
    # From the step of the choice and the lag to the observation.
    later = [np.nanmean([result.flips_at[t, t - i] for t in range(i + 1, 7)]) for i in range(6)]
    np.testing.assert_allclose(result.by_observation(), np.array([*later, np.nan]))


def test_another_episode_gives_the_observation_of_a_running_step(case: Any):
    running = case[1].mask
    donor, step = _donors(running, jax.random.key(0), 5)
    assert (donor != np.arange(4)[None, :, None]).all()
    assert running[donor, step].all() and (step <= np.arange(7)).all()
    assert (step == np.arange(7)).all()  # two episodes have all steps


def test_the_gradient_of_the_present_observation_is_that_of_one_step(case: Any):
    agent, episodes, result = case
    sizes = []
    for e, t in np.argwhere(episodes.mask):
        state = np.zeros((3, 2), np.float32)
        for now in episodes.obs[e, :t]:
            state = np.concatenate([state[1:], now[None]])

        def value(obs: Any, state: Any = state, action: Any = episodes.action[e, t]) -> Any:
            return agent.step(state, obs, jnp.array(False))[1][action]

        sizes.append(np.linalg.norm(jax.grad(value)(episodes.obs[e, t])))
    assert result.gradient[0] == pytest.approx(np.mean(sizes), rel=1e-5)
    steps = episodes.mask.sum(0)
    whole = (result.gradient_at[:, 0] * steps).sum() / steps.sum()
    assert whole == pytest.approx(result.gradient[0], rel=1e-5)


def test_only_own_numbers_are_replaced_and_equal_observations_do_not_count():
    agent = window(2, 0)
    episodes = record(agent, noise(0))
    none = recall(agent, episodes, jax.random.key(0), own=np.zeros(2, bool))
    assert not none.pairs.any() and np.isnan(none.flips).all() and not none.gradient.any()
    episodes.obs[:, :, 0] = 1.0  # the number that is replaced is the same everywhere
    same = recall(agent, record(agent, episodes.obs), jax.random.key(0), own=np.arange(2) == 0)
    assert not same.pairs.any() and same.gradient[1] > 0


@pytest.mark.full
def test_fewer_lags_are_the_first_ones(case: Any):
    agent, episodes, result = case
    few = recall(agent, episodes, jax.random.key(1), swaps=3, lags=2)
    for name in ("gradient", "change", "flips", "pairs"):
        np.testing.assert_allclose(getattr(few, name), getattr(result, name)[:2], rtol=1e-5)


@pytest.mark.full
def test_a_continuous_action_changes_and_does_not_flip():
    discrete = window(2, 0)
    agent = Subject(discrete.start, discrete.step, continuous=True)
    result = recall(agent, record(agent, noise(0)), jax.random.key(0))
    assert np.isnan(result.flips).all() and result.reach()["change"] == 2
    # The gradient is the norm over all numbers of the action.
    weights = np.asarray(discrete.step.weights)
    np.testing.assert_allclose(result.gradient[0], np.linalg.norm(weights[-1]), rtol=1e-5)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("reset", "steps", "leaks"),  # a NaN stays in the window for its length
    [("select", [], []), ("multiply", [], [0, 1, 2]), ("never", [0, 1, 2], [0, 1, 2])],
)
def test_a_leak_across_begin_is_named(reset: str, steps: list[int], leaks: list[int], kind: str):
    for seed in KEYS:
        agent = window(4, seed, reset=reset)
        result = leak(agent, record(agent, round_values(noise(seed, time=8), kind)))
        assert np.flatnonzero(result.change).tolist() == steps
        assert np.flatnonzero(result.not_a_number).tolist() == leaks
        assert result.steps.tolist() == leaks


def test_the_reach_is_that_of_effects_above_a_share():
    assert last_above(np.array([1.0, 0.5, 0.009]), 0.01) == 2
    assert last_above(np.array([0.1, np.nan, -0.2, 0.0]), 0.01) == 3
    assert last_above(np.zeros(4), 0.01) == last_above(np.zeros(0), 0.01) == 0


def test_rare_flips_do_not_decide_the_reach():
    """A window of four steps, and a residue that changes one action in a hundred."""
    rng, pairs = np.random.default_rng(0), np.arange(192, 64, -2)
    square, exact = np.zeros((64, 64)), 0
    for _ in range(100):
        shares = np.where(np.arange(64) < 4, 0.5, 0.01)
        flips = rng.binomial(pairs, shares) / pairs
        result = Recall(flips, flips, flips, pairs, square, square)
        reach = result.reach(0.02)  # 2 % of the largest is the size of the residue
        assert reach["flips"] >= 4 and reach["change"] > 30 and not result.ignores_memory
        exact += reach["flips"] == 4
    assert exact >= 90


def test_an_effect_in_few_pairs_counts_if_it_is_large():
    flips, pairs = np.array([0.0, 0.5, 1.0]), np.array([90, 60, 30])
    square = np.zeros((3, 3))
    assert Recall(flips, flips, flips, pairs, square, square).reach()["flips"] == 3
    none = Recall(flips, 0 * flips, 0 * flips, pairs, square, square)
    assert none.reach()["flips"] == 0 and none.ignores_memory


def test_earlier_inputs_that_a_run_appends_count_as_memory():
    """The agent answers with the previous action that it saw one step earlier."""
    rng = np.random.default_rng(0)
    actions = np.eye(3)[rng.integers(3, size=(8, 12))]
    obs = np.concatenate([noise(0, obs=1), actions], axis=2).astype(np.float32)
    agent = Subject(jnp.zeros((2, 4)), Window(jnp.zeros((2, 4, 3)).at[0, 1:].set(jnp.eye(3))))
    result = _recall(
        agent, record(agent, obs), jax.random.key(0), np.arange(4) == 0, np.ones(4, bool)
    )
    assert result["reach"]["flips"] == 0 and not result["ignores_memory"]
    assert result["all_inputs"]["flips"] == 2


def test_a_mask_is_not_replaced():
    """The values of actions that the mask forbids are -∞, and a new mask would forbid others."""
    rng = np.random.default_rng(0)
    legal = np.ones((8, 12, 3))
    legal[np.arange(8)[:, None], np.arange(12), rng.integers(3, size=(8, 12))] = 0
    obs = np.concatenate([noise(0, obs=2), legal], axis=2).astype(np.float32)
    plain = Window(jnp.zeros((2, 5, 3)).at[:, :2].set(window(2, 0).step.weights))

    def step(state: Any, obs: Any, begin: Any) -> tuple[Any, Any]:
        state, values = plain(state, obs, begin)
        return state, jnp.where(obs[2:] > 0.5, values, -jnp.inf)

    agent, flags = Subject(jnp.zeros((2, 5)), step), np.arange(5) < 2
    result = _recall(agent, record(agent, obs), jax.random.key(0), flags, flags)
    assert result["reach"]["change"] == 2 and result["all_inputs"] is None
    assert np.isfinite(np.array(result["change"][:2], float)).all()


def test_memory_is_not_ignored_if_no_earlier_observation_was_replaced():
    agent = window(3, 0)
    short = record(agent, noise(0, 8, 2), lengths=[1] * 8)
    assert not recall(agent, short, jax.random.key(0)).ignores_memory
    flags = np.ones(2, bool)
    result = _recall(agent, short, jax.random.key(0), flags, flags)
    assert not result["ignores_memory"] and not any(result["pairs"][1:])


def test_sizes_are_refused(case: Any):
    agent, episodes, _ = case
    for name in ("lags", "swaps"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1; got 0"):
            recall(agent, episodes, jax.random.key(0), **{name: 0})
