"""Adapters: a small game with the interface of each library, against the game in Python."""

import dataclasses
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import checks, envs, rollout
from mmrl.envs import adapters
from mmrl.envs.wrappers import ActionMask, Trial
from mmrl.runs.content import content
from tests.helpers import foreign

WORKERS, STEPS = 4, 40
REAL = {
    "navix": ("navix", "Navix-DoorKey-5x5-v0"),
    "xland": ("xminigrid", "MiniGrid-DoorKey-5x5"),
    "jumanji": ("jumanji", "Snake-v1"),
    "craftax": ("craftax", "Craftax-Classic-Symbolic-v1"),
    "popgym-arcade": ("popgym_arcade", "CartPoleEasy"),
    "gymnasium": ("gymnasium", "Acrobot-v1"),
}


@pytest.fixture(params=adapters.LIBRARIES)
def game(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The small game by the name that each library would have for it."""
    library = request.param
    home = f"mmrl.envs.adapters.of_{adapters.LIBRARIES[library]}"
    for name, module in foreign.LIBRARIES[library].items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, home, raising=False)
    small = type(gymnasium.spec("Acrobot-v1"))("Small-v0", "tests.helpers.foreign:Gymnasium")
    small.max_episode_steps = foreign.LIMIT
    monkeypatch.setitem(gymnasium.registry, "Small-v0", small)
    with warnings.catch_warnings(record=True, action="always") as records:
        env, _ = envs.make(f"{library}:Small-v0")
    assert bool(records) == (library == "gymnasium")
    yield env
    sys.modules.pop(home, None)


def test_an_adapter_plays_its_librarys_game(game: Any):
    """Observations, rewards, both ends, final observations and begin flags."""
    params = game.default_params
    assert params.max_steps_in_episode == foreign.LIMIT and game.num_actions == foreign.ACTIONS

    def policy(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
        return state, jax.random.randint(key, (), 0, game.num_actions)

    def one(key: Any) -> Any:
        carry = rollout.start(game, params, None, key)
        return rollout.collect(policy, game, params, carry, jax.random.fold_in(key, 1), STEPS)[1]

    tape = jax.device_get(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), WORKERS)))
    assert tape.terminated.any() and tape.truncated.any()
    for w in range(WORKERS):
        final, reward, terminated, truncated = zip(*foreign.plain(tape.action[w]), strict=True)
        np.testing.assert_array_equal(tape.next_obs[w], final)
        np.testing.assert_array_equal(tape.reward[w], reward)
        np.testing.assert_array_equal(tape.terminated[w], terminated)
        np.testing.assert_array_equal(tape.truncated[w], truncated)
        last = np.array(terminated) | np.array(truncated)
        np.testing.assert_array_equal(tape.begin[w], [True, *last[:-1]])
        np.testing.assert_array_equal(tape.obs[w][1:][~last[:-1]], np.array(final)[:-1][~last[:-1]])
        assert not tape.obs[w][tape.begin[w]].any()


@pytest.mark.full
def test_an_adapter_keeps_the_rules(game: Any):
    checks.environment(game)


def test_names_of_libraries_are_not_modules_of_the_user():
    assert adapters.is_adapter("navix:Navix-DoorKey-5x5-v0") and not adapters.is_adapter(
        "my_games:navix"
    )
    assert content("navix:Navix-DoorKey-5x5-v0") == content("navix:Navix-DoorKey-5x5-v0")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "navix", None)
    with pytest.raises(ValueError, match=r"installed library.*pip install 'mmrl-jax\[navix\]'"):
        envs.make("navix:Navix-DoorKey-5x5-v0")
    with pytest.raises(ValueError, match=r"`env_id` must .* gymnasium .* got 'gymnasium:No-v9"):
        envs.make("gymnasium:No-v9")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("library", REAL)
def test_a_real_environment_keeps_the_rules(library: str):
    module, name = REAL[library]
    pytest.importorskip(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks.environment(*envs.make(f"{library}:{name}"))


def test_trials_need_an_environment_in_jax(game: Any):
    if not game.python:
        assert Trial(game, 2).episodes == 2
    else:
        with pytest.raises(ValueError, match="`env` must be written in JAX"):
            Trial(game, 2)


class MaskedView(NamedTuple):
    """An observation with a mask, as jumanji has it."""

    numbers: Any
    action_mask: Any


class MaskedGame(foreign.Jumanji):
    """jumanji's game with a mask: after an action, that action is not legal."""

    def _nest(self, step: foreign.Step) -> foreign.Step:
        legal = jnp.arange(foreign.ACTIONS) != step.observation[1].astype(jnp.int32)
        return dataclasses.replace(step, observation=MaskedView(step.observation, legal))


def test_the_mask_of_jumanji_is_the_mask_of_agents(monkeypatch: pytest.MonkeyPatch):
    module = foreign.module("jumanji", make=lambda name: MaskedGame())
    monkeypatch.setitem(sys.modules, "jumanji", module)
    monkeypatch.delitem(sys.modules, "mmrl.envs.adapters.of_jumanji", raising=False)
    env, params = envs.make("jumanji:Small-v0")
    wrapper = ActionMask(env)
    obs, state = wrapper.reset_env(jax.random.key(0), params)
    for action in (2, 0, 1):
        step = wrapper.step_env(jax.random.key(0), state, jnp.int32(action), params)
        obs, state = step[:2]
        expected = np.asarray(obs[1]).astype(int) != np.arange(foreign.ACTIONS)
        np.testing.assert_array_equal(obs[-foreign.ACTIONS :], expected)
        assert expected.sum() == foreign.ACTIONS - 1
    sys.modules.pop("mmrl.envs.adapters.of_jumanji", None)
