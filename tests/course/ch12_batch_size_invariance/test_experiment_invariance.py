"""The experiment of chapter 12: its grid, its account of episodes, its statistics."""

import dataclasses
import itertools
import json
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mmrl.agents import ppo
from mmrl.agents.ppo import ppg
from mmrl.course.ch12_batch_size_invariance import experiment_invariance as invariance
from mmrl.course.experiments import ledger, stratified
from mmrl.course.experiments.grid import rows
from mmrl.envs import make
from mmrl.rollout import collect, start

RESULTS = pathlib.Path(__file__).parents[3] / "book" / "results" / "invariance.jsonl"


def row(c: int, areas: list[float], condition: str = stratified.EVERY, task: str = "Catch") -> Any:
    """Flat curves of these heights, for returns between -1 and 3."""
    base = {"task": task, "agent": "ppo", "condition": condition, "c": c, "worst": -1.0}
    return base | {"best": 3.0, "returns": [[4 * x - 1] * 4 for x in areas]}


def test_cells_are_the_ones_that_are_published():
    cells = {cell.name: cell for cell in invariance.cells()}
    assert len(cells) == len(invariance.cells())
    table = rows(RESULTS)
    rates: dict[tuple[str, str], Any] = {}
    for row in table:
        cell = cells[row["cell"]]
        now = json.loads(json.dumps(dataclasses.asdict(cell.config(row["learning_rate"]))))
        assert now | row["settings"] == now  # later versions have more of them
        assert not row["quick"] and np.isfinite(row["returns"]).all()
        assert not set(row["seeds"]) & set(row["tuning_seeds"]) and len(row["seeds"]) >= 5
        assert row["env_steps"] == published_steps(table, cell)
        rate = rates.setdefault((cell.task, cell.agent), row["learning_rate"])
        assert rate == row["learning_rate"]
        if cell == cell.base:
            assert rate == float(max(row["tuning"], key=lambda r: row["tuning"][r]))


def published_steps(table: list[Any], cell: invariance.Cell) -> list[int]:
    return next(r["env_steps"] for r in table if r["cell"] == cell.base.name)


@pytest.mark.parametrize("task", invariance.TASKS)
@pytest.mark.parametrize("agent", ["ppo", "ppg"])
def test_each_condition_changes_one_thing(task: str, agent: str):
    def differences(condition: str) -> set[str]:
        one, other = (
            dataclasses.asdict(invariance.Cell(task, agent, name, 64).config(1e-3))
            for name in (condition, stratified.EVERY)
        )
        return {name for name in one if one[name] != other[name]}

    changes = {name: differences(name) for name in invariance.CONDITIONS}
    assert list(changes.values()) == [
        set(),
        {"learning_rate"},
        {"advantage_decay"},
        {"prox_center"},
        {"proximal"},
        {"learning_rate"},
        {"beta1", "beta2"},
    ]
    rates = [
        invariance.Cell(task, agent, name, 64).config(0.64).learning_rate
        for name in (stratified.EVERY, "no step size", invariance.LINEAR)
    ]
    np.testing.assert_allclose(rates, [0.08, 0.64, 0.01])
    env, params = make(invariance.TASKS[task].env)
    module: Any = {"ppo": ppo, "ppg": ppg}[agent]
    for cell in invariance.cells():
        if (cell.task, cell.agent) == (task, agent):
            module.check(cell.config(1e-3), env, params)


def test_a_ledger_counts_what_ended_across_resets():
    env, params = make("Catch-bsuite")
    keys = jax.random.split(jax.random.key(0), 3)

    def random(state: Any, obs: Any, begin: Any, key: Any) -> Any:
        return state, jax.random.randint(key, (), 0, 3)

    @jax.jit
    def play() -> Any:
        wrapper = ledger.Ledger(env)
        carry = start(wrapper, params, (), keys[0])
        first, one = collect(random, wrapper, params, carry, keys[1], 14)
        second, two = collect(random, wrapper, params, first, keys[2], 31)
        both = jax.tree.map(lambda *x: jnp.concatenate(x), one, two)
        return (first.env_state, second.env_state), both

    (first, second), steps = play()
    ends = np.flatnonzero(steps.last)
    sums = np.cumsum(steps.reward)
    for account, length in ((first, 14), (second, 45)):
        whole = ends[ends < length]
        assert int(account.episodes) == len(whole) > 0
        assert float(account.returns) == sums[whole[-1]]
        assert float(account.under_way) == sums[length - 1] - sums[whole[-1]]


def test_areas_spreads_and_distances_of_flat_curves():
    rows = [row(1, [0.5, 0.7]), row(4, [0.7, 0.9]), row(64, [0.4, 0.6])]
    rows += [row(4, [0.1, 0.3], "no step size")]
    whole = stratified.select(rows, "ppo", stratified.EVERY)["Catch"]
    np.testing.assert_allclose(stratified.area(whole[1]), [0.5, 0.7])
    np.testing.assert_allclose(stratified.final(whole[1]), [0.5, 0.7])
    assert stratified.spread(whole) == pytest.approx(0.3)
    assert stratified.distance(whole, 64) == pytest.approx(0.1)
    ablation = stratified.select(rows, "ppo", "no step size")["Catch"]
    assert ablation[1] == rows[0] and stratified.distance(ablation, 4) == pytest.approx(0.4)
    effect = stratified.effect(rows, "ppo", "no step size", 4)
    assert effect.size == pytest.approx(0.6) and effect.tasks == ("Catch",) and effect.z > 1


