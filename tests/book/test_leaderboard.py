"""The page of the leaderboard, built from entries."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from docutils import nodes

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "book" / "tools"))
import leaderboard  # noqa: E402

from mmrl.course.capstone import baselines, checks, entries, evaluation, gates  # noqa: E402
from mmrl.course.ch19_design_your_own_monoid import figures as capstone  # noqa: E402


def entry(
    name: str, score: float, seconds: float = 100.0, protocol: str = "full"
) -> dict[str, Any]:
    return {
        "name": name,
        "protocol": {"name": protocol},
        "source": {"file": "mine.py", "sha256": "ab" * 32},
        "seeds": [0, 1, 2, 3, 4],
        "tuning": {"tasks": ["popgym-RepeatFirstEasy-v0"], "seeds": [100]},
        **{"state": 64, "parameters": 1234, "remembers": 8},
        **{"score": score, "interval_95": [score - 0.1, score + 0.1], "cpu_seconds": seconds},
        **{"date": "2026-11-25T00:00:00", "command": "mmrl capstone run <mine>", "device": "cpu"},
        **{"versions": {"mmrl": "1", "jax": "2"}, "revision": "abc"},
    }


ENTRIES = [entry("oracle", 0.7), entry("mine", 0.4, 150.0), entry("lru", 0.3), entry("none", 0.0)]


def test_the_page_is_made_of_the_files_in_the_folder(tmp_path: Path):
    for i, one in enumerate([*ENTRIES[::-1], entry("hasty", 0.9, protocol="quick")]):
        (tmp_path / f"{i}.json").write_text(json.dumps(one))
    result = leaderboard.ranking(tmp_path)
    assert [one["name"] for one in result] == ["oracle", "mine", "lru", "none"]  # and no quick look
    rows = re.findall(
        r"<td>(\w+)</td><th scope=\"row\">(\w+)</th><td>([^<]*)", leaderboard.table(result)
    )
    assert rows == [
        ("control", "oracle", "0.70 (0.60 to 0.80)"),
        ("1", "mine", "0.40 (0.30 to 0.50)"),
        ("2", "lru", "0.30 (0.20 to 0.40)"),
        ("control", "none", "0.00 (-0.10 to 0.10)"),
    ]
    text = leaderboard.origins(result)
    assert "tuned on popgym-RepeatFirstEasy-v0, 100" in text and "run &lt;mine&gt;" in text


def test_the_figure_says_in_words_what_it_shows():
    picture = leaderboard.picture(ENTRIES)
    assert picture == leaderboard.picture(ENTRIES)
    assert 'alt="Return against CPU-seconds: oracle 0.70 (0.60 to 0.80), 100 CPU-s; mine' in picture
    assert 'src="data:image/svg+xml;base64,' in picture and "http" not in picture


def test_marks_stand_at_return_and_time_and_controls_are_hollow():
    ax = capstone.leaderboard(ENTRIES)
    marks = {(float(line.get_xdata()[0]), float(line.get_ydata()[0])): line for line in ax.lines}
    hollow = {at for at, line in marks.items() if line.get_markerfacecolor() == "white"}
    assert hollow == {(100.0, 0.7), (100.0, 0.0)} and (150.0, 0.4) in marks
    assert [text.get_text() for text in ax.texts] == ["none", "lru", "mine", "oracle"]
    assert [text.get_ha() for text in ax.texts] == ["left"] * 4
    near = capstone.leaderboard([entry("a", 0.4), entry("b", 0.42, 110.0)])
    assert [text.get_ha() for text in near.texts] == ["right", "left"]
    with pytest.raises(ValueError, match="`entries` must"):
        capstone.leaderboard([])


@pytest.mark.slow
def test_what_was_published_is_what_it_says():
    """All that is asked without training; the gates have tests of their own."""
    result = entries.leaderboard()
    assert {"none", "frames", "lru", "gru", "oracle"} <= {one["name"] for one in result}
    for one in result:
        source = entries.RESULTS / "capstone" / one["source"]["file"]
        factory, file = entries.find(one["memory"], source)
        assert entries._hash(file.read_bytes()) == one["source"]["sha256"], one["name"]
        assert (one["state"], one["parameters"]) == gates.sizes(factory)
        assert not [*checks.budgets(one, evaluation.FULL), *checks.arithmetic(one)]
        assert not [*checks.tuning_complaints(one["tuning"])]
        assert one["revision"] and not one["revision"].endswith("+"), one["name"]
        assert entries.control(one) == (one["name"] in baselines.CONTROLS)


def test_the_page_of_no_entries_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leaderboard, "RESULTS", tmp_path)

    class Env:
        def note_reread(self) -> None: ...

    directive = leaderboard.Leaderboard.__new__(leaderboard.Leaderboard)
    monkeypatch.setattr(leaderboard.Leaderboard, "env", Env())
    (node,) = directive.run()
    assert isinstance(node, nodes.paragraph) and "no entries" in node.astext()
