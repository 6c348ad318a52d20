"""Vector environments of gymnasium: every autoreset mode plays the episodes of single games."""

import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mmrl import checks, envs, rollout
from mmrl.envs import wrappers
from mmrl.envs.adapters.of_gymnasium import Gymnasium
from mmrl.envs.adapters.pools import flat
from tests.helpers import foreign

WORKERS, STEPS = 4, 40


class Own(SyncVectorEnv):
    """A vector environment that cannot reset single games."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert options is None
        return super().reset(seed=seed)


KINDS = {
    "disabled": (SyncVectorEnv, AutoresetMode.DISABLED),
    "same": (SyncVectorEnv, AutoresetMode.SAME_STEP),
    "next": (SyncVectorEnv, AutoresetMode.NEXT_STEP),
    "own, same": (Own, AutoresetMode.SAME_STEP),
    "own, next": (Own, AutoresetMode.NEXT_STEP),
}


def make(kind: str) -> tuple[Any, Any]:
    vector, mode = KINDS[kind]
    env = Gymnasium(lambda n: vector([foreign.Gymnasium] * n, autoreset_mode=mode))
    return env, env.default_params


def expected_steps(actions: Any, extra: bool) -> Iterator[foreign.Row]:
    """Steps of single games; with `extra`, a step with reward 0 follows each episode."""
    left = list(actions)
    while left:
        ends = [any(row[2:]) for row in foreign.plain(left)]
        count = ends.index(True) + 1 if any(ends) else len(left)
        yield from foreign.plain(left[:count])
        del left[:count]
        if extra and left:
            del left[:1]
            yield [0, 0], 0.0, True, False


def play(env: Any, params: Any) -> Any:
    def policy(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
        return state, jax.random.randint(key, (), 0, env.num_actions)

    def one(key: Any) -> Any:
        carry = rollout.start(env, params, None, key)
        return rollout.collect(policy, env, params, carry, jax.random.fold_in(key, 1), STEPS)[1]

    # Two axes: seeds and their environments.
    keys = jax.random.split(jax.random.key(0), (2, WORKERS // 2))
    tape = jax.device_get(jax.jit(jax.vmap(jax.vmap(one)))(keys))
    return jax.tree.map(lambda x: x.reshape(WORKERS, *x.shape[2:]), tape)


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_environment_plays_the_episodes_of_its_games(kind: str):
    env, params = make(kind)
    tape = play(env, params)
    assert tape.terminated.any() and tape.truncated.any()
    for w in range(WORKERS):
        rows = list(expected_steps(tape.action[w], kind.endswith("next")))
        final, reward, terminated, truncated = map(np.array, zip(*rows, strict=True))
        np.testing.assert_array_equal(tape.next_obs[w], final)
        np.testing.assert_array_equal(tape.reward[w], reward)
        np.testing.assert_array_equal(tape.terminated[w], terminated)
        np.testing.assert_array_equal(tape.truncated[w], truncated)
        last = terminated | truncated
        np.testing.assert_array_equal(tape.begin[w], [True, *last[:-1]])
        np.testing.assert_array_equal(tape.obs[w][1:][~last[:-1]], final[:-1][~last[:-1]])
        # In the mode NextStep, an additional episode shows the last observation once more.
        extra = tape.begin[w] & (tape.reward[w] == 0)
        assert extra.any() == kind.endswith("next")
        assert not tape.obs[w][tape.begin[w] & ~extra].any()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", ["disabled", "same", "next"])
def test_a_shorter_time_limit_resets_single_games(kind: str, wrapped: bool):
    env, params = make(kind)
    env = wrappers.TimeLimit(env, 2) if wrapped else env
    tape = play(env, params.replace(max_steps_in_episode=2))
    assert tape.truncated[:, 1].all() and tape.begin[:, 2].all() and not tape.obs[:, 2].any()
    assert not tape.terminated.any()


def test_a_vector_environment_that_cannot_reset_one_game_keeps_its_time_limit():
    env, params = make("own, next")
    with pytest.raises(Exception, match="`max_steps_in_episode` must not be less than"):
        play(env, params.replace(max_steps_in_episode=2))


def test_games_are_stepped_together_and_forward():
    env, params = make("disabled")
    _, states = jax.vmap(env.reset_env, (0, None))(jax.random.split(jax.random.key(0)), params)
    step = jax.vmap(env.step_env, (None, 0, None, None))
    first, again = (step(jax.random.key(0), states, 1, params) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    for bad in (jax.tree.map(lambda x: x[:1], first[1]), jax.tree.map(lambda x: x[::-1], first[1])):
        with pytest.raises(Exception, match="must be stepped in the process"):
            jax.block_until_ready(step(jax.random.key(0), bad, 1, params))
    with pytest.raises(Exception, match="can only be played forward"):
        jax.block_until_ready(step(jax.random.key(0), states, 2, params))


class Cards(gymnasium.Env):
    """A game in which only the card that lies on the table may be played."""

    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Dict(
        z=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        action_mask=gymnasium.spaces.MultiBinary(3),
        card=gymnasium.spaces.Discrete(3),
    )

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.show(), {}

    def step(self, action: Any) -> Any:
        reward = float(action == self.card)
        self.time += 1
        return self.show(), reward, self.time == 5, False, {}

    def show(self) -> Any:
        self.card = int(self.np_random.integers(3))
        numbers = np.float32([self.time / 5, -1])
        return {"z": numbers, "action_mask": np.eye(3, dtype=np.int8)[self.card], "card": self.card}


def test_a_mask_in_a_dictionary_restricts_actions():
    env = Gymnasium(lambda n: SyncVectorEnv([lambda: flat(Cards())] * n, autoreset_mode="Disabled"))
    space = env.observation_space()
    assert space.spaces["obs"].shape == (5,) and space.spaces["action_mask"].shape == (3,)
    masked = wrappers.ActionMask(env)

    def policy(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
        return state, jax.numpy.argmax(obs[-3:])

    @jax.jit
    @jax.vmap
    def one(key: Any) -> Any:
        carry = rollout.start(masked, masked.default_params, None, key)
        return rollout.collect(policy, masked, masked.default_params, carry, key, STEPS)[1]

    tape = jax.device_get(one(jax.random.split(jax.random.key(0), WORKERS)))
    assert (tape.reward == 1).all() and tape.terminated[:, 4::5].all()
    np.testing.assert_array_equal(tape.obs[..., :3], tape.obs[..., 5:])  # the card, and its mask
    clock = np.float32(np.arange(STEPS) % 5 / 5)
    np.testing.assert_array_equal(tape.obs[..., 3], np.tile(clock, (WORKERS, 1)))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_environment_keeps_the_rules(kind: str):
    checks.environment(*make(kind), steps=foreign.LIMIT + 2)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_cart_pole_plays_as_a_single_game(mode: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env, params = envs.make("gymnasium:CartPole-v1", vectorization_mode=mode)
    checks.environment(env, params, steps=100)
    tape, game = play(env, params), gymnasium.make("CartPole-v1").unwrapped
    for w in range(WORKERS):
        real = tape.reward[w] != 0
        assert tape.terminated[w][real].any() and real.all() == (mode == "sync")
        game.reset()
        for t in np.flatnonzero(real):
            game.state = tuple(tape.obs[w, t].astype(float))
            game.steps_beyond_terminated = None
            obs, _, terminated, *_ = game.step(tape.action[w, t])
            np.testing.assert_allclose(tape.next_obs[w, t], obs, rtol=1e-5, atol=1e-5)
            assert terminated == tape.terminated[w, t]
