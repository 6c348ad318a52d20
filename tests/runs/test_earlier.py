"""Runs, sweeps and exported policies that earlier versions wrote open, and continue."""

import dataclasses
import io
import json
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import pytest

from mmrl import runs
from mmrl.agents import AGENTS, ppo, repeatable
from mmrl.runs import Run, Sweep, checkpoint, saved_sweep, zoo
from mmrl.runs.earlier import current_names, earlier
from mmrl.runs.export import export
from tests.helpers.runs import leaves

EARLIER = pathlib.Path(__file__).parent / "earlier"
FOLDERS = EARLIER / "cbd53b8"  # two blocks each, and in continued.json the third one
THIRD_BLOCK: dict[str, Any] = json.loads((FOLDERS / "continued.json").read_text())


def arrays_of(path: pathlib.Path) -> list[np.ndarray]:
    """Return the arrays of a checkpoint, read without the library's `load`."""
    with np.load(io.BytesIO(checkpoint.read(path)[1])) as file:
        return [file[name] for name in file.files]


def check_third_block(training: Run, expected: dict[str, Any]) -> None:
    """Train the third block: up to rounding, it is what the earlier version computed."""
    (report,) = training
    assert report.env_steps == expected["env_steps"]
    np.testing.assert_allclose(report.loss, expected["loss"], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(report.fill, expected["fill"])


@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_before_agents_had_parts_is_opened(agent: str, tmp_path: pathlib.Path):
    """Files of one block on probe-Memory-v0, which the library wrote as it was at ea771e4."""
    path = EARLIER / f"{agent}.checkpoint"
    if not path.exists():
        pytest.skip(f"{agent} was not there then")
    shutil.copy(path, tmp_path / "checkpoint")
    run = runs.reopen(tmp_path)
    assert run.setup.agent == agent and len(run.history) == 1
    config = dataclasses.replace(run.setup.config, blocks=2)
    longer = Run(dataclasses.replace(run.setup, config=config), tmp_path, resume=True)
    for old, new in zip(leaves(run.state), leaves(longer.state), strict=True):
        np.testing.assert_array_equal(old, new)
    arrays = [np.asarray(x) for x in jax.tree.leaves(run.state.net)]
    assert all(np.isfinite(x).all() for x in arrays) and max(np.abs(x).max() for x in arrays) < 9


@pytest.mark.full_except("dqn")
@pytest.mark.parametrize("agent", sorted(set(THIRD_BLOCK) - {"sweep"}))
def test_a_run_continues(agent: str, tmp_path: pathlib.Path):
    path = shutil.copytree(FOLDERS / agent, tmp_path / agent)
    run = runs.reopen(path, best=True)
    setup = run.setup
    assert run.best is not None and len(run.history) == 2
    old = {x.tobytes() for x in arrays_of(path / "checkpoint")}
    new = [np.asarray(x) for x in leaves(run.state)]
    assert all(x.tobytes() in old for x in new if np.any(x))  # arrays added later are zeros
    longer = dataclasses.replace(setup, config=dataclasses.replace(setup.config, blocks=3))
    check_third_block(Run(longer, path, resume=True), THIRD_BLOCK[agent]["row"])


@pytest.mark.full
def test_a_sweep_continues(tmp_path: pathlib.Path):
    path = shutil.copytree(FOLDERS / "sweep", tmp_path / "sweep")
    there = saved_sweep(path)
    assert there is not None
    setup, over = there
    assert over == {"learning_rate": [1e-3, 1e-2]}
    longer = dataclasses.replace(setup, config=dataclasses.replace(setup.config, blocks=3))
    check_third_block(Sweep(longer, over, path, resume=True), THIRD_BLOCK["sweep"]["row"])


@pytest.mark.parametrize("agent", ["dqn", "ppo"])
def test_an_exported_policy_plays_and_is_exported_alike(agent: str, tmp_path: pathlib.Path):
    old = zoo.load(FOLDERS / f"{agent}.npz")
    rewards = sum(step.reward for step in zoo.play(old, episodes=4, seed=0))
    assert np.isfinite(rewards).all()
    export(runs.reopen(FOLDERS / agent, best=True), tmp_path / "new.npz", None, True)
    new = zoo.load(tmp_path / "new.npz")
    assert {**new.about, "setup": 0} == {**old.about, "setup": 0}  # settings were added since
    for name, array in old.arrays.items():
        np.testing.assert_allclose(new.arrays[name], array, rtol=1e-5, atol=1e-6)


def test_zeros_of_an_earlier_setup_are_sizes_that_are_chosen_automatically():
    zeros = {"batch": 0, "capacity": 0, "horizon": 0.0, "burn_in": 0}
    setups = {
        agent: {"agent": agent, "observes": [], "config": zeros} for agent in ("dqn", "clear")
    }
    today = {agent: earlier(setup)["config"] for agent, setup in setups.items()}
    assert today["dqn"] == {"batch": None, "capacity": None, "horizon": None, "burn_in": 0}
    assert today["clear"] == {**today["dqn"], "capacity": 0}  # without a reservoir
    assert earlier(earlier(setups["dqn"])) == earlier(setups["dqn"]) and zeros["batch"] == 0


def test_settings_with_former_names_are_renamed():
    config = {"memory": "ffm", "memory_sizes": [["printed", 1]], "stored": "uint8"}
    today = earlier({"agent": "clear", "observes": [], "config": config})["config"]
    expected = {"memory_sizes": [["use_mlp", 1]], "storage_dtype": "uint8"}
    assert today == {"memory": "ffm", **expected}
    again = {**config, "memory": "window"}  # another memory may have a size of this name
    assert current_names(again)["memory_sizes"] == config["memory_sizes"]


def test_a_run_in_several_shards_is_refused():
    whole = {"agent": "dqn", "observes": [], "config": {}}
    assert earlier(whole | {"shards": 1}) == whole
    with pytest.raises(runs.RunError, match=r"4 shards.* commit f6dd5f2 .*--devices 4"):
        earlier(whole | {"shards": 4})


def test_a_horizon_of_zero_in_an_earlier_sweep_is_the_length_of_the_run():
    over = {"horizon": (0.0, 8.0)}
    setup = runs.Setup("probe-Memory-v0", ppo.Config(blocks=3), agent="ppo", over=over)
    assert [repeatable(config).horizon for config in setup.configs] == [3.0, 8.0]
