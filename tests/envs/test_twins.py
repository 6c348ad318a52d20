"""The state of a POPGym task is Markov: a state rebuilt from `state_obs` alone goes on alike."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import envs
from mmrl.checks.tracing import random_action
from mmrl.envs import popgym, wrappers
from mmrl.envs.popgym import bits, maze
from mmrl.envs.wrappers.base import bounds

STATES = 400


def counts(s: Any, total: int) -> Any:
    """Numbers of cards from shares of them."""
    return jnp.round(s * total).astype(jnp.int32)


def index(s: Any, none: int = -1) -> Any:
    """The number that is one-hot in the last axis, or `none`."""
    return jnp.where(jnp.any(s > 0, axis=-1), jnp.argmax(s, axis=-1), none).astype(jnp.int32)


def repeat_first(env: Any, s: Any) -> dict[str, Any]:
    left = counts(s[4:], 13 * env.num_decks)
    return {"first": index(s[:4]), "left": left, "time": env.num_steps - jnp.sum(left)}


def repeat_previous(env: Any, s: Any) -> dict[str, Any]:
    left = counts(s[-4:], 13 * env.num_decks)
    cards = index(s[:-4].reshape(-1, 4))
    return {"cards": cards, "left": left, "time": env.num_steps - jnp.sum(left)}


def autoencode(env: Any, s: Any) -> dict[str, Any]:
    cards, hand = index(s[:-3].reshape(-1, 4)), counts(s[-1], env.num_cards)
    time = jnp.where(s[-2] > 0, hand - 1, env.num_steps - hand)
    left = 13 * env.num_decks - jnp.sum(s[:-3].reshape(-1, 4), axis=0).astype(jnp.int32)
    return {"cards": cards, "left": left, "time": time}


def count_recall(env: Any, s: Any) -> dict[str, Any]:
    values, queries, value, query = s.reshape(4, -1)
    values, queries = (counts(1 - x, env.per_type) for x in (values, queries))
    time = env.num_steps - jnp.sum(values)
    value, query = index(value), index(query)
    return dict(time=time, value=value, query=query, values_left=values, queries_left=queries)


def higher_lower(env: Any, s: Any) -> dict[str, Any]:
    left = counts(1 - s[:13], 4 * env.num_decks)
    return {"card": index(s[13:]), "left": left, "time": env.num_steps - jnp.sum(left)}


def mine_sweeper(env: Any, s: Any) -> dict[str, Any]:
    return {"squares": index(s.reshape(-1, 3))}


def battleship(env: Any, s: Any) -> dict[str, Any]:
    ships, guesses = s[:-2].reshape(2, -1, 2)[..., 1] > 0
    return {"ships": ships, "guesses": guesses, "hit": s[-1] > 0}


def concentration(env: Any, s: Any) -> dict[str, Any]:
    n, m = env.cards, env.types
    first, second = index(s[-2 * n :].reshape(2, n), none=n)
    values, up = index(s[: n * m].reshape(n, m)), s[n * m : n * m + n] > 0
    return {"values": values, "up": up, "first": first, "second": second}


def cart_pole(env: Any, s: Any) -> dict[str, Any]:
    return dict(zip(("x", "x_dot", "theta", "theta_dot"), s, strict=True))


def pendulum(env: Any, s: Any) -> dict[str, Any]:
    return {"theta": jnp.arctan2(s[1], s[0]), "theta_dot": s[2]}


def bandit(env: Any, s: Any) -> dict[str, Any]:
    return {"odds": s}


def labyrinth(env: Any, s: Any) -> dict[str, Any]:
    side = env.side
    squares, place = s[: -2 * side].reshape(side, side, 5), index(s[-2 * side :].reshape(2, side))
    kind, walked = jnp.argmax(squares[..., :4], axis=-1), squares[..., 4] > 0

    def rows(board: Any) -> Any:
        return jnp.sum(board << jnp.arange(side)[None], axis=-1, dtype=jnp.uint32)

    def at(which: int) -> Any:
        return jnp.stack(jnp.divmod(jnp.argmax(kind.ravel() == which), side)).astype(jnp.int32)

    free = kind == 0
    return {
        "open": jnp.pad(rows(kind != 1) << bits.bits(1), 1),
        "walked": rows(walked),
        "free": jnp.sum(free, dtype=jnp.int32),
        "left": jnp.sum(free & ~walked, dtype=jnp.int32),
        "start": at(2),
        "goal": jnp.where(jnp.any(kind == 3), at(3), -1),
        "place": place,
        "plan": maze.blank(jnp.float32(0), env.size),
    }


DECODERS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "RepeatPrevious": repeat_previous,
    "RepeatFirst": repeat_first,
    "Autoencode": autoencode,
    "CountRecall": count_recall,
    "PositionOnlyCartPole": cart_pole,
    "NoisyPositionOnlyCartPole": cart_pole,
    "VelocityOnlyCartpole": cart_pole,
    "MultiarmedBandit": bandit,
    "MineSweeper": mine_sweeper,
    "HigherLower": higher_lower,
    "Battleship": battleship,
    "Concentration": concentration,
    "PositionOnlyPendulum": pendulum,
    "NoisyPositionOnlyPendulum": pendulum,
    "LabyrinthEscape": labyrinth,
    "LabyrinthExplore": labyrinth,
}
CHEAP = ("HigherLower", "RepeatPrevious")


def rebuilt(env: Any, decode: Any, state: Any) -> Any:
    """The state that `decode` makes of `state_obs`; all it does not contain is zero."""
    empty = jax.tree.map(jnp.zeros_like, state)
    return empty.replace(**decode(env, env.state_obs(state, env.default_params)))


def outcomes(env: Any, decode: Any, key: Any) -> Any:
    """(bounds kept, from the state, from the one rebuilt): state, reward, end of a next step."""
    params = env.default_params
    keys = jax.random.split(key, 4)

    def step(carry: Any, key: Any) -> Any:
        act, chance = jax.random.split(key)
        action = random_action(env.action_space(params), act)
        state = env.step(chance, carry, action, params)[1]
        return state, state

    walkers = jax.vmap(lambda k: env.reset(k, params)[1])(jax.random.split(keys[0], 8))
    every = jax.random.split(keys[1], (8, STATES // 8))
    states = jax.vmap(lambda s, k: jax.lax.scan(step, s, k)[1])(walkers, every)
    states = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states)

    def go_on(key: Any, state: Any) -> Any:
        act, chance = jax.random.split(key)
        action = random_action(env.action_space(params), act)
        u = jax.random.uniform(chance, (env.step_numbers,))
        after, reward = env.advance(u, state, action, params)
        return env.state_obs(after, params), reward, env.is_terminated(after, params)

    shown, space = jax.vmap(lambda s: env.state_obs(s, params))(states), env.state_space(params)
    low, high = (x[None] for x in bounds(space))
    inside = (low <= shown) & (shown <= high)
    again = jax.vmap(lambda s: rebuilt(env, decode, s))(states)
    every = jax.random.split(keys[2], STATES)
    return inside, *(jax.vmap(go_on)(every, x) for x in (states, again))


@pytest.mark.parametrize(
    "task", [x if x in CHEAP else pytest.param(x, marks=pytest.mark.full) for x in popgym.LEVELS]
)
def test_the_state_decides_what_comes_next(task: str):
    env = popgym.SPECS[f"popgym-{task}Easy-v0"]().twin()
    inside, wanted, found = jax.jit(lambda key: outcomes(env, DECODERS[task], key))(
        jax.random.key(len(task))
    )
    assert np.all(inside)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4 if "Pendulum" in task else 1e-6)


@pytest.mark.full
def test_every_level_has_a_twin_that_is_observed_by_its_state():
    for name in popgym.SPECS:
        env, params = envs.make(name, observe="state")
        obs, _ = jax.eval_shape(env.reset, jax.random.key(0), params)
        space = env.observation_space(params)
        bare, _ = envs.make(name)
        assert obs.shape == space.shape == bare.state_space(params).shape, name
        assert obs.dtype == space.dtype == jnp.float32


def test_the_twin_of_concentration_shows_every_card_also_inside_a_wrapper():
    bare, params = envs.make("popgym-ConcentrationEasy-v0")
    for env in (
        envs.make("popgym-ConcentrationEasy-v0", observe="state")[0],
        wrappers.StateObservation(wrappers.EpisodeStatistics(bare)),
    ):
        shown = env.reset(jax.random.key(0), params)[0][: 2 * bare.cards]
        assert np.sum(shown) == bare.cards
    assert not np.any(bare.state_obs(bare.reset(jax.random.key(0))[1], params))


@pytest.mark.parametrize(
    ("name", "observe", "words"),
    [
        ("CartPole-v1", "state", "`env` must have a method state_obs.*CartPole-v1"),
        (
            "probe-Memory-v0",
            "all",
            "`observe` must be one of observation, state, pixels; got 'all'",
        ),
    ],
)
def test_what_cannot_be_observed_is_refused(name: str, observe: str, words: str):
    with pytest.raises(ValueError, match=words):
        envs.make(name, observe=observe)
