"""Sweeps: each lane is the run with its setting and seed, and all of them are one program."""

import dataclasses
import itertools
import json
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

from mmrl import runs
from mmrl.runs import Run, RunError, Sweep, saved_sweep
from mmrl.runs.programs import build
from tests.helpers.runs import SETUP, payload, setup

OVER = {"learning_rate": (1e-3, 3e-2, 1e38)}  # the last one diverges
SWEEP = setup(seeds=(100, 101, 102))


@pytest.fixture(scope="module")
def full_sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, int]:
    """An unbroken sweep, and how often its block was compiled. Read only."""
    block = build(SWEEP).block
    before = block._cache_size()
    sweep = Sweep(SWEEP, OVER, tmp_path_factory.mktemp("sweeps") / "unbroken")
    assert [report.block for report in sweep] == [1, 2, 3]
    return sweep, block._cache_size() - before


@pytest.mark.slow
def test_a_grid_is_one_program_and_each_lane_is_a_run(full_sweep: tuple[Run, int]):
    sweep, compiled = full_sweep
    assert compiled == 1 and sweep.curves.shape == (3, 3, 3)
    for i, seeds in itertools.product((0, 1), ((100, 101), (102, 100))):  # in a program of others
        run = Run(setup(seeds=seeds, learning_rate=OVER["learning_rate"][i]))
        lanes = sweep.curves[i, [seed - 100 for seed in seeds]]
        np.testing.assert_array_equal(np.transpose([x.returns for x in run]), lanes)
    with pytest.raises(RunError, match="became NaN or infinite in block 1, seeds"):
        next(iter(Run(setup(seeds=(100, 101), learning_rate=1e38))))


@pytest.mark.slow
def test_a_lane_that_diverges_stops_no_other(full_sweep: tuple[Run, int]):
    sweep, _ = full_sweep
    assert np.isnan(sweep.curves[2]).all() and np.isfinite(sweep.curves[:2]).all()
    assert [one.final for one in sweep.scores()][2] == -np.inf
    assert sweep.verdict().winner.setting != sweep.settings[2]
    rows = json.loads((sweep.path / "results.json").read_text())["rows"]  # type: ignore[operator]
    assert rows[8] == {"learning_rate": 1e38, "seed": 102, "returns": ["NaN"] * 3}
    assert [(row["learning_rate"], row["seed"]) for row in rows[2:4]] == [(1e-3, 102), (3e-2, 100)]
    assert rows[3]["returns"] == sweep.curves[1, 0].tolist()


@pytest.mark.slow
def test_a_sweep_that_was_stopped_goes_on_as_if_it_were_not(
    full_sweep: tuple[Run, int], tmp_path: pathlib.Path
):
    whole, path = full_sweep[0], tmp_path / "sweep"
    Sweep(SWEEP, OVER, path)  # killed before its first block
    next(iter(Sweep(SWEEP, OVER, path, resume=True)))
    assert saved_sweep(path) == (SWEEP, {"learning_rate": [1e-3, 3e-2, 1e38]})
    again = Sweep(SWEEP, OVER, path, resume=True)
    assert [report.block for report in again] == [2, 3]
    assert payload(path) == payload(whole.path) and again.rows[:6] == whole.rows[:6]  # type: ignore[arg-type]
    assert list(Sweep(SWEEP, OVER, path, resume=True)) == []


def test_folders_of_sweeps_and_runs_are_told_apart(full_sweep: tuple[Run, int], tmp_path: Any):
    path = shutil.copytree(full_sweep[0].path, tmp_path / "copy")  # type: ignore[type-var]
    with pytest.raises(RunError, match=r"already contains a sweep\. Resume it"):
        Sweep(SWEEP, OVER, path)
    other = {"learning_rate": (1e-3, 3e-2)}
    with pytest.raises(RunError, match=r"over was .*1e\+38\]\]\], is .*0.03\]\]\]\. Use"):
        Sweep(SWEEP, other, path, resume=True)
    with pytest.raises(RunError, match="another setup: over was"):
        Run(SWEEP, path, resume=True)
    with pytest.raises(RunError, match="This is a sweep over `learning_rate`"):
        runs.reopen(path)
    assert runs.saved_setup(path) == dataclasses.replace(SWEEP, over=OVER)
    Run(SETUP, tmp_path / "run")
    with pytest.raises(RunError, match="a run, not a sweep"):
        saved_sweep(tmp_path / "run")
    with pytest.raises(RunError, match=r"no sweep to resume in "):
        Sweep(SWEEP, OVER, tmp_path / "none", resume=True)
    assert saved_sweep(tmp_path / "none") is None


