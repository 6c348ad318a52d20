"""The POPGym tasks against popgym 1.0.7, step by step, and their chance against its law."""

import itertools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from popgym.envs.repeat_previous import RepeatPrevious as OriginalRepeatPrevious
from scipy import stats

from mmrl.envs.popgym import SPECS
from mmrl.envs.popgym.cartpole import State as PoleState
from mmrl.envs.popgym.minesweeper import subset
from tests.envs import popgym_oracle as oracle

ALPHA = 1e-3  # chance that a right implementation fails one statistical test; seeds are fixed
EASY = [id for id in SPECS if "Easy" in id]


# ------------------------------------------------------------------ the originals


def choose_balance(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """With probability `skill` what keeps the pole up, else any action."""
    lean = state.theta + 0.3 * state.theta_dot + 0.05 * state.x + 0.1 * state.x_dot
    random = oracle.choose_randomly(env, skill, state, key)
    return jnp.where(jax.random.uniform(key) < skill, (lean > 0).astype(jnp.int32), random)


def choose_square(env: Any, skill: Any, state: Any, key: Any) -> Any:
    """Any square, but rarely a mine with high `skill`: games are also won, or run out of time."""
    viewed = jnp.where(skill > 0.9, 0.0, 0.3)  # only who never looks twice can win in time
    weight = jnp.stack([jnp.float32(1), (1 - skill) ** 2, viewed])
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
    env.np_random = oracle.Loaded(mines)


def set_odds(env: Any, episode: oracle.Episode) -> None:
    env.np_random = oracle.Loaded(episode.state[0])


def toss_coin(env: Any, episode: oracle.Episode, t: int) -> None:
    env.np_random = oracle.Loaded(1.0 - episode.obs[t + 1, 1])


def place_pole(env: Any, episode: oracle.Episode, t: int) -> None:
    env.state, env.steps_beyond_terminated = episode.state[t].astype(float), None


def same_dealt_cards(mine: np.ndarray, other: np.ndarray) -> None:
    """popgym's state of Autoencode also shows the cards not dealt yet."""
    n = mine.shape[1] // 4
    dealt = mine[:, : 4 * n].reshape(len(mine), n, 4).any(-1)
    np.testing.assert_array_equal(dealt.sum(1), np.minimum(1 + np.arange(len(mine)), n))
    other[:, : 4 * n] *= np.repeat(dealt, 4, axis=1)
    oracle.equal_states(mine, other)


def same_after_first(mine: np.ndarray, other: np.ndarray) -> None:
    """The first observation and state are the original's own draw."""
    oracle.equal_states(mine[1:], other[1:])


def noisy(mine: np.ndarray, other: np.ndarray) -> None:
    """The noise of each has a law, which has a test below."""


POLE = oracle.Original(
    before_step=place_pole,
    choose=choose_balance,
    workers=100,
    states=same_after_first,
    obs=same_after_first,
    sizes_tell=True,
)
ORIGINALS = {
    "RepeatPrevious": oracle.Original(stack_suits, sizes_tell=True),
    "RepeatFirst": oracle.Original(stack_suits, sizes_tell=True),
    "Autoencode": oracle.Original(stack_suits, states=same_dealt_cards, sizes_tell=True),
    "CountRecall": oracle.Original(stack_values_and_queries, sizes_tell=True),
    "PositionOnlyCartPole": POLE,
    "NoisyPositionOnlyCartPole": POLE._replace(obs=noisy, sizes_tell=False),
    "MultiarmedBandit": oracle.Original(set_odds, toss_coin, sizes_tell=True),
    "MineSweeper": oracle.Original(lay_mines, choose=choose_square, workers=500),
}


def rollout(env: Any, task: str, workers: int, lengths: int) -> Any:
    """`lengths` times the longest episode, of every worker."""
    choose, steps = ORIGINALS[task].choose, lengths * env.num_steps
    return oracle.roll(env, choose, workers, steps, True, jax.random.key(len(task)))


def compare(task: str, env: Any, judge: Any, workers: int) -> list[oracle.Episode]:
    """Play, replay two episodes of each worker in the original, the first six with their states."""
    row, rolled = ORIGINALS[task], rollout(env, task, workers, 2)
    played = list(itertools.islice(oracle.episodes(rolled), 2 * workers))
    assert len(played) == 2 * workers
    for i, ours in enumerate(played):
        theirs = oracle.replay(row, judge, ours, states=i < 6)
        for field in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), field)
        row.obs(ours.obs, theirs.obs)
        if i < 6:
            row.states(ours.state, theirs.state)
    return played


# Where the sizes tell all arguments and the outer levels are right, so is Medium.
TOLD = {(task, "Medium") for task, row in ORIGINALS.items() if row.sizes_tell}


@pytest.mark.parametrize("id", [x for x in SPECS if oracle.task_and_level(x) not in TOLD])
def test_equals_the_original(id):
    task, _ = oracle.task_and_level(id)
    played = compare(task, SPECS[id](), oracle.original(id), ORIGINALS[task].workers)
    ends = {(bool(e.terminated[-1]), bool(e.truncated[-1])) for e in played}
    if task == "MineSweeper":
        won = [e for e in played if (e.reward > 0).sum() == SPECS[id]().num_steps]
        assert ends == {(True, False), (False, True)} and len(won) > 5
    if "CartPole" in task:
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
    assert env.num_steps == getattr(bare, "max_episode_length", env.num_steps)  # not all have it
    assert env.num_actions == env.action_space().n == judge.action_space.n
    assert env.observation_space().shape == (gymnasium.spaces.flatdim(judge.observation_space),)
    assert env.state_space().shape == (gymnasium.spaces.flatdim(bare.state_space),)


