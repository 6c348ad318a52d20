"""The two forms of fast and forgetful memory: rows are of the form that they name."""

import jax
import pytest

from mmrl import memory
from mmrl.course.ch07_train_it import experiment_ffm as ffm


@pytest.mark.slow
def test_every_row_says_which_form_it_is_of(monkeypatch):
    monkeypatch.setattr(ffm.batching, "measure", lambda cell, quick: {"cell": cell.name})
    for cell in ffm.cells():
        row, config = ffm.measure(cell), cell.config
        sizes = dict(config.memory_sizes)
        model = memory.make(config.memory, 4, 4, key=jax.random.key(0), **sizes)
        assert isinstance(model, memory.FFM)
        assert row["form"] == ("code" if model.mlp is None else "printed")
        assert ("printed" in row["cell"]) == (model.mlp is not None)
    assert len({cell.name for cell in ffm.cells()}) == 2 * len(ffm.TASKS)
