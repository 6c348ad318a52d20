"""The POPGym tasks against popgym 1.0.7, step by step; their chance, and what states decide."""

import itertools
import math
import os
import random
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mazelib.generate.HuntAndKill import HuntAndKill
from popgym.core import maze as originals_maze
from popgym.envs.repeat_previous import RepeatPrevious as OriginalRepeatPrevious
from scipy import stats

from mmrl.checks.tracing import random_action
from mmrl.envs.popgym import LEVELS, SPECS, bits, labyrinth, maze
from mmrl.envs.popgym.cartpole import State as PoleState
from mmrl.envs.popgym.minesweeper import subset
from mmrl.envs.wrappers.base import bounds
from tests.envs import popgym_oracle as oracle

ALPHA = 1e-3  # chance that a right implementation fails one statistical test; seeds are fixed
WORKERS = int(os.environ.get("MMRL_WORKERS", "0"))  # 512: a thousand episodes of each id
EASY = [id for id in SPECS if "Easy" in id]


# ------------------------------------------------------------------ the originals


def choose_balance(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """With probability `skill` what keeps the pole up, else any action."""
    lean = state.theta + 0.3 * state.theta_dot + 0.05 * state.x + 0.1 * state.x_dot
    random = oracle.choose_randomly(env, skill, state, key)
    return jnp.where(jax.random.uniform(key) < skill, (lean > 0).astype(jnp.int32), random)


def choose_square(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """Any square, but rarely a mine with high `skill`: games are also won, or run out of time."""
    wait = jnp.where(skill > 0.9, 0.0, 0.3)  # only who never looks twice can win in time
    weight = jnp.stack([jnp.float32(1), (1 - skill) ** 2, wait])
    return jax.random.categorical(key, jnp.log(weight + 1e-9)[state.squares])


def stack_suits(env: Any, episode: oracle.Episode) -> None:
    n = env.deck.num_cards
    oracle.stack(env.deck, env.deck.suits_idx, episode.obs[:n, -4:].argmax(1))


def stack_values_and_queries(env: Any, episode: oracle.Episode) -> None:
    m = env.num_distinct_cards
    oracle.stack(env.value_deck, env.deck_idx_type, episode.obs[:, :m].argmax(1))
    oracle.stack(env.query_deck, env.deck_idx_type, episode.obs[:, m:].argmax(1))


def lay_mines(env: Any, episode: oracle.Episode) -> None:
    mines = np.flatnonzero(episode.state[0].reshape(-1, 3)[:, 1])
    assert len(mines) == env.num_mines
    env.np_random = oracle.FixedGenerator(mines)


def set_odds(env: Any, episode: oracle.Episode) -> None:
    env.np_random = oracle.FixedGenerator(episode.state[0])


def toss_coin(env: Any, episode: oracle.Episode, t: int) -> None:
    env.np_random = oracle.FixedGenerator(1.0 - episode.obs[t + 1, 1])


def place_pole(env: Any, episode: oracle.Episode, t: int) -> None:
    env.state, env.steps_beyond_terminated = episode.state[t].astype(float), None


def choose_guess(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """A square that was not tried, and with high `skill` one with a ship."""
    ships, guesses = (bits.flags(x, env.size).ravel() for x in (state.ships, state.guesses))
    fresh = jnp.where(guesses, 0.5 * (1 - skill), 1.0)
    return jax.random.categorical(key, jnp.log(fresh * jnp.where(ships, 1, 1 - skill) + 1e-9))


def choose_pair(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """With probability `skill` a card that is known to make a pair, or an unknown one."""
    place, candidates = jnp.arange(env.cards), (state.values >= 0) & ~state.up
    waiting = (state.first < env.cards) & (state.second == env.cards) & candidates[state.first]
    equal = candidates & (state.values == state.values[state.first]) & (place != state.first)
    counts = jnp.bincount(jnp.where(candidates, state.values, env.types), length=env.types + 1)
    pairs = candidates & (counts[state.values] >= 2)
    good = jnp.where(waiting, equal, pairs)
    good = jnp.where(jnp.any(good), good, (state.values < 0))
    best = jax.random.categorical(key, jnp.log(good + 1e-9))
    random = oracle.choose_randomly(env, skill, state, key)
    return jnp.where(jax.random.uniform(key) < skill, best, random)


def choose_torque(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """Any torque, also outside of the space."""
    return jax.random.uniform(key, (1,), minval=-3, maxval=3)


def choose_left_hand(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """In half of the mazes along the left wall, else any action."""
    turns = jnp.array([labyrinth.DOWN, labyrinth.UP, labyrinth.LEFT, labyrinth.RIGHT])
    # Before the first step it looks away from the border.
    row, column = state.place
    inward = jnp.where(row == 0, 3, jnp.where(column == 0, 1, jnp.where(row > column, 2, 0)))
    ahead = jnp.where(state.action == labyrinth.NONE, inward, state.action)
    ways = jnp.stack([turns[ahead], ahead, turns[turns[turns[ahead]]], turns[turns[ahead]]])
    moves = jnp.array([(0, -1), (0, 1), (-1, 0), (1, 0)])[ways]
    free = [bits.has(state.open, *(state.place + move + 1)) for move in moves]
    follow = ways[jnp.argmax(jnp.stack(free))]
    random = oracle.choose_randomly(env, skill, state, key)
    return jnp.where(jnp.sum(state.goal + state.start) // 2 % 2 == 0, follow, random)


def stack_ranks(env: Any, episode: oracle.Episode) -> None:
    oracle.stack(env.deck, env.deck.ranks_idx, episode.obs.argmax(1))


def hide_ships(env: Any, episode: oracle.Episode) -> None:
    ships = episode.state[0][: 2 * env.board_size**2].reshape(env.board_size, -1, 2)[..., 1]
    env.place_ship = lambda board, length: ships.astype(np.int8)


def lay_cards(env: Any, episode: oracle.Episode) -> None:
    """Put the cards that were turned over where they were, and the others anywhere else."""
    n, types = env.deck.num_cards, env.facedown_card
    values = episode.state[-1][: n * types].reshape(n, types)
    last = episode.obs[-1].reshape(n, types + 1)[:, :types]
    values = np.where(values.any(1), values.argmax(1), np.where(last.any(1), last.argmax(1), -1))
    rest = np.bincount(env.deck_idx_type) - np.bincount(values[values >= 0], minlength=types)
    values[values < 0] = np.repeat(np.arange(types), rest)
    oracle.stack(env.deck, env.deck_idx_type, values[::-1])


def swing(env: Any, episode: oracle.Episode, t: int) -> None:
    cos, sin, speed = episode.state[t].astype(float)
    env.state = np.array([np.arctan2(sin, cos), speed])


def record_labyrinth(env: Any, state: Any) -> Any:
    """The state, and what popgym's does not show: the walls and the entrances."""
    walls = ~bits.flags(state.open[1:-1] >> jnp.uint32(1), env.side)
    obs = env.state_obs(state, env.default_params)
    return jnp.concatenate([obs, walls.ravel(), state.start, state.goal])


class FixedMaze:
    """A maze of mazelib's that is given, not generated."""

    def __init__(self, walls: np.ndarray, start: np.ndarray, end: np.ndarray):
        self.grid, self.start, self.end = walls, tuple(start), tuple(end)

    def generate(self) -> None:
        self.grid[self.start] = self.grid[self.end] = 1

    def generate_entrances(self, **kwargs: Any) -> None:
        pass


def build_maze(env: Any, episode: oracle.Episode) -> None:
    side, state = 2 * env.maze_dims[0] + 1, episode.state[0].astype(int)
    walls = state[-4 - side * side : -4].reshape(side, side)
    originals_maze.Maze = lambda: FixedMaze(walls.astype(np.int8), state[-4:-2], state[-2:])


def same_squares(mine: np.ndarray, other: np.ndarray) -> None:
    """popgym's state of a labyrinth hides squares that were not stood on, and has no place."""
    *kinds, visits = np.moveaxis(mine[:, : other.shape[1]].reshape(len(mine), -1, 5), -1, 0)
    squares = np.stack([*(x * visits for x in kinds), 1 - visits], axis=-1)
    oracle.equal_states(squares.reshape(other.shape), other)


def same_shares(mine: np.ndarray, other: np.ndarray) -> None:
    """popgym's state of HigherLower does not have the rank in view."""
    oracle.equal_states(mine[:, : other.shape[1]], other)


def same_table(mine: np.ndarray, other: np.ndarray) -> None:
    """popgym's state also shows cards that were not dealt yet, and marks no card by a place."""
    n = {260: 52, 520: 104, 832: 52}[mine.shape[1]]
    cards, places = slice(0, mine.shape[1] - 3 * n), slice(mine.shape[1] - 2 * n, None)
    types = (mine.shape[1] - 3 * n) // n
    hands = np.repeat(mine[:, cards].reshape(len(mine), n, types).any(-1), types, axis=1)
    other[:, cards] *= hands
    for half in np.split(np.arange(mine.shape[1])[places], 2):
        none = ~mine[:, half].any(1)
        assert (other[none][:, half].argmax(1) == types).all()
        other[np.ix_(none, half)] = 0
    oracle.equal_states(mine, other)


def nearly(mine: np.ndarray, other: np.ndarray) -> None:
    """Swings of a pendulum in 32 and in 64 bits."""
    np.testing.assert_allclose(mine, other, atol=2e-5)


def nearly_after_first(mine: np.ndarray, other: np.ndarray) -> None:
    nearly(mine[1:], other[1:])


def same_dealt_cards(mine: np.ndarray, other: np.ndarray) -> None:
    """popgym's state of Autoencode also shows the cards not dealt yet."""
    n = mine.shape[1] // 4
    hands = mine[:, : 4 * n].reshape(len(mine), n, 4).any(-1)
    np.testing.assert_array_equal(hands.sum(1), np.minimum(1 + np.arange(len(mine)), n))
    other[:, : 4 * n] *= np.repeat(hands, 4, axis=1)
    oracle.equal_states(mine, other)


def same_after_first(mine: np.ndarray, other: np.ndarray) -> None:
    """The first observation and state are the original's own draw."""
    oracle.equal_states(mine[1:], other[1:])


def noisy(mine: np.ndarray, other: np.ndarray) -> None:
    """The noise of each has a law, which has a test below."""


# ------------------------------------------------------------------ states, from what twins observe


def whole(s: Any, total: int) -> Any:
    """Numbers of cards from shares of them."""
    return jnp.round(s * total).astype(jnp.int32)


def index(s: Any, none: int = -1) -> Any:
    """The number that is one-hot in the last axis, or `none`."""
    return jnp.where(jnp.any(s > 0, axis=-1), jnp.argmax(s, axis=-1), none).astype(jnp.int32)


def decode_repeat_first(env: Any, s: Any) -> dict[str, Any]:
    rest = whole(s[4:], 13 * env.num_decks)
    return {"first": index(s[:4]), "left": rest, "time": env.num_steps - jnp.sum(rest)}


def decode_repeat_previous(env: Any, s: Any) -> dict[str, Any]:
    rest = whole(s[-4:], 13 * env.num_decks)
    cards = index(s[:-4].reshape(-1, 4))
    return {"cards": cards, "left": rest, "time": env.num_steps - jnp.sum(rest)}


def decode_autoencode(env: Any, s: Any) -> dict[str, Any]:
    cards, hand = index(s[:-3].reshape(-1, 4)), whole(s[-1], env.num_cards)
    time = jnp.where(s[-2] > 0, hand - 1, env.num_steps - hand)
    rest = 13 * env.num_decks - jnp.sum(s[:-3].reshape(-1, 4), axis=0).astype(jnp.int32)
    return {"cards": cards, "left": rest, "time": time}


def decode_count_recall(env: Any, s: Any) -> dict[str, Any]:
    values, queries, value, query = s.reshape(4, -1)
    values, queries = (whole(1 - x, env.per_type) for x in (values, queries))
    time = env.num_steps - jnp.sum(values)
    value, query = index(value), index(query)
    return dict(time=time, value=value, query=query, values_left=values, queries_left=queries)


def decode_higher_lower(env: Any, s: Any) -> dict[str, Any]:
    rest = whole(1 - s[:13], 4 * env.num_decks)
    return {"card": index(s[13:]), "left": rest, "time": env.num_steps - jnp.sum(rest)}


def decode_mine_sweeper(env: Any, s: Any) -> dict[str, Any]:
    return {"squares": index(s.reshape(-1, 3))}


def decode_battleship(env: Any, s: Any) -> dict[str, Any]:
    squares = (s[:-2].reshape(2, env.size, env.size, 2)[..., 1] > 0).astype(jnp.uint32)
    columns = jnp.arange(env.size, dtype=jnp.uint32)[None, None]
    ships, guesses = jnp.sum(squares << columns, axis=-1, dtype=jnp.uint32)
    left = jnp.sum(bits.count(ships & ~guesses))
    return {"ships": ships, "guesses": guesses, "hit": s[-1] > 0, "left": left}


def decode_concentration(env: Any, s: Any) -> dict[str, Any]:
    n, m = env.cards, env.types
    first, second = index(s[-2 * n :].reshape(2, n), none=n)
    values, up = index(s[: n * m].reshape(n, m)), s[n * m : n * m + n] > 0
    down = jnp.sum(~up, dtype=jnp.int32)
    return {"values": values, "up": up, "down": down, "first": first, "second": second}


def decode_cart_pole(env: Any, s: Any) -> dict[str, Any]:
    return dict(zip(("x", "x_dot", "theta", "theta_dot"), s, strict=True))


def decode_pendulum(env: Any, s: Any) -> dict[str, Any]:
    return {"theta": jnp.arctan2(s[1], s[0]), "theta_dot": s[2]}


def decode_bandit(env: Any, s: Any) -> dict[str, Any]:
    return {"odds": s}


def decode_labyrinth(env: Any, s: Any) -> dict[str, Any]:
    side = env.side
    squares, place = s[: -2 * side].reshape(side, side, 5), index(s[-2 * side :].reshape(2, side))
    kind, visits = jnp.argmax(squares[..., :4], axis=-1), squares[..., 4] > 0

    def rows(board: Any) -> Any:
        return jnp.sum(board << jnp.arange(side)[None], axis=-1, dtype=jnp.uint32)

    def at(which: int) -> Any:
        return jnp.stack(jnp.divmod(jnp.argmax(kind.ravel() == which), side)).astype(jnp.int32)

    free = kind == 0
    return {
        "open": jnp.pad(rows(kind != 1) << bits.bits(1), 1),
        "trail": rows(visits),
        "free": jnp.sum(free, dtype=jnp.int32),
        "left": jnp.sum(free & ~visits, dtype=jnp.int32),
        "start": at(2),
        "goal": jnp.where(jnp.any(kind == 3), at(3), -1),
        "place": place,
        "plan": maze.blank(jnp.float32(0), env.size),
    }


# ------------------------------------------------------------------ each task

POLE = oracle.Original(
    decode=decode_cart_pole,
    before_step=place_pole,
    choose=choose_balance,
    workers=100,
    states=same_after_first,
    obs=same_after_first,
    sizes_tell=True,
)
PENDULUM = oracle.Original(
    decode=decode_pendulum,
    before_step=swing,
    choose=choose_torque,
    states=nearly_after_first,
    obs=nearly_after_first,
    rewards=nearly,
    sizes_tell=True,
)
LABYRINTH = oracle.Original(
    build_maze,
    decode=decode_labyrinth,
    choose=choose_left_hand,
    workers=2,
    states=same_squares,
    record=record_labyrinth,
    more=lambda env: 2 * env.side,
    sizes_tell=True,
)
ORIGINALS = {
    "RepeatPrevious": oracle.Original(stack_suits, sizes_tell=True, decode=decode_repeat_previous),
    "RepeatFirst": oracle.Original(stack_suits, sizes_tell=True, decode=decode_repeat_first),
    "Autoencode": oracle.Original(
        stack_suits, states=same_dealt_cards, sizes_tell=True, decode=decode_autoencode
    ),
    "CountRecall": oracle.Original(
        stack_values_and_queries, sizes_tell=True, decode=decode_count_recall
    ),
    "PositionOnlyCartPole": POLE,
    "NoisyPositionOnlyCartPole": POLE._replace(obs=noisy, sizes_tell=False),
    "MultiarmedBandit": oracle.Original(set_odds, toss_coin, sizes_tell=True, decode=decode_bandit),
    "MineSweeper": oracle.Original(
        lay_mines, choose=choose_square, workers=500, decode=decode_mine_sweeper
    ),
    "HigherLower": oracle.Original(
        stack_ranks,
        states=same_shares,
        sizes_tell=True,
        decode=decode_higher_lower,
        more=lambda env: 13,
    ),
    "Battleship": oracle.Original(
        hide_ships, choose=choose_guess, workers=50, sizes_tell=True, decode=decode_battleship
    ),
    "Concentration": oracle.Original(
        lay_cards,
        choose=choose_pair,
        states=same_table,
        sizes_tell=True,
        decode=decode_concentration,
    ),
    "VelocityOnlyCartpole": POLE,
    "PositionOnlyPendulum": PENDULUM,
    "NoisyPositionOnlyPendulum": PENDULUM._replace(obs=noisy, sizes_tell=False),
    "LabyrinthEscape": LABYRINTH,
    "LabyrinthExplore": LABYRINTH,
}


def rollout(env: Any, task: str, workers: int, lengths: int, seed: int = 0) -> Any:
    """`lengths` times the longest episode, of every worker."""
    row, steps = ORIGINALS[task], lengths * env.num_steps
    key = jax.random.key(len(task) + 1000 * seed)
    return oracle.roll(env, row.choose, workers, steps, True, key, row.record)


def compare(task: str, env: Any, judge: Any, workers: int, seed: int = 0) -> list[oracle.Episode]:
    """Play, replay two episodes of each worker in the original, the first six with their states."""
    row, steps = ORIGINALS[task], rollout(env, task, workers, 2, seed)
    episodes = list(itertools.islice(oracle.episodes(steps), 2 * workers))
    assert len(episodes) == 2 * workers
    for i, ours in enumerate(episodes):
        theirs = oracle.replay(row, judge, ours, states=i < 6)
        for field in ("terminated", "truncated"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), field)
        row.rewards(ours.reward, theirs.reward)
        row.obs(ours.obs, theirs.obs)
        if i < 6:
            row.states(ours.state, theirs.state)
    return episodes


# What our policies end in both ways, by the task itself and by its time limit.
TWO_ENDS = ("Battleship", "Concentration")

# Where the sizes tell all arguments and the outer levels are right, so is Medium.
KNOWN_BY_SIZES = {(task, "Medium") for task, row in ORIGINALS.items() if row.sizes_tell}
TO_COMPARE = [x for x in SPECS if oracle.task_and_level(x) not in KNOWN_BY_SIZES]


@pytest.mark.full_except(*[x for x in TO_COMPARE if "Hard" not in x])
@pytest.mark.parametrize("id", SPECS if WORKERS else TO_COMPARE)
def test_equals_the_original(id):
    """With `MMRL_WORKERS`, every id in as many rounds as it takes, each with another seed."""
    task, _ = oracle.task_and_level(id)
    workers, env, judge = ORIGINALS[task].workers, SPECS[id](), oracle.original(id)
    seeds = range(max(1, math.ceil(WORKERS / workers)))
    episodes = [e for seed in seeds for e in compare(task, env, judge, workers, seed)]
    ends = {(bool(e.terminated[-1]), bool(e.truncated[-1])) for e in episodes}
    if task == "MineSweeper":
        wins = [e for e in episodes if (e.reward > 0).sum() == SPECS[id]().num_steps]
        assert ends == {(True, False), (False, True)} and len(wins) > 5
    if task in TWO_ENDS or "CartPole" in task:
        assert ends >= {(True, False), (False, True)}


@pytest.mark.parametrize(("num_decks", "k"), [(1, 1), (1, 2), (2, 5), (1, 51)])
def test_repeat_previous_with_other_arguments_equals_the_original(num_decks, k):
    env = SPECS["popgym-RepeatPreviousEasy-v0"](num_decks=num_decks, k=k)
    judge = OriginalRepeatPrevious(num_decks=num_decks, k=k)
    compare("RepeatPrevious", env, judge, workers=3)


@pytest.mark.parametrize("id", SPECS)
def test_sizes_equal_the_original(id):
    env, judge = SPECS[id](), oracle.original(id)
    bare = judge.unwrapped
    assert env.default_params.max_steps_in_episode == env.num_steps
    if hasattr(bare, "max_episode_length"):  # a labyrinth ends a step earlier
        assert env.num_steps == bare.max_episode_length - ("Labyrinth" in id)
    if isinstance(judge.action_space, gymnasium.spaces.Box):
        space, other = env.action_space(), judge.action_space
        assert space.shape == other.shape and (space.low, space.high) == (other.low, other.high)
    else:
        assert env.num_actions == env.action_space().n == judge.action_space.n
    assert env.observation_space().shape == (gymnasium.spaces.flatdim(judge.observation_space),)
    more = ORIGINALS[oracle.task_and_level(id)[0]].more(env)
    assert env.state_space().shape == (gymnasium.spaces.flatdim(bare.state_space) + more,)


def test_ids():
    assert {oracle.task_and_level(id)[1] for id in SPECS} == {"Easy", "Medium", "Hard", "Paper"}
    paper = SPECS["popgym-RepeatPreviousPaper-v0"]()
    assert (paper.num_decks, paper.k) == (2, 10)


# ------------------------------------------------------------------ the state is Markov

CHEAP = ("HigherLower", "RepeatPrevious")
STATES = 400


def rebuild(env: Any, decode: Any, state: Any) -> Any:
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

    obs, space = jax.vmap(lambda s: env.state_obs(s, params))(states), env.state_space(params)
    low, high = (x[None] for x in bounds(space))
    inside = (low <= obs) & (obs <= high)
    again = jax.vmap(lambda s: rebuild(env, decode, s))(states)
    every = jax.random.split(keys[2], STATES)
    return inside, *(jax.vmap(go_on)(every, x) for x in (states, again))


@pytest.mark.parametrize(
    "task", [x if x in CHEAP else pytest.param(x, marks=pytest.mark.full) for x in LEVELS]
)
def test_the_state_decides_what_comes_next(task: str):
    env = SPECS[f"popgym-{task}Easy-v0"]().twin()
    inside, expected, again = jax.jit(lambda key: outcomes(env, ORIGINALS[task].decode, key))(
        jax.random.key(len(task))
    )
    assert np.all(inside)
    for x, y in zip(again, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4 if "Pendulum" in task else 1e-6)


# ------------------------------------------------------------------ the law of chance


def chi_square(cells: np.ndarray, expected: np.ndarray) -> float:
    """The p-value of cell counts against probabilities."""
    return stats.chisquare(cells, expected * cells.sum()).pvalue


def pair_counts(first: np.ndarray, second: np.ndarray, types: int) -> np.ndarray:
    return np.bincount(first * types + second, minlength=types * types)


def test_cards_come_as_from_a_shuffled_deck():
    env = SPECS["popgym-RepeatFirstEasy-v0"]()
    steps = oracle.roll(env, oracle.choose_randomly, 4000, 102, False, jax.random.key(1))
    obs, final = np.asarray(steps.obs), np.asarray(steps.final)
    cards = np.concatenate([obs[:51], final[50:51], obs[51:], final[101:]]).argmax(-1)
    for deck in (cards[:52], cards[52:]):
        assert all(((deck == suit).sum(0) == 13).all() for suit in range(4))
    # Two neighbours in a deck: P(i, i) = 13/52 12/51, P(i, j) = 13/52 13/51.
    expected = np.where(np.eye(4), 12, 13).ravel() / (4 * 51)
    for t in (0, 25, 50, 52, 102):
        assert chi_square(pair_counts(cards[t], cards[t + 1], 4), expected) > ALPHA
    # The first card of the next deck does not depend on the last of this one.
    assert chi_square(pair_counts(cards[51], cards[52], 4), np.full(16, 1 / 16)) > ALPHA


def test_the_next_deck_does_not_depend_on_this_one():
    env = SPECS["popgym-RepeatFirstEasy-v0"]()
    params = env.default_params.replace(max_steps_in_episode=1)
    state = env.reset(jax.random.key(0), params)[1]
    keys = jax.random.split(jax.random.key(1), 5000)
    obs, *_, info = jax.vmap(env.step, (0, None, None, None))(keys, state, 0, params)
    last, first = np.asarray(info["final_observation"]).argmax(1), np.asarray(obs).argmax(1)
    expected = np.outer(np.asarray(state.left) / 51, np.full(4, 1 / 4)).ravel()
    assert chi_square(pair_counts(last, first, 4), expected) > ALPHA


@pytest.mark.slow
def test_values_and_queries_are_independent():
    env = SPECS["popgym-CountRecallMedium-v0"]()
    obs = np.asarray(
        oracle.roll(env, oracle.choose_randomly, 3000, 30, False, jax.random.key(2)).obs
    )
    values, queries = obs[..., :4].argmax(-1), obs[..., 4:].argmax(-1)
    for t in (0, 10, 29):
        assert chi_square(pair_counts(values[t], queries[t], 4), np.full(16, 1 / 16)) > ALPHA


@pytest.mark.parametrize(("size", "mines"), [(16, 2), (6, 3), (5, 4)])
def test_every_set_of_mines_is_equally_likely(size, mines):
    numbers = jax.random.uniform(jax.random.key(3), (12_000, mines))
    subsets = np.sort(jax.jit(jax.vmap(subset, (0, None)), static_argnums=1)(numbers, size), axis=1)
    kinds = list(itertools.combinations(range(size), mines))
    index = {kind: i for i, kind in enumerate(kinds)}
    counts = np.bincount([index[tuple(row)] for row in subsets.tolist()], minlength=len(kinds))
    assert chi_square(counts, np.full(len(kinds), 1 / len(kinds))) > ALPHA


def test_arms_pay_with_their_odds():
    env = SPECS["popgym-MultiarmedBanditEasy-v0"]()
    steps = oracle.roll(env, oracle.choose_randomly, 400, 201, True, jax.random.key(4))
    _, action, reward, _, truncated, _, odds = jax.tree.map(np.asarray, steps)
    assert truncated[199].all() and truncated.sum() == 400
    for first in (0, 200):  # also after the automatic reset
        assert stats.kstest(odds[first].ravel(), "uniform").pvalue > ALPHA
    assert (odds[:200] == odds[0]).all() and (odds[200] != odds[0]).all()
    p = np.take_along_axis(odds, action[..., None], axis=2)[..., 0]
    for low in np.arange(0, 1, 0.2):
        group = (p >= low) & (p < low + 0.2)
        z = ((reward[group] > 0) - p[group]).sum() / np.sqrt((p * (1 - p))[group].sum())
        assert 2 * stats.norm.sf(abs(z)) > ALPHA


def test_poles_start_as_in_the_original():
    id = "popgym-PositionOnlyCartPoleEasy-v0"
    env, judge = SPECS[id](), oracle.original(id)
    start = jax.jit(jax.vmap(env.reset_env, (0, None)))
    states = start(jax.random.split(jax.random.key(5), 2000), env.default_params)[1]
    ours = np.stack([states.x, states.x_dot, states.theta, states.theta_dot], axis=1)
    theirs = [(judge.reset(seed=i), judge.unwrapped.get_state())[1] for i in range(2000)]
    for axis, column in enumerate(np.array(theirs).T):
        assert stats.ks_2samp(ours[:, axis], column).pvalue > ALPHA
    np.testing.assert_allclose(np.corrcoef(ours.T), np.eye(4), atol=0.1)


@pytest.mark.parametrize("level", ["Easy", "Medium", "Hard"])
def test_noise_has_the_law_of_the_original(level):
    id = f"popgym-NoisyPositionOnlyCartPole{level}-v0"
    env, judge = SPECS[id](), oracle.original(id)
    steps = rollout(env, "NoisyPositionOnlyCartPole", 100, 2)
    obs, state = np.asarray(steps.obs), np.asarray(steps.state)[..., [0, 2]]
    begin = np.concatenate(
        [np.ones((1, 100), bool), np.asarray(steps.terminated | steps.truncated)[:-1]]
    )
    theirs = np.array([judge.reset(seed=i)[0] for i in range(2000)])
    high = judge.observation_space.high
    np.testing.assert_allclose(np.abs(obs[..., 1]).max(), high[1], rtol=1e-6)
    np.testing.assert_allclose(env.observation_space().high, high, rtol=1e-6)
    # At reset both start from the same law; popgym's noise is the other sample.
    for axis in range(2):
        assert stats.ks_2samp(obs[begin][:, axis], theirs[:, axis]).pvalue > ALPHA
    # On the way: z is standard normal on x, which is never clipped; θ is, as often as it should.
    z = ((obs - state) / env.sigma)[~begin]
    assert stats.kstest(z[:, 0], "norm").pvalue > ALPHA
    assert abs(z[:, 0].std() - 1) < 0.02 and abs(z[:, 0].mean()) < 0.02
    theta, at_limit = state[~begin][:, 1], np.abs(obs[~begin][:, 1]) >= high[1] * (1 - 1e-6)
    p = stats.norm.sf((high[1] - theta) / env.sigma) + stats.norm.cdf(
        (-high[1] - theta) / env.sigma
    )
    assert abs(at_limit.sum() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum()) + 1
    assert abs(stats.pearsonr(z[~at_limit, 0], z[~at_limit, 1]).statistic) < 4 / np.sqrt(len(z))


@pytest.mark.parametrize("episode_steps", [0, 1, 9])
def test_every_layout_of_ships_has_its_probability(episode_steps):
    """On 4 × 4 squares: each segment for the first ship, then each that is left.

    After a reset, after an episode that is too short to place both ships, and after a longer one.
    """
    env = SPECS["popgym-BattleshipEasy-v0"](size=4, ships=(2, 3))
    law: dict[Any, float] = {frozenset(): 1.0}
    for n in env.ships:
        lines = [[(i, k + j) for j in range(n)] for i in range(4) for k in range(5 - n)]
        ships = [{*line} for line in lines] + [{(c, r) for r, c in line} for line in lines]
        after: dict[Any, float] = {}
        for board, p in law.items():
            free = [ship for ship in ships if not ship & board]
            for ship in free:
                key = board | ship
                after[key] = after.get(key, 0) + p / len(free)
        law = after
    params = env.default_params.replace(max_steps_in_episode=episode_steps)

    def begin(key: Any) -> Any:
        state = env.reset_env(key, params)[1]
        for i in range(episode_steps):
            state = env.step(jax.random.fold_in(key, i), state, 0, params)[1]
        return bits.flags(state.ships, 4).ravel(), state.time

    boards, time = map(
        np.asarray, jax.jit(jax.vmap(begin))(jax.random.split(jax.random.key(6), 20_000))
    )
    assert (time == 0).all()
    index = {board: i for i, board in enumerate(law)}
    layouts = [index[frozenset(divmod(int(i), 4) for i in np.flatnonzero(b))] for b in boards]
    counts = np.bincount(layouts, minlength=len(law))
    assert chi_square(counts, np.array([*law.values()])) > ALPHA


@pytest.mark.parametrize("shuffles", [False, True])
def test_cards_on_the_table_come_from_a_shuffled_deck(shuffles):
    env = SPECS["popgym-ConcentrationEasy-v0"](shuffled=shuffles)
    choose = lambda env, skill, state, key: state.time % env.cards  # noqa: E731
    steps = oracle.roll(env, choose, 1000, 52, True, jax.random.key(7))
    values = np.asarray(steps.state)[-1, :, : 2 * 51].reshape(1000, 51, 2).argmax(-1)
    expected = np.where(np.eye(2), 25, 26).ravel() / (2 * 51)
    for i in (0, 20, 49):
        assert chi_square(pair_counts(values[:, i], values[:, i + 1], 2), expected) > ALPHA


def mazes(size: int, number: int, seed: int) -> np.ndarray:
    """Free squares of our mazes, [maze, side, side]."""
    env = labyrinth.LabyrinthExplore(size)
    start = jax.jit(jax.vmap(env.reset_env, (0, None)))
    states = start(jax.random.split(jax.random.key(seed), number), env.default_params)[1]
    return np.asarray(bits.flags(states.open[:, 1:-1] >> jnp.uint32(1), env.side))


def mazes_of_mazelib(size: int, number: int) -> np.ndarray:
    random.seed(size)
    np.random.seed(size)
    return np.stack([HuntAndKill(size, size).generate() == 0 for _ in range(number)])


@pytest.mark.full
def test_every_maze_is_as_likely_as_in_the_original():
    """All mazes of 3 × 3 cells, by their passages."""
    ours, theirs = mazes(3, 20_000, 8), mazes_of_mazelib(3, 6_000)
    inner = (slice(None), slice(1, -1), slice(1, -1))
    codes = [m[inner].reshape(len(m), -1) @ (1 << np.arange(25)) for m in (ours, theirs)]
    # An entrance of ours is in the border, which `inner` leaves out.
    kinds = {code: i for i, code in enumerate(np.unique(np.concatenate(codes)))}
    counts = np.array([np.bincount([kinds[c] for c in x], minlength=len(kinds)) for x in codes])
    common = counts.sum(0) > 100
    assert common.sum() > 50
    assert stats.chi2_contingency(counts[:, common]).pvalue > ALPHA


@pytest.mark.full
@pytest.mark.parametrize("size", [5, 9])
def test_large_mazes_have_the_shape_of_the_originals(size):
    """The numbers of dead ends and of straight cells, and no cell that is cut off."""

    def ways(free: np.ndarray) -> np.ndarray:
        cells = np.arange(1, 2 * size, 2)
        around = [(0, -1), (0, 1), (-1, 0), (1, 0)]
        return sum(free[:, cells[:, None] + r, cells[None] + c].astype(int) for r, c in around)

    def inside(free: np.ndarray) -> np.ndarray:
        free = free.copy()
        free[:, [0, -1]] = free[:, :, [0, -1]] = False
        return free

    ours, theirs = ways(inside(mazes(size, 4000, 9))), ways(mazes_of_mazelib(size, 600))
    assert ((ours.sum((1, 2)) == 2 * (size**2 - 1)) | (ours == 0).any((1, 2))).all()
    for number in (1, 2, 3):
        a, b = ((x == number).sum((1, 2)) for x in (ours, theirs))
        assert stats.ks_2samp(a, b).pvalue > ALPHA


def test_an_episode_that_is_cut_short_leads_to_a_whole_maze():
    env = SPECS["popgym-LabyrinthEscapeHard-v0"]()
    params = env.default_params.replace(max_steps_in_episode=2)
    step = jax.jit(jax.vmap(env.step, (0, 0, None, None)))
    state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 20), params)[1]
    for t in range(4):
        keys = jax.random.split(jax.random.key(t), 20)
        _, state, _, _, truncated, _ = step(keys, state, 0, params)
        assert (np.asarray(truncated) == (t % 2 == 1)).all()
        assert (np.asarray(state.free) == 2 * 81 - 1).all()


def test_the_view_of_a_labyrinth_is_shifted_at_the_border():
    """popgym cuts the view there; `centered` shows the agent in its middle."""
    for at_center in (False, True):
        env = labyrinth.LabyrinthEscape(centered=at_center)
        for i in range(20):
            obs, state = env.reset(jax.random.key(i))
            view = np.asarray(obs).reshape(10, 5)[:9].argmax(1).reshape(3, 3)
            at = tuple(np.argwhere(view == labyrinth.START)[0])
            border = tuple(int(x == 0) for x in np.asarray(state.place))
            assert at == tuple(1 - b * (not at_center) for b in border)


def test_velocities_are_not_seen_first():
    env = SPECS["popgym-VelocityOnlyCartpoleEasy-v0"]()
    obs, state = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(obs, [state.x, state.theta])
    obs, state = env.step(jax.random.key(1), state, 1)[:2]
    np.testing.assert_array_equal(obs, [state.x_dot, state.theta_dot])
    repair = SPECS["popgym-VelocityOnlyCartpoleEasy-v0"](first="velocities")
    obs, state = repair.reset(jax.random.key(0))
    np.testing.assert_array_equal(obs, [state.x_dot, state.theta_dot])


def test_pendulums_start_as_in_the_original():
    id = "popgym-PositionOnlyPendulumEasy-v0"
    env, judge = SPECS[id](), oracle.original(id)
    start = jax.jit(jax.vmap(env.reset_env, (0, None)))
    states = start(jax.random.split(jax.random.key(5), 2000), env.default_params)[1]
    theirs = np.array([(judge.reset(seed=i), judge.unwrapped.state)[1] for i in range(2000)])
    for ours, column in zip((states.theta, states.theta_dot), theirs.T, strict=True):
        assert stats.ks_2samp(np.asarray(ours), column).pvalue > ALPHA


# ------------------------------------------------------------------ the interface


@pytest.mark.parametrize("id", EASY)
def test_reset_and_step_have_the_same_types(id):
    env = SPECS[id]()
    params, key = env.default_params, jax.random.PRNGKey(0)  # an old-style key
    obs, state = jax.eval_shape(env.reset, key, params)
    action = jnp.zeros(1) if "Pendulum" in id else jnp.int32(0)
    after = jax.eval_shape(env.step, key, state, action, params)
    assert (obs, state) == (*after[:2],)
    assert obs == after[5]["final_observation"] and obs.dtype == jnp.float32
    assert after[2] == jax.ShapeDtypeStruct((), jnp.float32)
    assert after[3] == after[4] == jax.ShapeDtypeStruct((), jnp.bool_)
    alone = jax.eval_shape(env.step_env, key, state, action, params)
    assert alone[:4] == after[:4]


@pytest.mark.parametrize("id", EASY)
def test_a_smaller_limit_truncates_and_resets(id):
    env = SPECS[id]()
    params = env.default_params.replace(max_steps_in_episode=2)
    state = env.reset(jax.random.key(0), params)[1]
    for t in range(2):
        action = 0 if "MineSweeper" not in id else int(jnp.argmax(state.squares != 1))
        action = jnp.zeros(1) if "Pendulum" in id else action
        _, state, _, terminated, truncated, _ = env.step(jax.random.key(t), state, action, params)
        assert (bool(terminated), bool(truncated)) == (False, t == 1)
    assert state.time == 0


@pytest.mark.slow
def test_a_mine_that_was_hit_stays_a_mine():
    env = SPECS["popgym-MineSweeperEasy-v0"]()
    state = env.reset(jax.random.key(0))[1]
    mine = jnp.argmax(state.squares == 1)
    _, after, _, terminated, _ = env.step_env(jax.random.key(0), state, mine, env.default_params)
    assert terminated and (after.squares == state.squares).all()


def test_a_pole_may_fall_at_the_time_limit():
    env = SPECS["popgym-PositionOnlyCartPoleEasy-v0"]()
    zero, noise = jnp.float32(0), jnp.zeros(2)
    state = PoleState(jnp.int32(199), zero, zero, jnp.float32(0.2), jnp.float32(2.0), noise)
    _, _, reward, terminated, truncated, _ = env.step(jax.random.key(0), state, 0)
    assert terminated and truncated and reward == np.float32(1 / 200)


def know(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """The right answer, read off `state_obs` alone."""
    s = env.state_obs(state, env.default_params)
    name = env.name
    if name in ("RepeatPrevious", "RepeatFirst"):
        return jnp.argmax(s[:4])
    if name == "CountRecall":
        m = env.types
        return jnp.round(jnp.sum(s[:m] * s[-m:]) * env.per_type).astype(jnp.int32)
    place = env.num_cards - jnp.round(s[-1] * env.num_cards).astype(jnp.int32)
    return jnp.argmax(s[: 4 * env.num_cards].reshape(-1, 4)[place])


@pytest.mark.parametrize("task", ["RepeatPrevious", "RepeatFirst", "CountRecall", "Autoencode"])
def test_the_state_suffices_for_the_best_return(task):
    env = SPECS[f"popgym-{task}Easy-v0"]()
    reward = oracle.roll(env, know, 5, env.num_steps, False, jax.random.key(0)).reward
    np.testing.assert_allclose(reward.sum(0), 1.0, rtol=1e-5)


def test_tasks_with_equal_arguments_are_equal():
    make = SPECS["popgym-RepeatPreviousEasy-v0"]
    assert make() == make() and hash(make()) == hash(make())
    assert make() != make(k=5) and make() != SPECS["popgym-RepeatFirstEasy-v0"]()
    assert len({build() for build in SPECS.values()}) == len(SPECS)


@pytest.mark.parametrize(
    ("task", "arguments", "words"),
    [
        ("RepeatPrevious", {"k": 0}, "`k`.*1..51.*got 0"),
        ("RepeatPrevious", {"k": 52}, "`k`.*1..51.*got 52.*`num_decks`"),
        ("RepeatPrevious", {"num_decks": 0}, "`num_decks`.*got 0"),
        ("RepeatFirst", {"num_decks": -1}, "`num_decks`.*got -1"),
        ("Autoencode", {"num_decks": 0}, "`num_decks`"),
        ("CountRecall", {"types": 3}, r"`types`.*\(2, 4, 13\).*got 3"),
        ("MultiarmedBandit", {"num_arms": 0}, "`num_arms`.*got 0"),
        ("MultiarmedBandit", {"num_steps": 0}, "`num_steps`.*got 0"),
        ("MineSweeper", {"size": 0}, "`size`.*got 0"),
        ("MineSweeper", {"num_mines": 14}, "`num_mines`.*at least 3 of 16.*got 14"),
        ("Battleship", {"size": 3}, "`ships`.*always fit on 3"),
        ("Battleship", {"ships": ()}, "`ships`"),
        ("Battleship", {"size": 2, "ships": (1, 1, 1, 1)}, "`ships`"),
        ("Battleship", {"size": 33}, "`size`.*got 33"),
        ("Concentration", {"types": 4}, r"`types`.*\(2, 13\).*got 4"),
        ("HigherLower", {"num_decks": 0}, "`num_decks`.*got 0"),
        ("PositionOnlyPendulum", {"num_steps": 0}, "`num_steps`.*got 0"),
        ("NoisyPositionOnlyPendulum", {"sigma": -1.0}, "`sigma`.*got -1"),
        ("LabyrinthEscape", {"size": 2}, "`size`.*got 2"),
        ("LabyrinthExplore", {"num_steps": 0}, "`num_steps`.*got 0"),
        ("PositionOnlyCartPole", {"num_steps": 0}, "`num_steps`.*got 0"),
        ("PositionOnlyCartPole", {"sigma": -0.1}, "`sigma`.*got -0.1"),
        ("PositionOnlyCartPole", {"sigma": float("nan")}, "`sigma`.*got nan"),
    ],
)
def test_bad_arguments_are_named(task, arguments, words):
    with pytest.raises(ValueError, match=words):
        SPECS[f"popgym-{task}Easy-v0"](**arguments)
