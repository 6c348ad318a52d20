"""`mmrl gap`: three runs that differ in what they observe and remember, and nothing else."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.commands import gap
from mmrl.runs import saved_setup
from tests.helpers.runs import ARGUMENTS, SETUP, setup

ENV = "probe-Memory-v0"


def test_the_runs_differ_in_what_they_observe_and_remember():
    state, memory, none = gap.setups(SETUP).values()
    assert memory == SETUP and state.observe == "state"
    assert dataclasses.replace(state, observe="observation") == none
    assert none.config.memory == "none" and none.config.memory_sizes == ()
    same = {"memory": SETUP.config.memory, "memory_sizes": SETUP.config.memory_sizes}
    assert dataclasses.replace(none.config, **same) == SETUP.config
    with pytest.raises(ValueError, match="`memory` must differ from none"):
        gap.setups(setup(memory="none", memory_sizes=()))


def test_the_share_of_a_gap_is_stated_only_where_there_is_one():
    low, middle, high = np.array([0.0, 0.1, 0.0]), np.array([0.5, 0.5, 0.6]), np.ones(3)
    lines = list(gap.verdict({"state": high, "memory": middle, "none": low}))
    assert len(lines) == 2 and "0.967" in lines[0] and "52%" in lines[1]
    lines = list(gap.verdict({"state": low, "memory": middle, "none": low}))
    assert len(lines) == 3 and "%" not in lines[1]


def test_an_environment_without_a_state_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["gap", "CartPole-v1"]) == 2
    assert "must have a method `state_obs" in capsys.readouterr().err


@pytest.mark.parametrize("word", gap.EXCLUSIONS)
def test_options_that_do_not_fit_are_refused(word: str, capsys: pytest.CaptureFixture[str]):
    assert main(["gap", ENV, word]) == 2
    assert word in capsys.readouterr().err


@pytest.mark.full
def test_a_gap_is_measured_and_continued(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    arguments = ["gap", ENV, *ARGUMENTS, "--out", "gap"]
    assert main([*arguments, "--blocks", "1"]) == 0
    assert main([*arguments, "--blocks", "2"]) == 0
    rows = pathlib.Path("gap/gap.jsonl")
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text(lines[0])  # as if the process was killed before it wrote the second row
    for _ in range(2):  # the second time, the row exists
        assert main([*arguments, "--blocks", "2"]) == 0
    first, second = map(json.loads, rows.read_text().splitlines())
    assert second["returns"] == json.loads(lines[1])["returns"]
    assert first["seeds"] == second["seeds"] == [0, 1]
    for name, one in gap.setups(setup(blocks=2)).items():
        assert saved_setup(tmp_path / "gap" / name) == one
        assert np.shape(first["returns"][name]) == np.shape(second["returns"][name]) == (2,)
    assert "Observability gap" in capsys.readouterr().out
    assert main(["gap", "CartPole-v1", *ARGUMENTS, "--out", "none"]) == 2
    assert "state_obs" in capsys.readouterr().err and not pathlib.Path("none").exists()
