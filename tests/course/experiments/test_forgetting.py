"""The experiment of chapters 13 and 14: its grid, its tasks in the dark, what its rows say."""

import dataclasses
import pathlib
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents.clear.vtrace import Measures
from mmrl.course.continual import cycles as continual
from mmrl.course.continual.cycles import Curves, PolicyScores, cycle
from mmrl.course.experiments import experiment_forgetting as forgetting
from mmrl.course.experiments import protocols
from mmrl.course.experiments.experiment_forgetting import (
    FINAL_SEEDS,
    FINALISTS,
    SEEDS,
    TUNING_SEEDS,
)
from mmrl.course.experiments.grid import rows
from mmrl.course.experiments.protocols import SWEEPS, Cell
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.earlier import current_names

RESULTS = pathlib.Path(__file__).parents[3] / "book" / "results" / "forgetting.jsonl"


@pytest.mark.full
@pytest.mark.slow
def test_cells_can_be_trained_and_some_side_by_side():
    cells = protocols.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.method for cell in cells} == set(protocols.METHODS)
    for cell in cells:
        env, params = protocols.family(cell.family, cell.tasks)
        config = cell.config({})
        agent = protocols.AGENTS[cell.agent][0]
        if hasattr(agent, "check"):
            agent.check(config, env, params)
        assert cell.plans.max() == cell.tasks - 1
        stage = config.environments * config.rollout * config.block * config.blocks
        assert stage == 72_000 and cell.plans.shape[2] == config.environments
    assert len({cell.program for cell in cells[:4]}) == 1
    assert len({cell.program for cell in cells}) < len(cells) / 2


def test_protocols_give_each_task_as_many_steps():
    for protocol in ("separate", "simultaneous", "sequential", "probed"):
        cell = Cell("V-trace", protocol)
        counts = np.bincount(cell.plans.ravel(), minlength=3)
        cycles = 3 if protocol == "probed" else 4
        assert (counts[:3] == 12 * cycles).all(), protocol
    assert Cell("CLEAR", "probed", position=3).order == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2]
    assert Cell("CLEAR", "simultaneous").order == Cell("CLEAR", "separate").order == []


def test_methods_differ_in_what_they_say():
    clear = dataclasses.asdict(Cell("CLEAR").config({}))
    for method, own in protocols.METHODS.items():
        config = dataclasses.asdict(Cell(method).config({}))
        names = {name for name in clear if config[name] != clear[name]}
        assert names == set(own) & set(clear)
    assert set(SWEEPS) < set(protocols.cells()) and protocols.LEAST == 120
    for base, settings in SWEEPS.items():
        values = {name: {s[name] for s in settings} for name in settings[0]}
        assert len(settings) == np.prod([len(x) for x in values.values()])
        # What is swept is traced: one program.
        assert len({jax.tree.structure(base.config(s)) for s in settings}) == 1
        assert all(base.config(s) != base.config(settings[0]) for s in settings[1:])
        assert base.judge == base
        others = [cell for cell in protocols.cells() if cell.judge != base]
        assert base.program not in {cell.program for cell in others}
    assert not set(SEEDS) & {*TUNING_SEEDS, *FINAL_SEEDS}


def test_in_the_dark_the_ball_is_seen_once():
    env, params = protocols.family("Dark", 3)
    for task in range(2):
        here = dataclasses.replace(params, task=task)
        obs, state = env.reset(jax.random.key(3), here)
        order = env.orders()[task]
        for step in range(7):
            picture = np.zeros(35)
            picture[order] = obs
            picture = picture.reshape(7, 5)
            light = step % 6 == 0  # an episode has 6 steps; the next one begins at once
            assert picture[-1].sum() == 1 and picture[:-1].sum() == picture[0].sum() == light
            obs, state, *_ = env.step(jax.random.key(step), state, 1, here)


def curves(cell: Cell, scores: Any, begin: Any) -> Curves:
    """Greedily as given, and by sampled actions a tenth lower."""
    config = cell.config({})
    shape = (len(cell.plans), 2, cell.plans.shape[1], config.blocks)
    scores = np.broadcast_to(scores, (*shape, cell.tasks)).astype("f4")
    begin = np.broadcast_to(begin, (*shape[:2], cell.tasks)).astype("f4")
    measures = Measures(*np.zeros((7, *shape)))
    by_policy = {
        "greedy": PolicyScores(scores, begin),
        "sampled": PolicyScores(scores - 0.1, begin),
    }
    return Curves(by_policy, measures, np.ones(shape[:2], bool))


