"""The study with batches up to 256 times smaller: its cells, its scores and its statistics."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from mmrl.agents import ppo
from mmrl.agents.ppo import ppg
from mmrl.course.ch12_batch_size_invariance import experiment_batch_sizes as study
from mmrl.course.ch12_batch_size_invariance import experiment_center_surface as surface
from mmrl.course.experiments.stratified import EVERY
from mmrl.envs import make


def test_cells_have_every_factor_and_depend_on_both_scales():
    cells = study.cells()
    assert len({cell.name for cell in cells}) == len(cells) == 8 + 8 + 4 + 4 * 8 * 6
    assert {cell.c for cell in cells if isinstance(cell, study.Cell)} == set(study.FACTORS)
    names = [cell.name for cell in cells]
    for cell in cells:
        assert all(names.index(x) < names.index(cell.name) for x in study.after(cell))
    assert len(study.after(cells[-1])) == 2
    assert not set(study.SEEDS) & set(study.TUNING_SEEDS) and len(study.SEEDS) == 10


@pytest.mark.parametrize("task", study.TASKS)
@pytest.mark.parametrize("agent", study.AGENTS)
def test_each_condition_changes_one_thing(task: str, agent: str):
    def differences(condition: str) -> set[str]:
        one, other = (
            dataclasses.asdict(study.Cell(task, agent, name, 256).config(0.64))
            for name in (condition, EVERY)
        )
        return {name for name in one if one[name] != other[name]}

    assert {name: differences(name) for name in study.CONDITIONS} == {
        EVERY: set(),
        "no step size": {"learning_rate"},
        study.LINEAR: {"learning_rate"},
        "beta2 only": {"beta2"},
        "no advantage span": {"advantage_decay"},
        "no center of mass": {"prox_center"},
    }
    rates = [
        study.Cell(task, agent, name, 256).config(0.64).learning_rate
        for name in (EVERY, "no step size", study.LINEAR)
    ]
    np.testing.assert_allclose(rates, [0.04, 0.64, 0.0025])
    env, params = make(study.TASKS[task].env)
    module: Any = {"ppo": ppo, "ppg": ppg}[agent]
    for c in study.FACTORS:
        config = study.Cell(task, agent, EVERY, c).config(1e-3)
        module.check(config, env, params)
        assert config.environments * c == 256


def test_a_weak_penalty_changes_only_the_weight():
    weak, whole = (study.Cell("Breakout", "ppg", x, 1).config(1e-3) for x in (study.WEAK, EVERY))
    assert weak == dataclasses.replace(whole, kl_weight=whole.kl_weight / 256)
    assert whole.objective == "kl" and whole.kl_weight > 0


def test_the_largest_z_of_the_design():
    # U = 100 of mn = 100 pairs: Z = 50 / √(100 · 21 / 12)
    assert study.reachable_z(10, 1) == pytest.approx(50 / np.sqrt(175))
    assert study.reachable_z(10, 4) == pytest.approx(2 * study.reachable_z(10, 1))


def row(condition: str, c: int, height: float, task: str = "Breakout") -> dict[str, Any]:
    fields = {"task": task, "agent": "ppo", "condition": condition, "c": c}
    returns = [[height + seed / 100] * 4 for seed in range(10)]
    return fields | {"worst": 0.0, "best": 1.0, "returns": returns}


def test_the_summary_prints_the_reach_and_the_effect_of_a_condition():
    rows = [row(EVERY, 1, 0.8), row(EVERY, 16, 0.8), row("no step size", 16, 0.3)]
    first, *rest = study.lines([{"task": "Breakout", "agent": "ppo"}, *rows])
    assert "Z = 7.56" in first and "3.78" in first
    assert [line.split(", Z")[0] for line in rest] == ["ppo, no step size, c = 16: +0.500"]
    assert list(study.lines(rows[1:])) == [first]  # without c = 1 there is no comparison


def test_the_surface_has_the_default_setting_in_a_corner():
    assert surface.SHRINK[-1] == surface.GROW[0] == 1
    steps = [np.diff(np.log2(x)) for x in (surface.SHRINK, surface.GROW)]
    np.testing.assert_array_equal(steps, [[-1] * 4, [1] * 4])