def test_a_sweep_does_not_go_on_in_another_order(tmp_path: pathlib.Path):
    """In which its lanes would be those of other settings."""
    over = {"learning_rate": (1e-3, 3e-2), "gamma": (0.5, 0.9)}
    Sweep(SWEEP, over, tmp_path)
    Sweep(SWEEP, over, tmp_path, resume=True)
    with pytest.raises(RunError, match=r"over was \[\['learning_rate', .* is \[\['gamma', "):
        Sweep(SWEEP, dict(reversed(over.items())), tmp_path, resume=True)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "`over` must map a setting"),
        ({"learning_rates": (1, 2)}, "settings of dqn; got 'learning_rates'. Try learning_rate"),
        ({"width": (8, 16)}, "got width, which is static.* Run one sweep per value"),
        ({"gamma": (0.5,)}, "at least two values for gamma, all different in 32 bits; got 0.5"),
        ({"gamma": (0.5, 0.9, 0.5 + 1e-12)}, "all different in 32 bits; got 0.5, 0.9, 0.5"),
        ({"gamma": ("high", "low")}, "must have numbers for gamma; got"),
        ({"gamma": (0.5, 2.0)}, "`gamma` must be between 0 and 1; got 2.0"),
    ],
)
def test_what_cannot_be_swept_is_named(over: Any, message: str, tmp_path: pathlib.Path):
    with pytest.raises(ValueError, match=message):
        Sweep(SWEEP, over, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def verdict_on(curves: Any, over: Any) -> runs.Verdict:
    """The verdict on a sweep that seems to have trained to these curves, [setting, seed, eval]."""
    sweep = Sweep(SWEEP, over)
    columns = np.asarray(curves, float).reshape(-1, np.shape(curves)[-1]).T
    history = [{"returns": column.tolist()} for column in columns]
    sweep.snapshot = sweep.snapshot._replace(history=history)
    return sweep.verdict()


def test_the_winner_is_told_apart_by_its_own_seeds():
    flat = np.ones((3, 3, 8)) * np.array([[0.1, 0.2, 0.3]]).T  # seeds, of which one is lucky
    over = {"learning_rate": (3e-2, 1e-3, 1e-2)}
    result = verdict_on(flat + np.array([[[0.0]], [[0.05]], [[0.1]]]), over)
    assert result.winner.setting == {"learning_rate": 1e-2} and result.equals == []
    assert result.edges == [] and result.winner.final == pytest.approx(0.3)
    assert result.winner.interval == pytest.approx((0.2, 0.4))
    curves = flat + np.array([[[0.0]], [[0.1]], [[0.04]]])
    curves[2, 0] += 0.1  # on one seed of three the other is better
    result = verdict_on(curves, over)
    assert result.winner.setting == {"learning_rate": 1e-3} and result.edges == ["learning_rate"]
    assert [one.setting["learning_rate"] for one in result.equals] == [1e-2]


def test_equal_scores_are_decided_by_area_as_in_the_course():
    curves = np.ones((4, 3, 8))
    curves[0, :, :2], curves[2, :, :4], curves[3] = 0.0, 0.0, np.nan
    curves[2] += 0.002  # less than half a percent of the span
    result = verdict_on(curves, {"gamma": (0.9, 0.5), "tau": (0.1, 0.2)})
    assert result.winner.setting == {"gamma": 0.9, "tau": 0.2} and result.edges == ["gamma", "tau"]
    assert result.winner.best == 1.0 and result.winner.area == 1.0
    assert len(result.equals) == 2
    assert [one.setting for one in result.ties] == [
        {"gamma": 0.9, "tau": 0.1},
        {"gamma": 0.5, "tau": 0.1},
    ]
    every = verdict_on(np.full((2, 3, 8), np.nan), {"gamma": (0.5, 0.9)})
    assert every.winner.final == -np.inf and len(every.equals) == 1


def test_nothing_is_scored_before_the_first_block():
    with pytest.raises(ValueError, match="no score before the first block"):
        Sweep(SWEEP, OVER).verdict()
