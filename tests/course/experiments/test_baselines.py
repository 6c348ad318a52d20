"""The experiment on defaults: runs with other settings are set aside, and measured again."""

import dataclasses
import pathlib

import pytest

from mmrl.course.experiments import experiment_baselines as baselines
from mmrl.runs import describe
from tests.helpers.runs import SETUP, setup


def test_a_run_with_other_settings_is_set_aside(tmp_path: pathlib.Path):
    folder = tmp_path / "cell"
    first, cpu = baselines.train(setup(blocks=1), folder)
    assert len(first.history) == len(cpu or ()) == 1
    longer, _ = baselines.train(setup(blocks=2), folder)
    assert len(longer.history) == 2 and not list(tmp_path.glob("*-earlier-*"))
    for count, changes in enumerate(({"gamma": 0.7}, {"gamma": 0.7, "blocks": 1}), 1):
        other = setup(**({"blocks": 2} | changes))
        run, cpu = baselines.train(other, folder)
        assert run.setup == other and len(run.history) == other.config.blocks
        assert len(cpu or ()) == other.config.blocks
        assert len(list(tmp_path.glob("*-earlier-*"))) == count


@pytest.mark.parametrize("changes", [{"gamma": 0.7}, {"blocks": 1}])
def test_a_run_continues_only_with_equal_settings_and_more_blocks(changes: dict):
    now = describe(SETUP)
    assert baselines.continues(now, describe(setup(blocks=SETUP.config.blocks + 1)))
    assert not baselines.continues(now, describe(setup(**changes)))
    assert not baselines.continues(describe(dataclasses.replace(SETUP, seeds=(5,))), now)
