"""What the README and the site say of the baselines is what their rows say."""

from pathlib import Path

import pytest

from mmrl.agents import AGENTS
from mmrl.course.experiments.baselines import LEVELS, MEMORIES
from mmrl.course.results import published

ROOT = Path(__file__).parent.parent.parent
HELD = 4  # of five seeds; a score that fewer kept is in italics


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str], str]:
    """How an agent's defaults ended on a task, with an LRU and a GRU, as the README writes it."""
    defaults = [row for row in published("baselines") if not row.get("changes")]
    rows = {(row["task"], row["agent"], row["memory"]): row for row in defaults}
    assert not any(row["quick"] for row in defaults)

    def score(row):
        if row is None:
            return "–"
        value = f"{row['interquartile_mean']:.{0 if LEVELS[row['task']][1] > 1 else 2}f}"
        value = value.replace("-", "−")
        return value if row["learned_and_stayed"] >= HELD else f"*{value}*"

    return {
        (agent, task): ", ".join(score(rows.get((task, agent, m))) for m in MEMORIES)
        for agent in AGENTS
        for task in LEVELS
    }


def test_the_readme_shows_how_each_agent_ended(cells: dict[tuple[str, str], str]):
    readme = (ROOT / "README.md").read_text("utf-8")
    for agent in AGENTS:
        line = " | ".join([f"| {agent}", *(cells[agent, task] for task in LEVELS)]) + " |"
        assert line in readme, f"the README should say\n{line}"
