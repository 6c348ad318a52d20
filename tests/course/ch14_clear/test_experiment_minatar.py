"""The experiment on MinAtar in cycles: its grid, what its rows say, and that it runs."""

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np
import pytest

from mmrl.agents import clear
from mmrl.agents.clear.vtrace import Measures
from mmrl.course.ch14_clear import experiment_minatar as minatar
from mmrl.course.ch14_clear.experiment_minatar import CONFIG, CYCLES, GAMES, Cell
from mmrl.course.continual import cycles
from mmrl.course.continual.cycles import Curves, PolicyScores
from mmrl.envs.continual import minatar as game
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.earlier import current_names

RESULTS = pathlib.Path(__file__).parents[3] / "book" / "results" / "minatar.jsonl"


def steps(config: clear.Config) -> int:
    return config.environments * config.rollout * config.block * config.blocks


@pytest.mark.full
@pytest.mark.slow
def test_every_game_gets_as_many_steps_in_all_cells():
    cells = minatar.cells()
    assert len({cell.name for cell in cells}) == len(cells) == 3
    for cell in cells:
        config = cell.config()
        clear.check(config, *game("Breakout"))
        assert steps(config) == steps(CONFIG)  # in a stage
        assert cell.order == ([0, 1, 2] * CYCLES if cell.protocol == "sequential" else [])
        assert (config.capacity == 0) == (config.replay_fraction == 0) == (cell.method != "CLEAR")
    # Scores of the separate networks are as many, after as many steps of all games.
    together, alone = cells[0].config(), cells[2].config()
    assert alone.block * len(GAMES) == together.block
    assert alone.blocks * CYCLES == together.blocks * len(cells[0].order)


def curves(stages: int, blocks: int, begin: Any, scores: Any, finite: bool = True) -> Curves:
    begin = np.asarray(begin, "f4")
    scores = np.broadcast_to(np.asarray(scores, "f4"), (stages, blocks, len(begin)))
    by_policy = {"greedy": PolicyScores(scores, begin), "sampled": PolicyScores(scores + 1, begin)}
    return Curves(by_policy, Measures(*np.ones((7, stages, blocks))), np.asarray(finite))


def test_networks_beside_each_other_each_play_their_own_game():
    blocks = len(GAMES) * CONFIG.blocks
    rising = 10.0 * np.arange(2 * blocks).reshape(2, blocks, 1)
    alone = [curves(2, blocks, [k], k + rising) for k in range(3)]
    alone[1] = alone[1]._replace(finite=np.asarray(False))
    result = minatar.beside(alone)
    scores, begin = result.by_policy["greedy"]
    np.testing.assert_array_equal(begin, [0, 1, 2])
    assert scores.shape == (2, blocks, 3) and not result.finite
    np.testing.assert_array_equal(scores[1, 0], 10 * blocks + np.arange(3))
    np.testing.assert_array_equal(result.by_policy["sampled"].scores, scores + 1)
    cell = Cell("V-trace", "separate")
    row = minatar.to_row(cell, cell.config(), [result] * 3)
    assert np.shape(row["scores"]) == (3, 2 * blocks + 1, 3) and row["finite"] == [False] * 3
    assert row["env_steps"][-1] == steps(CONFIG) * len(GAMES) * CYCLES
    assert row["retained"] == row["shares"] == []


