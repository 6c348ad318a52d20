"""The zoo: small files that hold all there is to know about them, and play as they say."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.runs import RunError, restore, zoo

FIELDS = {"date", "command", "device", "python", "versions", "revision", "setup", "return", "block"}


def test_every_agent_is_small_and_says_how_it_was_trained():
    assert len(zoo.names()) >= 10
    for name in zoo.names():
        about = zoo.load(f"zoo/{name}").about  # without pickles: see player.load
        assert (zoo.ZOO / f"{name}.npz").stat().st_size < 150_000, name
        assert about.keys() >= FIELDS and about["revision"].isalnum(), name
        setup = restore(about["setup"])
        assert (setup.env, setup.agent) == (about["env"], about["agent"]), name
        assert name.endswith(f"-{about['agent']}-{about['memory']}"), name
        assert about["seed"] in setup.seeds and 1 <= about["block"] <= setup.config.blocks, name
        assert about["command"].startswith(f"mmrl train {about['env']} "), name


@pytest.mark.slow
def test_an_agent_plays_as_its_file_says(capsys: pytest.CaptureFixture[str]):
    name = "zoo/RepeatPreviousEasy-r2d2-lru"
    assert main(["evaluate", name, "--episodes", "8"]) == 0
    output, about = capsys.readouterr().out, zoo.load(name).about
    assert about["command"] in output and about["revision"] in output
    steps = list(zoo.play(zoo.load(name), 8, seed=1_000_000))
    returns = np.sum([step.reward for step in steps], axis=0)
    assert len(steps) == 51 and abs(returns.mean() - about["return"]) < 0.2
    assert f"{returns.mean():.3f}" in output


def test_what_is_not_there_or_damaged_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(zoo.ZOO, tmp_path / "zoo")
    file = tmp_path / "zoo" / "CartPole-ppo-none.npz"
    file.write_bytes(file.read_bytes()[:-100])
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    with pytest.raises(RunError, match=r"is damaged or was not written .* install mmrl again"):
        zoo.load("zoo/CartPole-ppo-none")
    with pytest.raises(RunError, match=r"is damaged or was not written .* export it again"):
        zoo.load(file)
    monkeypatch.undo()
    for arguments, message in (
        (["zoo/Chess"], "The zoo has no agent 'Chess'. Choose one of CartPole-dqn-gru, "),
        (["nowhere.npz"], "nowhere.npz: No such file"),
        (["zoo/CartPole-ppo-none", "--seed", "4294967296"], "`seed` must be between 0 and 2³² - 1"),
        (
            ["zoo/CartPole-ppo-none", "--best"],
            "`--best` must be omitted unless `path` is a run folder; got zoo/CartPole-",
        ),
    ):
        assert main(["evaluate", *arguments]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)  # where there is a folder zoo
    assert main(["evaluate", "zoo"]) == 0
    assert zoo.names()[-1] in capsys.readouterr().out


def test_a_damaged_agent_is_named_and_the_others_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    names = zoo.names()
    monkeypatch.setattr(zoo, "ZOO", shutil.copytree(zoo.ZOO, tmp_path / "zoo"))
    first, last = (zoo.ZOO / f"{names[i]}.npz" for i in (0, -1))
    first.write_bytes(first.read_bytes()[:-100])
    last.unlink()
    last.symlink_to("nowhere")  # which is listed, but cannot be opened
    assert main(["evaluate", "zoo"]) == 0
    output = capsys.readouterr().out
    assert [name for name in names if f"│ zoo/{name} " in output] == names[1:-1]
    assert f"zoo/{names[0]} is left out: {first} is damaged or was not written" in output
    assert "install mmrl again.\n" in output and f"zoo/{names[-1]} is left out: " in output
