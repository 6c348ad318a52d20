"""popgym 1.0.7 as the judge: our episodes are replayed in the original with the same chance.

Black box: an episode of ours tells by its observations which cards were dealt; the original gets a
deck in that order and the same actions, and must then say the same at every step. Where chance
does not show in the observations (the mines, the arms' odds, the pole's velocity) it is read off
`state_obs`.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import popgym.envs as originals
from popgym.core.deck import Deck
from popgym.envs.repeat_previous import RepeatPrevious
from popgym.wrappers import DiscreteAction

Choose = Callable[[Any, Any, Any], Any]


class Episode(NamedTuple):
    """One whole episode as numpy arrays; `obs` has one row more than the rest."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    state: np.ndarray | None


def task_and_level(id: str) -> tuple[str, str]:
    """Return ("RepeatFirst", "Easy") for "popgym-RepeatFirstEasy-v0"."""
    match = re.fullmatch(r"popgym-(\w+)(Easy|Medium|Hard|Paper)-v0", id)
    assert match is not None, id
    return match[1], match[2]


def original(id: str) -> gymnasium.Env:
    """The task as popgym has it, with multi-discrete actions raveled row by row."""
    task, level = task_and_level(id)
    if level == "Paper":
        return RepeatPrevious(num_decks=2, k=10)
    # The class has a capital P; the id that popgym registers has not.
    with warnings.catch_warnings():  # popgym's labyrinths warn that they need no memory
        warnings.simplefilter("ignore", DeprecationWarning)
        env = getattr(originals, task.replace("OnlyCartpole", "OnlyCartPole") + level)()
    return env if isinstance(env.action_space, gymnasium.spaces.Box) else DiscreteAction(env)


# ------------------------------------------------------------------ acting in ours


def choose_randomly(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """Any action, equally likely."""
    return jax.random.randint(key, (), 0, env.num_actions)


def markov_state(env: Any, state: Any) -> Any:
    """What popgym's `get_state` is compared with."""
    return env.state_obs(state, env.default_params)


class Rollout(NamedTuple):
    """Steps of many workers, [time, worker, …]."""

    obs: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    final: Any  # the observation before a reset
    state: Any


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 6))
def roll(
    env: Any,
    choose: Any,
    workers: int,
    steps: int,
    with_state: bool,
    key: Any,
    record: Any = markov_state,
) -> Rollout:
    """Play `steps` steps in parallel; without `with_state`, the states are None."""
    params = env.default_params
    skill = jnp.maximum(0.0, 1 - 5 * jnp.arange(workers) / workers)

    def step(carry: Any, key: Any) -> Any:
        obs, state = carry
        keys = jax.random.split(key, (2, workers))
        action = jax.vmap(partial(choose, env))(skill, state, keys[0])
        out = jax.vmap(env.step, (0, 0, 0, None))(keys[1], state, action, params)
        states = jax.vmap(partial(record, env))(state) if with_state else None
        step = Rollout(obs, action, *out[2:5], out[5]["final_observation"], states)
        return out[:2], step

    first, *rest = jax.random.split(key, 2)
    carry = jax.vmap(env.reset, (0, None))(jax.random.split(first, workers), params)
    return jax.lax.scan(step, carry, jax.random.split(rest[0], steps))[1]


def episodes(steps: Any) -> Iterator[Episode]:
    """Cut a rollout into its whole episodes, worker by worker."""
    obs, action, reward, terminated, truncated, final, state = jax.tree.map(np.asarray, steps)
    last = terminated | truncated
    # Inside an episode the next observation is the final one of the step before.
    np.testing.assert_allclose(obs[1:][~last[:-1]], final[:-1][~last[:-1]], atol=1e-6)
    for w in range(last.shape[1]):
        ends = np.flatnonzero(last[:, w]) + 1
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            at = (slice(begin, end), w)
            rows = np.concatenate([obs[begin : begin + 1, w], final[at]])
            states = None if state is None else state[at]
            yield Episode(rows, action[at], reward[at], terminated[at], truncated[at], states)