def test_what_a_row_says_of_known_curves():
    """Game k is learned from k to k + 4 in its stage, and falls to k + 1 after it; game 2 never."""
    cell, blocks = Cell("CLEAR"), CONFIG.blocks
    scores = np.tile(np.array([1.0, 2, 2]), (6, blocks, 1))
    for stage, task in enumerate(cell.order):
        scores[stage, :, task] = [4, 5, 2][task]
    result = curves(6, blocks, [0, 1, 2], scores)
    row = minatar.to_row(cell, cell.config(), [result] * 3)
    np.testing.assert_allclose(row["shares"], [[0.25, 0.25, np.nan, 0.25]] * 3)
    np.testing.assert_allclose(row["sampled"]["shares"], [[0.4, 0.4, 1.0, 0.4]] * 3)
    assert row["retained"] == [0.25] * 3 and row["env_steps"][-1] == 6 * steps(CONFIG)
    expected = [(0 + 4 * 2 * blocks + 1 * 4 * blocks) / (6 * blocks + 1), 2.0]
    np.testing.assert_allclose(np.array(row["cumulative"])[0, [0, 2]], expected, atol=1e-4)
    assert len(row["diagnostics"]["entropy"]) == 6 * blocks
    assert loads(dumps(row)).keys() == row.keys()


def test_published_rows_are_of_these_cells():
    cells = {cell.name: cell for cell in minatar.cells()}
    assert set(minatar.GRID.read(RESULTS.parent)) == set(cells)
    for line in RESULTS.read_text("utf-8").splitlines():
        row = loads(line)
        cell = cells[row["cell"]]
        now = loads(dumps(dataclasses.asdict(cell.config())))
        assert now | current_names(row["settings"]) == now  # later versions have more of them
        assert not row["quick"] and row["games"] == list(GAMES) and row["order"] == cell.order
        for policy in (row, row["sampled"]) if "sampled" in row else (row,):
            scores = np.array(policy["scores"])
            assert scores.shape == (len(row["seeds"]), len(row["env_steps"]), len(GAMES))
            np.testing.assert_allclose(scores.mean(1), policy["cumulative"], atol=2e-4)
            for shares, times in zip(policy["shares"], scores, strict=bool(cell.order)):
                by_stage = times[1:].reshape(len(cell.order), -1, len(GAMES))
                result = cycles.retention(by_stage, times[0], cell.order)
                np.testing.assert_allclose(shares, result, rtol=2e-3, atol=1e-3)


@pytest.mark.full
@pytest.mark.slow
def test_the_experiment_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    calls = []

    def tour(agent: Any, config: Any, games: Any, order: Any, key: Any, report: Any) -> Any:
        """In place of `cycles.tour`: the agent is traced in each game, and scores what it is."""
        for env, params in games:

            def learn(key: Any, env: Any = env, params: Any = params) -> Any:
                state = agent.init(config, env, params, key)
                return agent.iterate(config, env, params, state)

            jax.eval_shape(learn, key)
        for stage in range(len(order)):
            report(stage, 0, {})
            report(stage, 1, {})
        calls.append((len(games), order, int(jax.random.key_data(key)[-1])))
        scores = float(len(calls)) + np.arange(len(games))
        return None, curves(len(order), config.blocks, scores, scores)

    monkeypatch.setattr(cycles, "tour", tour)
    monkeypatch.setattr(minatar, "GAMES", ("Breakout", "SpaceInvaders"))
    monkeypatch.setattr(minatar, "SEEDS", (5,))
    some = dataclasses.replace(minatar.GRID, cells=[Cell("CLEAR"), Cell("V-trace", "separate")])
    lines = list(some.run(tmp_path, np.inf, True))
    assert len(lines) == 3 and lines[-1] == "0 of 2 cells remain: all done."
    assert lines[0].startswith("MinAtar, sequential, CLEAR: Breakout ")
    assert calls == [(2, [0, 1] * CYCLES, 5), *[(1, [0] * CYCLES, 5)] * 2]
    rows = [loads(x) for x in (tmp_path / "minatar.jsonl").read_text("utf-8").splitlines()]
    for row, expected in zip(rows, ([1, 2], [2, 3]), strict=True):
        assert row["quick"] and row["finite"] == [True] and row["steps_per_cpu_second"] > 0
        assert (np.array(row["scores"]) == expected).all() and row["seeds"] == [5]
        assert len(row["diagnostics"]["entropy"]) > 1