def test_separate_networks_each_play_their_own_task():
    cell = Cell("V-trace", "separate")
    network = np.arange(3.0)[:, None, None, None, None]
    scores = 10 * network + np.arange(3.0)
    row = forgetting.to_row(cell, cell.config({}), curves(cell, scores, scores[:, :, 0, 0]))
    assert np.shape(row["scores"]) == (2, 97, 3)
    np.testing.assert_allclose(row["scores"], np.broadcast_to([0.0, 11, 22], (2, 97, 3)))
    assert row["env_steps"][-1] == 864_000 and row["retained"] == row["shares"] == []
    together = Cell("CLEAR")
    report = forgetting.to_row(together, together.config({}), curves(together, 0.0, -1.0))
    assert report["env_steps"][0] == 0 and report["env_steps"][-1] == 864_000
    assert np.shape(report["scores"]) == (2, 73, 3)


def test_what_a_row_says_of_known_curves():
    """Every task is learned, from -1 to 1, and falls to 0 as soon as the next one is played."""
    cell = Cell("EWC")
    scores = np.zeros((12, 6, 3))
    for stage, task in enumerate(cell.order):
        scores[stage, :, task] = 1
    config = cell.config({})
    row = forgetting.to_row(cell, config, curves(cell, scores, -1.0))
    np.testing.assert_allclose(row["shares"], np.full((2, 10), 0.5))
    assert row["retained"] == [0.5, 0.5] and row["finite"] == [True, True]
    np.testing.assert_allclose(row["cumulative"], np.full((2, 3), (24 - 1) / 73), atol=1e-4)
    assert row["interquartile_mean"] == pytest.approx(23 / 73, abs=1e-4)
    assert row["boundary_steps"] == config.fisher_unrolls * 120
    assert len(row["diagnostics"]["entropy"]) == 72
    sample_row = row["sampled"]
    np.testing.assert_allclose(sample_row["shares"], np.full((2, 10), 0.9 / 1.9), atol=1e-4)
    after = [np.array(x["scores"])[:, 1:] for x in (row, sample_row)]
    np.testing.assert_allclose(after[1], after[0] - 0.1, atol=1e-4)
    assert sample_row.keys() < row.keys()
    assert loads(dumps(row)) == loads(dumps(row | {"position": 0}))


def test_a_sweep_is_decided_by_sampled_actions_on_tuning_seeds(monkeypatch: pytest.MonkeyPatch):
    cell, calls = Cell("EWC"), []

    def train(together: Any, configs: Any, seeds: Any) -> Any:
        calls.append((seeds, {cell.name for cell in together}, len(configs)))
        exponents = np.array([np.log10(config.consolidation) for config in configs])
        means = -abs(exponents - 3)  # of all that do not diverge 2 and 4 are best,
        means[(exponents == 2) & (len(seeds) > 2)] = -7  # but 2 was lucky
        scores = np.broadcast_to(
            means.reshape(-1, 1, 1, 1, 1, 1), (len(means), 1, len(seeds), 1, 1, 3)
        )
        finite = np.broadcast_to(exponents[:, None, None] != 3, (len(means), 1, len(seeds)))
        sample, greedy = (PolicyScores(x, x[:, :, :, 0, 0]) for x in (scores, -scores))
        return Curves({"sampled": sample, "greedy": greedy}, None, finite), 1.0

    sweep = [{"consolidation": 10.0**n} for n in range(5)]
    monkeypatch.setattr(forgetting, "SWEEPS", {cell: sweep})
    monkeypatch.setattr(forgetting, "train", train)
    choice, tuning = forgetting.choose(cell, {}, False)
    assert choice == {"consolidation": 1e4}
    assert calls == [(TUNING_SEEDS, {cell.name}, 5), (FINAL_SEEDS, {cell.name}, FINALISTS)]
    assert [x["seeds"] for x in tuning] == [2, 6, 6, 2, 6]
    assert [x["score"] for x in tuning] == [-3, -2, -(2 * 1 + 4 * 7) / 6, -np.inf, -1]
    assert tuning[0]["greedy"] == 3
    results = {cell.name: {"chosen": {"x": 1.0}, "tuning": [{"y": 2.0}]}}
    assert forgetting.choose(cell, results, False) == ({"x": 1.0}, [{"y": 2.0}])
    assert forgetting.choose(Cell("CLEAR"), results, False) == ({}, []) and len(calls) == 2


@pytest.mark.slow
def test_published_rows_are_of_these_cells():
    cells = {cell.name: cell for cell in protocols.cells()}
    table = rows(RESULTS)
    assert len({row["cell"] for row in table}) == len(table)
    for row in table:
        cell = cells[row["cell"]]
        now = loads(dumps(dataclasses.asdict(cell.config(row["chosen"]))))
        assert now | current_names(row["settings"]) == now  # later versions have more of them
        assert not row["quick"] and not set(row["seeds"]) & set(row["tuning_seeds"])
        scores = np.array(row["scores"])
        assert scores.shape == (len(row["seeds"]), len(row["env_steps"]), cell.tasks)
        np.testing.assert_allclose(scores.mean(1), row["cumulative"], atol=2e-4)
        assert (np.abs(scores) <= 1).all() and row["order"] == cell.order
        for shares, times in zip(row["shares"], scores, strict=bool(cell.order)):
            by_stage = times[1:].reshape(len(cell.order), -1, cell.tasks)
            result = continual.retention(by_stage, times[0], cell.order)
            np.testing.assert_allclose(shares, result, atol=2e-3)
        if row["tuning"]:
            best = max(row["tuning"], key=lambda x: (x["seeds"], x["score"]))
            assert row["chosen"].items() < best.items()


