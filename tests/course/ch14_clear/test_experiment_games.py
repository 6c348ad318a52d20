"""The experiment on games: its families, its cells and its scores."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents.clear.vtrace import Measures
from mmrl.course.ch14_clear import experiment_games as games
from mmrl.course.continual import progress
from mmrl.course.continual.cycles import Curves, PolicyScores
from mmrl.course.continual.games import Games, catch_pair, minatar_games
from mmrl.course.experiments import game_protocols as cells_of
from mmrl.course.experiments.game_protocols import Cell
from mmrl.envs import make
from mmrl.nets.pictures import PictureEncoder


def test_a_family_plays_the_selected_environment():
    family, keys = catch_pair(), jax.random.split(jax.random.key(0), 12)
    for task, rows in enumerate((7, 10)):
        env, inner = make("Catch-bsuite", rows=rows)
        params = family.default_params.replace(task=task)
        obs, state = family.reset(jax.random.clone(keys[0]), params)
        expected, inner_state = env.reset(jax.random.clone(keys[0]), inner)
        board = np.asarray(obs).reshape(10, 5)
        np.testing.assert_array_equal(board[10 - rows :], expected)
        assert not board[: 10 - rows].any()
        ends = []
        for key in keys[1:rows]:
            step, _ = family.step_and_reset(key, state, 1, params)
            obs, state, reward, terminated, _ = step
            expected, inner_state, inner_reward, *_ = env.step_env(
                jax.random.split(jax.random.clone(key))[0], inner_state, 1, inner
            )
            np.testing.assert_array_equal(np.asarray(obs).reshape(10, 5)[10 - rows :], expected)
            assert reward == inner_reward
            ends.append(bool(terminated) or bool(family.is_truncated(state, params)))
        assert ends == [False] * (rows - 2) + [True]


def test_environments_of_a_family_need_equal_spaces():
    with pytest.raises(ValueError, match="equal observation shapes"):
        Games([make("Catch-bsuite")[0], make("CartPole-v1")[0]], 10)


def test_cells_depend_on_their_scale_and_their_judge():
    cells = games.GRID.cells
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names) == 3 + 6 + 3 + 8 + 2 + 12
    for cell in cells:
        assert all(names.index(x) < names.index(cell.name) for x in cells_of.after(cell))
    small = {cell.name for cell in games.GRID.small}
    assert all(set(cells_of.after(cell)) <= small for cell in games.GRID.small)
    assert Cell("100 % replay").judge == Cell("CLEAR") and Cell("EWC").judge == Cell("EWC")
    assert Cell("without cloning", "sequential", "Freeway").config({}).policy_cloning == 0


def test_every_task_has_as_many_steps_in_all_protocols():
    for protocol in ("sequential", "simultaneous", "separate"):
        cell = Cell("V-trace", protocol)
        config = cell.config({})
        plans = np.stack(cell.plans(config))
        shares = [np.mean(plans == task) for task in range(3)]
        steps = plans.size * config.rollout * config.block * config.blocks
        np.testing.assert_allclose(np.array(shares) * steps, 384_000, rtol=0.04)


def test_columns_of_progress_and_compress_have_convolutions():
    config = Cell("Progress & Compress").config({}, True)
    env = minatar_games(("Breakout", "Freeway"))
    make_net = lambda: progress.columns(config, env, env.default_params, jax.random.key(0))  # noqa: E731
    net = jax.eval_shape(make_net)
    assert isinstance(net.active.body.encoder.layers[0], PictureEncoder)


def curves(scores: Any) -> Curves:
    scores = np.asarray(scores, "f4")[:, None]  # one block per stage
    by_policy = {x: PolicyScores(scores, np.zeros(2, "f4")) for x in ("sampled", "greedy")}
    return Curves(by_policy, Measures(*np.ones((7, len(scores), 1))), np.asarray(True))


def test_scores_are_normalized_and_separate_networks_play_their_own_task():
    cell = Cell("CLEAR", "sequential", "Pair")
    result = curves([[4, 0], [2, 8], [4, 8], [2, 8]])
    row = games.to_row(cell, cell.config({}), [result], np.array([0.0, 0.0]), np.array([4.0, 8.0]))
    np.testing.assert_allclose(row["cumulative"], [[0.6, 0.6]])
    np.testing.assert_allclose(row["shares"], [[0.5, 1.0, 0.5]])
    alone = games.own_tasks([curves([[1, 2]]), curves([[3, 4]])])
    np.testing.assert_array_equal(alone.by_policy["greedy"].scores[0, 0], [1, 4])


def test_the_lines_about_freeway_count_the_seeds_that_learn_it():
    scores = np.zeros((2, 3, 2))
    scores[1, :, 1] = [0.0, 0.4, 0.9]
    row = {"family": "Freeway", "method": "CLEAR", "cell": "A", "scores": scores.tolist()}
    rows = [row | {"learned": [True, True]}, row | {"learned": [True, False]}]
    first, second = games.freeway_lines(rows)
    assert first == "A: 1 of 2 seeds learn Freeway." and "undecided" in second


def test_random_actions_have_the_known_mean_on_catch():
    cell = Cell("scale", "separate", "Pair")
    means, errors = games.random_returns(cell, False)
    assert np.all(np.abs(means + 0.6) < 4 * errors) and jnp.all(errors < 0.06)
