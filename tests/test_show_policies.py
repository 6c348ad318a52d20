"""What chapter 10 draws, and the experiment behind it."""

import dataclasses
import json
import pathlib
from typing import Any

import jax
import numpy as np
import pytest

from mmrl.runs.experiments import ppo
from mmrl.show import policies


def row(memory: str, **changes: Any) -> dict[str, Any]:
    base = {
        "cell": f"Task, {memory}", "memory": memory, "returns": [[0.0, 0.5], [0.0, 1.0]],
        "env_steps": [1000, 2000], "interquartile_mean": 0.75, "interval_95": [0.5, 1.0],
        "learning_rate": 1e-3, "cpu_seconds": [1.0, 2.5],
    }  # fmt: skip
    return base | changes


def test_every_row_is_a_curve_of_its_name():
    ax = policies.curves([row("lru"), row("gru")], lambda r: r["memory"], best=1.0, title="Task")
    assert {"lru", "gru", "best"} <= {text.get_text() for text in ax.texts}
    ends = [line.get_ydata()[-1] for line in ax.get_lines() if line.get_linewidth() == 2]
    assert [float(end) for end in ends] == [0.75, 0.75]


@pytest.mark.parametrize("other", [row("lru"), row("gru", env_steps=[1000, 3000])])
def test_rows_that_do_not_fit_together_are_refused(other: dict[str, Any]):
    with pytest.raises(ValueError, match="`rows` must have one name each"):
        policies.curves([row("lru"), other], lambda r: r["memory"])


def test_a_summary_has_a_line_per_row():
    first, second = policies.summary([row("lru"), row("none")]).splitlines()
    assert first.startswith("Task, lru") and "[   0.50,    1.00]" in first and "2 k steps" in first
    assert "2.5 CPU-s" in second


def test_cells_are_the_ones_that_are_published():
    path = pathlib.Path(__file__).parent.parent / "book" / "results" / "ppo.jsonl"
    known = {cell.name: cell for cell in ppo.cells()}
    assert len(known) == len(ppo.cells())
    for line in path.read_text("utf-8").splitlines():
        published = json.loads(line)
        cell = known[published["cell"]]
        assert published["settings"] == json.loads(json.dumps(ppo._settings(cell)))
        assert not published["quick"] and published["learning_rate"] in cell.rates
        assert not set(published["seeds"]) & set(published["tuning_seeds"])


@pytest.mark.slow
def test_forgetting_matters_once_there_is_something_to_forget(monkeypatch: pytest.MonkeyPatch):
    """The first rollout begins with the zero state, the second does not."""
    monkeypatch.setattr(ppo, "BATCH", 64)
    rates, keys = np.float32([1e-3]), jax.vmap(jax.random.key)(np.arange(1, dtype=np.uint32))
    runs = []
    for start in ppo.STARTS:
        cell = ppo.Cell("RepeatPreviousPaper", "gru", 16, start)
        config = dataclasses.replace(cell.config, **ppo.QUICK)
        init, block = ppo._compiled(cell.task, start)
        first, _ = block(config, rates, init(config, rates, keys))
        runs.append((first, block(config, rates, first)[0]))
    for (carried, forgotten), same in zip(zip(*runs, strict=True), (True, False), strict=True):
        pairs = zip(jax.tree.leaves(carried.net), jax.tree.leaves(forgotten.net), strict=True)
        assert all(np.allclose(a, b, atol=1e-6) for a, b in pairs) == same