def stand_in(
    agent: Any, config: Any, env: Any, params: Any, plan: Any, tasks: int, key: Any
) -> tuple[None, Curves]:
    """Curves of `cycle`'s shapes, which differ as soon as the setting, the plan or the key does.

    `cycle` itself is traced, not compiled. That it trains side by side as alone is asked of it.
    """

    structure = jax.tree.structure(config)
    leaves, whole = jax.tree.flatten(shapes(agent, structure, env, params, plan.shape, tasks))
    setting = sum(jnp.sin(x) for x in jax.tree.leaves(config))
    score = (plan * jnp.arange(1.0, 1 + plan.size).reshape(plan.shape)).sum() / 100
    noise = jax.random.normal(key)
    for at, leaf in enumerate(leaves):
        places = at + jnp.arange(leaf.size, dtype=float).reshape(leaf.shape)
        numbers = jnp.sin(setting + score + noise + places)
        leaves[at] = jnp.ones(leaf.shape, bool) if leaf.dtype == bool else numbers
    return None, jax.tree.unflatten(whole, leaves)


@cache
def shapes(agent: Any, config: Any, env: Any, params: Any, plan: tuple[int, ...], tasks: int):
    """Those of `cycle`'s curves, given the structure of a config; traced once for each."""

    def trace(config: Any, plan: Any, key: Any) -> Curves:
        return cycle(agent, config, env, params, plan, tasks, key)[1]

    settings = [jax.ShapeDtypeStruct((), jnp.float32)] * config.num_leaves
    plan_shape, key = jax.ShapeDtypeStruct(plan, jnp.int32), jax.eval_shape(jax.random.key, 0)
    return jax.eval_shape(trace, jax.tree.unflatten(config, settings), plan_shape, key)


def by_itself(cell: Cell, config: Any, seed: int) -> list[Curves]:
    """Of one seed, the curves of each network."""
    env, params = protocols.family(cell.family, cell.tasks)
    agent = protocols.AGENTS[cell.agent][0]

    @jax.jit
    def one(config: Any, plan: Any, key: Any) -> Any:
        return continual.cycle(agent, config, env, params, plan, cell.tasks, key)[1]

    config = jax.tree.map(jnp.float32, config)
    return [one(config, plan, jax.random.key(seed)) for plan in cell.plans]


@pytest.mark.full
def test_agents_side_by_side_are_those_that_train_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    sweeps = {cell: settings[:2] for cell, settings in SWEEPS.items()}
    monkeypatch.setattr(forgetting, "SWEEPS", sweeps)
    # As many agents in the end as are tuned: one program.
    monkeypatch.setattr(forgetting, "SEEDS", SEEDS[: 2 * len(TUNING_SEEDS)])
    monkeypatch.setattr(forgetting, "FINAL_SEEDS", FINAL_SEEDS[: len(TUNING_SEEDS)])
    monkeypatch.setattr(forgetting, "_compile", cache(forgetting._compile.__wrapped__))
    monkeypatch.setattr(continual, "cycle", stand_in)
    cells = [Cell("V-trace", "separate"), Cell("Progress & Compress")]
    grid = dataclasses.replace(forgetting.GRID, cells=cells)
    assert list(grid.run(tmp_path, np.inf, True))[-1] == "0 of 2 cells remain: all done."
    result = rows(tmp_path / "forgetting.jsonl")
    assert [row["cell"] for row in result] == [cell.name for cell in cells]
    for row, cell in zip(result, cells, strict=True):
        assert row["quick"] and np.shape(row["scores"]) == (4, len(row["env_steps"]), 3)
        assert all(row["finite"]) and row["cpu_seconds"] >= 0
        assert len(row["tuning"]) == (2 if cell.agent == "progress" else 0)
        alone = by_itself(cell, cell.config(row["chosen"], True), SEEDS[3])
        for task in range(3):
            curves_of = alone[task if len(alone) > 1 else 0].by_policy
            for name, report in (("greedy", row), ("sampled", row["sampled"])):
                mine = continual.flat(curves_of[name])[:, task]
                np.testing.assert_allclose(np.array(report["scores"])[3][:, task], mine, atol=1e-4)
