"""The experiment on pictures: pairs of cells differ in their network only."""

import dataclasses

import pytest

from mmrl.course.experiments import experiment_pictures as pictures


def test_pairs_differ_in_the_encoder_only():
    games = [cell for cell in pictures.cells() if "MinAtar" in cell.task]
    for ours, flat in zip(games[::2], games[1::2], strict=True):
        assert (ours.encoder, flat.encoder) == ("auto", "dense")
        config = dataclasses.replace(ours.setup().config, encoder="dense")
        assert config == flat.setup().config and ours.setup().env == flat.setup().env
    assert len({cell.name for cell in pictures.cells()}) == len(pictures.cells()) == 18


@pytest.mark.parametrize("cell", pictures.cells(), ids=lambda cell: cell.name)
def test_a_run_has_at_least_the_steps_of_its_method(cell: pictures.Cell):
    config, steps = cell.setup().config, pictures.STEPS[cell.method]
    assert 0 <= config.blocks * config.block_steps - steps < config.block_steps
    assert cell.setup(quick=True).config.blocks == 1