def test_van_elteren_with_one_stratum_is_mann_and_whitneys_test():
    rng = np.random.default_rng(0)
    for m, n in ((6, 6), (3, 8), (10, 4)):
        a, b = rng.integers(0, 6, m) + 0.0, rng.integers(0, 5, n) + 0.0  # with ties
        p = stats.mannwhitneyu(a, b, alternative="greater", method="asymptotic",
                               use_continuity=False).pvalue  # fmt: skip
        assert stats.norm.sf(stratified.van_elteren([(a, b)])) == pytest.approx(p, abs=1e-12)
    assert stratified.van_elteren([([1.0, 1.0], [1.0])]) == 0


def test_a_seed_that_diverged_ranks_as_the_largest_loss():
    nan, good, high = float("nan"), [0.0, 0.1, 0.2, 0.3, 0.4], [5.0, 6.0, 7.0, 8.0, 9.0]
    worst = stratified.van_elteren([(high, good)])
    assert stratified.van_elteren([([nan] * 5, good)]) > 2
    assert stratified.van_elteren([([nan, nan, 7.0, 8.0, 9.0], good)]) == pytest.approx(
        stratified.van_elteren([([9.0, 9.0, 6.0, 7.0, 8.0], good)])
    )
    assert stratified.van_elteren([(good, [nan] * 5)]) < -2 < 0 < worst


def test_van_elteren_is_standardized_over_all_ways_to_deal_the_values():
    """Mean 0 and variance 1 under the null hypothesis, with strata of other sizes and ties."""
    pools = [[0.0, 1.0, 1.0, 2.0, 5.0], [3.0, 4.0, 4.0]]
    sizes = [2, 1]
    deals = []
    for pool, m in zip(pools, sizes, strict=True):
        picks = itertools.combinations(range(len(pool)), m)
        deals.append(
            [
                ([pool[i] for i in pick], [pool[i] for i in range(len(pool)) if i not in pick])
                for pick in picks
            ]
        )
    results = [stratified.van_elteren(deal) for deal in itertools.product(*deals)]
    assert np.mean(results) == pytest.approx(0, abs=1e-12)
    assert np.var(results) == pytest.approx(1)
    same = [([2.0, 3.0], [0.0, 1.0])]
    one, two = stratified.van_elteren(same), stratified.van_elteren(2 * same)
    assert two == pytest.approx(math.sqrt(2) * one) and one > 0


@pytest.mark.full
def test_what_has_phases_has_the_same_measures():
    """PPG is traced; that the experiment runs is asked of PPO."""
    keys, results = jax.vmap(jax.random.key)(np.arange(2, dtype=np.uint32)), []
    for agent in ("ppo", "ppg"):
        config = invariance.Cell("Catch", agent, stratified.EVERY, 4).config(1e-3, True)
        configs = jax.tree.map(lambda x: jnp.full(2, x, jnp.float32), config)
        init, block, noise = invariance._compile("Catch-bsuite", agent, False)
        state = jax.eval_shape(init, configs, keys)
        after, report = jax.eval_shape(block, configs, state)
        assert jax.tree.structure(after) == jax.tree.structure(state)
        results.append((report, jax.eval_shape(noise, configs, state)))
    assert results[0] == results[1] and results[0][0].returns.shape == (2,)


@pytest.mark.full
def test_the_experiment_goes_on_where_it_stopped(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    base = invariance.Cell("Catch", "ppo", stratified.EVERY, 1)
    # Three agents or six: two programs.
    task = dataclasses.replace(invariance.TASKS["Catch"], seeds=invariance.SEEDS[:3])
    monkeypatch.setitem(invariance.TASKS, "Catch", task)
    monkeypatch.setattr(invariance, "TUNING_SEEDS", invariance.TUNING_SEEDS[:1])
    monkeypatch.setattr(invariance, "ALL_RATES", task.rates)
    others = [dataclasses.replace(base, condition=name, c=16) for name in invariance.CONDITIONS]
    one = dataclasses.replace(invariance.GRID, cells=[base])
    assert next(one.run(tmp_path, 0.0, True)) == "1 of 1 cells remain."
    assert list(one.run(tmp_path, 9.0, True))[-1] == "0 of 1 cells remain: all done."
    some = dataclasses.replace(invariance.GRID, cells=[base, *others[:2]])
    assert list(some.run(tmp_path, 9.0, True))[-1] == "0 of 3 cells remain: all done."
    first, *rest = rows(tmp_path / "invariance.jsonl")
    assert first["cell"] == base.name and [r["cell"] for r in rest] == [c.name for c in others[:2]]
    assert {r["learning_rate"] for r in rest} == {first["learning_rate"]}
    assert first["tuning"] and not rest[0]["tuning"] and len(first["noise_scale"]) == 2
    for result in (first, *rest):
        assert result["quick"] and np.shape(result["returns"]) == (len(task.seeds), 2)
        assert result["env_steps"] == first["env_steps"]
        assert np.isfinite(result["returns"]).all() and result["cpu_seconds"] > 0
    alone = dataclasses.replace(others[1].config(first["learning_rate"], True))
    blocks, _, _ = invariance.train("Catch-bsuite", "ppo", 6 * [(alone, task.seeds[2])])
    np.testing.assert_allclose(blocks.returns[:, 0], rest[1]["returns"][2], atol=1e-4)
