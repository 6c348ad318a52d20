"""`mmrl inspect`: what it measures, prints and writes, and what it refuses."""

import json
import pathlib

import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.commands.inspect import Options, _folder, _recall, columns, compare
from mmrl.inspect.report import STAGES, sentences
from tests.helpers.runs import ARGUMENTS

ZOO = "zoo/RepeatFirstEasy-dqn-none"
SMALL = ["--episodes", "4", "--steps", "6"]


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "There is no checkpoint in nowhere"),
        ([ZOO, "--episodes", "3"], "`episodes` must be at least 4; got 3"),
        ([ZOO, "--steps", "1"], "`steps` must be at least 2; got 1"),
        ([ZOO, "--seed", "-1"], "`seed` must be between 0"),
        ([ZOO, "--parts", "first"], "`parts` must be written as FIRST:END, such as 0:4"),
        ([ZOO, "--best"], "`--best` must be omitted"),
        ([ZOO, "--gap"], "`--gap` must be omitted"),
        ([ZOO, "--network", "0"], "`--network` must be omitted"),
    ],
)
def test_a_mistake_ends_in_one_message(
    arguments: list[str],
    message: str,
    here: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
):
    assert main(["inspect", *arguments]) == 2
    output = capsys.readouterr().err
    assert output.startswith("mmrl: ") and message in output and output.count("\n") == 1
    assert not [*here.iterdir()]


def test_a_folder_is_named_after_the_whole_name(here: pathlib.Path):
    folders = [_folder(Options(pathlib.Path(x))) for x in ("run-0.5", "run-0.7", "old.npz")]
    assert [x.name for x in folders] == ["run-0.5-inspect-1", "run-0.7-inspect-1", "old-inspect-1"]
    assert not _folder(Options(pathlib.Path("run"), out=pathlib.Path("new"))).exists()


def test_runs_are_compared_after_the_same_number_of_blocks():
    curve = [{"returns": [float(i), 2.0 * i]} for i in range(5)]
    result = compare({"memory": curve[:3], "state": curve, "none": curve[1:]})
    assert result["gap_blocks"] == 3
    assert result["gap"] == {"memory": [2, 4], "state": [2, 4], "none": [3, 6]}


def test_a_table_has_the_largest_lag():
    assert columns(range(101)) == [0, 1, 2, 4, 8, 100] and columns(range(3)) == [0, 1, 2]
    assert columns([0, 1, 2, 4, 8, 16, 32]) == [0, 1, 2, 4, 8, 32]


def test_recall_is_shown_at_the_lag_that_decides():
    effects = {name: [0.5, *[-0.0001] * 50] for name in ("gradient", "change", "flips")}
    effects["flips"][3] = 0.875
    table = _recall({**effects, "reach": dict.fromkeys(effects, 4), "pairs": [9] * 51})
    cells = [[str(column.header), *column.cells] for column in table.columns]
    assert [first for first, *_ in cells[2:]] == ["0", "1", "2", "3", "4", "8", "50"]
    assert cells[5][1:] == ["0.000", "0.000", "0.875"]


@pytest.mark.full
def test_an_agent_without_memory_is_reported(
    here: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["inspect", ZOO, *SMALL, "--parts", "0:4"]) == 0
    folder = here / "results" / "RepeatFirstEasy-dqn-none-inspect-1"
    numbers = json.loads((folder / "inspect.json").read_text("utf-8"))
    assert numbers["recall"]["ignores_memory"] and numbers["recall"]["reach"]["flips"] <= 1
    assert set(STAGES) < set(numbers) and numbers["decodability"]["parts"]["state 0:4"]
    assert (folder / "inspect.png").stat().st_size > 10_000
    output = capsys.readouterr().out
    assert all(line in output for line in sentences(numbers))
    assert main(["inspect", ZOO, *SMALL, "--parts", "0:99"]) == 2
    assert "`parts` must be within" in capsys.readouterr().err
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert main(["inspect", ZOO, *SMALL, "--out", str(folder)]) == 2
    assert "Choose another folder" in capsys.readouterr().err


@pytest.mark.full
def test_a_run_and_its_gap_are_measured(here: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", "probe-Memory-v0", *ARGUMENTS, "--blocks", "1", "--out", "run"]) == 0
    assert main(["inspect", "run", *SMALL, "--network", "1", "--gap", "--out", "found"]) == 0
    numbers = json.loads((here / "found" / "inspect.json").read_text("utf-8"))
    assert numbers["agent"]["seed"] == 1 and np.shape(numbers["recall"]["flips_at"]) == (5, 5)
    assert {*numbers["gap"]} == {"memory", "state", "none"}
    assert "Observability gap" in capsys.readouterr().out and numbers["gap_blocks"] == 1
    assert main(["inspect", "run", *SMALL, "--network", "1", "--gap", "--out", "found"]) == 2
    assert main(["inspect", "run", "--network", "7"]) == 2
    assert "`network` must be a seed of the run, one of [0, 1]; got 7" in capsys.readouterr().err
