"""The experiment on other libraries: what its runs are, and what chance is."""

import numpy as np
import pytest

from mmrl.course.experiments import experiment_adapters as adapters


def test_cells_differ_in_task_and_length_only():
    setups = [cell.setup() for cell in adapters.GRID.cells]
    assert [x.env for x in setups] == [*adapters.STEPS]
    for setup, steps in zip(setups, adapters.STEPS.values(), strict=True):
        config = setup.config
        assert config.memory == "gru" and setup.seeds == adapters.SEEDS
        assert 0 <= config.blocks * config.block_steps - steps < config.block_steps
    assert any(":" in x.env for x in setups)


@pytest.mark.full
def test_chance_is_that_of_random_actions():
    """Half of the guesses are right; the error of their mean is 0.016."""
    np.testing.assert_allclose(adapters.chance("probe-Match-v0", 4000), 0, atol=0.06)