def test_ids():
    assert {oracle.task_and_level(id)[1] for id in SPECS} == {"Easy", "Medium", "Hard", "Paper"}
    paper = SPECS["popgym-RepeatPreviousPaper-v0"]()
    assert (paper.num_decks, paper.k) == (2, 10)


# ------------------------------------------------------------------ the law of chance


def chi_square(cells: np.ndarray, expected: np.ndarray) -> float:
    """The p-value of cell counts against probabilities."""
    return stats.chisquare(cells, expected * cells.sum()).pvalue


def pair_counts(first: np.ndarray, second: np.ndarray, types: int) -> np.ndarray:
    return np.bincount(first * types + second, minlength=types * types)


def test_cards_come_as_from_a_shuffled_deck():
    env = SPECS["popgym-RepeatFirstEasy-v0"]()
    rolled = oracle.roll(env, oracle.choose_randomly, 4000, 102, False, jax.random.key(1))
    obs, final = np.asarray(rolled[0]), np.asarray(rolled[5])
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
        oracle.roll(env, oracle.choose_randomly, 3000, 30, False, jax.random.key(2))[0]
    )
    values, queries = obs[..., :4].argmax(-1), obs[..., 4:].argmax(-1)
    for t in (0, 10, 29):
        assert chi_square(pair_counts(values[t], queries[t], 4), np.full(16, 1 / 16)) > ALPHA


@pytest.mark.parametrize(("size", "mines"), [(16, 2), (6, 3), (5, 4)])
def test_every_set_of_mines_is_equally_likely(size, mines):
    numbers = jax.random.uniform(jax.random.key(3), (12_000, mines))
    drawn = np.sort(jax.jit(jax.vmap(subset, (0, None)), static_argnums=1)(numbers, size), axis=1)
    kinds = list(itertools.combinations(range(size), mines))
    index = {kind: i for i, kind in enumerate(kinds)}
    counts = np.bincount([index[tuple(row)] for row in drawn.tolist()], minlength=len(kinds))
    assert chi_square(counts, np.full(len(kinds), 1 / len(kinds))) > ALPHA


def test_arms_pay_with_their_odds():
    env = SPECS["popgym-MultiarmedBanditEasy-v0"]()
    rolled = oracle.roll(env, oracle.choose_randomly, 400, 201, True, jax.random.key(4))
    _, action, reward, _, truncated, _, odds = jax.tree.map(np.asarray, rolled)
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
    rolled = rollout(env, "NoisyPositionOnlyCartPole", 100, 2)
    obs, state = np.asarray(rolled[0]), np.asarray(rolled[6])[..., [0, 2]]
    begin = np.concatenate([np.ones((1, 100), bool), np.asarray(rolled[3] | rolled[4])[:-1]])
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
    theta, clipped = state[~begin][:, 1], np.abs(obs[~begin][:, 1]) >= high[1] * (1 - 1e-6)
    p = stats.norm.sf((high[1] - theta) / env.sigma) + stats.norm.cdf(
        (-high[1] - theta) / env.sigma
    )
    assert abs(clipped.sum() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum()) + 1
    assert abs(stats.pearsonr(z[~clipped, 0], z[~clipped, 1]).statistic) < 4 / np.sqrt(len(z))


# ------------------------------------------------------------------ the interface


@pytest.mark.parametrize("id", EASY)
def test_reset_and_step_have_the_same_types(id):
    env = SPECS[id]()
    params, key = env.default_params, jax.random.PRNGKey(0)  # an old-style key
    obs, state = jax.eval_shape(env.reset, key, params)
    after = jax.eval_shape(env.step, key, state, jnp.int32(0), params)
    assert (obs, state) == (*after[:2],)
    assert obs == after[5]["final_observation"] and obs.dtype == jnp.float32
    assert after[2] == jax.ShapeDtypeStruct((), jnp.float32)
    assert after[3] == after[4] == jax.ShapeDtypeStruct((), jnp.bool_)
    alone = jax.eval_shape(env.step_env, key, state, jnp.int32(0), params)
    assert alone[:4] == after[:4]


@pytest.mark.parametrize("id", EASY)
def test_a_smaller_limit_truncates_and_resets(id):
    env = SPECS[id]()
    params = env.default_params.replace(max_steps_in_episode=2)
    state = env.reset(jax.random.key(0), params)[1]
    for t in range(2):
        action = 0 if "MineSweeper" not in id else int(jnp.argmax(state.squares != 1))
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
    asked = env.num_cards - jnp.round(s[-1] * env.num_cards).astype(jnp.int32)
    return jnp.argmax(s[: 4 * env.num_cards].reshape(-1, 4)[asked])


@pytest.mark.parametrize("task", ["RepeatPrevious", "RepeatFirst", "CountRecall", "Autoencode"])
def test_the_state_suffices_for_the_best_return(task):
    env = SPECS[f"popgym-{task}Easy-v0"]()
    reward = oracle.roll(env, know, 5, env.num_steps, False, jax.random.key(0))[2]
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
        ("PositionOnlyCartPole", {"num_steps": 0}, "`num_steps`.*got 0"),
        ("PositionOnlyCartPole", {"sigma": -0.1}, "`sigma`.*got -0.1"),
        ("PositionOnlyCartPole", {"sigma": float("nan")}, "`sigma`.*got nan"),
    ],
)
def test_bad_arguments_are_named(task, arguments, words):
    with pytest.raises(ValueError, match=words):
        SPECS[f"popgym-{task}Easy-v0"](**arguments)
