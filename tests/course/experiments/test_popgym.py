"""The POPGym table: what is counted as a return of training, and the score made of it."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.course.experiments import experiment_baselines as baselines
from mmrl.course.experiments import experiment_popgym as popgym
from mmrl.course.experiments.experiment_popgym import BLOCKS, SEEDS, Tally
from mmrl.envs.popgym import LEVELS, SPECS
from mmrl.rollout import collect, start
from mmrl.runs import Run, Snapshot

BLOCK = 30
TASK = "popgym-MineSweeperEasy-v0"  # whose episodes have 1 to 14 steps


def test_episodes_are_counted_in_the_block_in_which_they_end():
    env = Tally(SPECS[TASK](), BLOCK, 3)

    def policy(state, obs, begin, key):
        return state, jax.random.randint(key, (), 0, env.num_actions)

    @jax.jit
    def play(key):
        carry = start(env, env.default_params, None, key)
        return collect(policy, env, env.default_params, carry, key, 3 * BLOCK)

    carry, steps = play(jax.random.key(6))
    returns, episodes, total = np.zeros(3), np.zeros(3, int), 0.0
    for t, (reward, last) in enumerate(zip(steps.reward, steps.last, strict=True)):
        total += float(reward)
        if last:
            returns[t // BLOCK] += total
            episodes[t // BLOCK] += 1
            total = 0.0
    tally = carry.env_state
    assert steps.last[BLOCK - 1] and len(set(episodes.tolist())) > 1
    np.testing.assert_array_equal(tally.episodes, episodes)
    np.testing.assert_allclose(tally.returns, returns, atol=1e-6)
    assert tally.clock == 3 * BLOCK and jnp.isclose(tally.total, total)


def test_the_score_is_the_mean_over_trials_of_the_best_block():
    episodes = np.array([[[0, 1, 4], [0, 3, 4]], [[2, 2, 2], [2, 2, 2]]])  # [seed, env, block]
    returns = np.array([[[0.0, 1, 2], [0, 2, 0]], [[-2, -1, -2], [-2, -2, -2.5]]])
    report = popgym.scores(returns, episodes)
    assert report["returns"] == [[None, 0.75, 0.25], [-1.0, -0.75, -1.125]]
    assert report["trials"] == [0.75, -0.75] and report["mmer"] == 0.0
    assert report["least_episodes"] == 0


def test_every_cell_has_whole_blocks_of_the_benchmarks_batch():
    for cell in (popgym.GRID.cells[0], popgym.GRID.cells[-1]):
        setup = cell.setup()
        config = setup.config
        assert config.environments * config.rollout * config.block == 65_536
        assert setup.env.block * config.environments == 65_536
        assert setup.env.blocks == config.blocks == BLOCKS[cell.steps] and setup.seeds == SEEDS


def test_two_cells_of_each_task_bound_what_a_memory_gains():
    for task in ("RepeatFirst", "Concentration"):
        none, state = (popgym.Cell(task, "Easy", bound).setup() for bound in popgym.BOUNDS)
        assert none.config == state.config and none.config.memory == "none"
        assert (none.observe, state.observe) == ("observation", "state")
    cells = [cell for cell in popgym.GRID.cells if cell.memory in popgym.BOUNDS]
    assert len(cells) == 2 * 3 * len(LEVELS) and {cell.steps for cell in cells} == {"3M"}


def test_a_cell_goes_on_where_its_folder_was_left(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    """Also one with an environment that no command names; an empty folder is none."""
    setup, calls = popgym.GRID.cells[0].setup(quick=True), []

    class Spy(Run):
        def __init__(self, setup, folder, resume):
            calls.append(resume)
            self.snapshot = Snapshot({}, None, [], None, {})

        def __iter__(self):
            return iter(())

    monkeypatch.setattr(baselines, "Run", Spy)
    baselines.train(setup, tmp_path)
    Run(setup, tmp_path / "run")  # killed before its first block
    baselines.train(setup, tmp_path / "run")
    assert calls == [False, True]