# ------------------------------------------------------------------ the same chance in theirs


def stack(deck: Deck, kinds: np.ndarray, hand: np.ndarray) -> None:
    """Make the next `deck.reset` stack the deck so that the kinds in `hand` come in turn."""
    np.testing.assert_array_equal(np.sort(kinds), np.sort(hand), "not a deck, dealt to its end")
    order = np.empty(deck.num_cards, int)
    order[np.argsort(hand, kind="stable")] = np.argsort(kinds, kind="stable")

    def reset(shuffle: bool = True, rng: Any = None) -> None:
        Deck.reset(deck, shuffle=False)
        deck.idx = order[::-1].copy()  # popgym deals from the end

    deck.reset = reset


class FixedGenerator:
    """A generator that returns what it was loaded with."""

    def __init__(self, value: Any):
        self.value = value

    def choice(self, *args: Any, **kwargs: Any) -> Any:
        return self.value

    def random(self, size: int | None = None, dtype: Any = None) -> Any:
        return self.value


def nothing(env: Any, episode: Episode, t: int = 0) -> None:
    pass


# ------------------------------------------------------------------ the verdict


def flat(space: Any, value: Any, memo: dict) -> np.ndarray:
    """`gymnasium.spaces.flatten` as float32, remembered for discrete values."""
    if isinstance(space, gymnasium.spaces.Box):
        return np.asarray(value, np.float32).ravel()
    name = tuple(value.tolist()) if isinstance(value, np.ndarray) else value
    if name not in memo:
        memo[name] = gymnasium.spaces.flatten(space, value).astype(np.float32)
    return memo[name]


def equal_states(mine: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_allclose(mine, other, atol=1e-6)


def exactly(mine: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_array_equal(mine, other)


def state_without_decode(env: Any, s: Any) -> dict[str, Any]:
    """Stand for a missing `decode`."""
    raise NotImplementedError("`decode` must rebuild the state; add it to the task's row.")


class Original(NamedTuple):
    """How to replay a task in popgym, and compare it."""

    before_reset: Callable[[Any, Episode], None] = nothing  # gives the original our chance
    before_step: Callable[[Any, Episode, int], None] = nothing
    choose: Choose = choose_randomly  # reaches every end of an episode
    workers: int = 16  # whose episodes are compared
    states: Callable[[np.ndarray, np.ndarray], None] = equal_states
    obs: Callable[[np.ndarray, np.ndarray], None] = exactly
    rewards: Callable[[np.ndarray, np.ndarray], None] = exactly
    record: Callable[[Any, Any], Any] = markov_state  # what an episode keeps of our states
    decode: Callable[[Any, Any], dict[str, Any]] = (
        state_without_decode  # fields of our state from `state_obs`
    )
    more: Callable[[Any], int] = lambda env: 0  # elements that our state adds to the original's
    sizes_tell: bool = False  # every argument of a level shows in the task's sizes


def replay(row: Original, env: Any, episode: Episode, states: bool = False) -> Episode:
    """The same episode as the original `env` plays it, with its own states if asked for."""
    bare, memo = env.unwrapped, {}
    row.before_reset(bare, episode)
    obs, rows, memory = [flat(env.observation_space, env.reset()[0], memo)], [], []
    for t, action in enumerate(episode.action.tolist()):
        if states:
            space, state = env.get_wrapper_attr("state_space"), bare.get_state()
            memory.append(gymnasium.spaces.flatten(space, state).astype(np.float32))
        row.before_step(bare, episode, t)
        after, *flags = env.step(action)[:4]
        obs.append(flat(env.observation_space, after, memo))
        rows.append(flags)
    reward, terminated, truncated = (np.array(column) for column in zip(*rows, strict=True))
    state = np.stack(memory) if states else None
    return Episode(
        np.stack(obs), episode.action, reward.astype(np.float32), terminated, truncated, state
    )
