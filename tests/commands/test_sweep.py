"""`mmrl train --over` and `--preset`: words become settings, and outcomes words."""

import dataclasses
import json
import pathlib
import shlex
import warnings
from typing import Any

import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.agents.presets import PRESETS
from mmrl.commands import outcome, progress, train
from mmrl.commands.options import parse
from mmrl.runs import SEEDS, Run, Setup, Sweep, saved_sweep
from tests.helpers.runs import CONFIG, arguments

ENV = "probe-Memory-v0"
SIZES = [ENV, *arguments(CONFIG)]
# The program of runs/test_sweep.py.
OVER = ["--over", "learning-rate", "1e-3", "3e-2", "1e38"]
FOLDER = pathlib.Path("results/probe-Memory-lru-tape-sweep-1")


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test in a folder of its own, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_tuning_seeds_are_not_those_that_are_reported():
    assert not {*SEEDS} & {*Setup.seeds}
    over = ["--over", "gamma", ".5", ".9"]
    assert parse([ENV, *over])[1].seeds == SEEDS == parse([ENV, *over], "sweep")[1].seeds
    assert parse([ENV, *over, "--seeds", "7"])[1].seeds == (7,)


@pytest.mark.full
def test_a_sweep_is_stopped_resumed_and_judged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def stop(jobs: Any) -> Any:
        for report in jobs[0]():
            yield 0, report
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(progress, "in_background", stop)
        assert main(["sweep", *SIZES, *OVER, "--blocks", "3"]) == 130
    streams = capsys.readouterr()
    assert (
        "3 settings with 3 seeds each, 100 to 102. Report the best one on other seeds"
        in streams.out
    )
    assert "block 1/3, 32 steps each: learning-rate" in streams.out
    assert f"At least blocks 1 to 1 are saved in {FOLDER}; continue with:" in streams.err
    assert main(["sweep", "--resume"]) == 0
    output = capsys.readouterr().out
    assert "resumed after block 1 of 3" in output and "3 of 3 diverged" in output
    assert "Best: learning-rate 0." in output and "mmrl train probe-Memory-v0 --learning" in output
    assert main(["sweep", "--resume", "--blocks", "1"]) == 0
    output = capsys.readouterr().out
    assert "is fewer than the 3 that exist: no block" in output and "resumed" not in output
    result = saved_sweep(FOLDER)
    assert result and result[1] == {"learning_rate": [1e-3, 3e-2, 1e38]}
    rows = json.loads((FOLDER / "results.json").read_text())["rows"]
    assert len(rows) == 9 and {row["seed"] for row in rows} == {*SEEDS}
    assert main(["train", "--resume", "--out", str(FOLDER)]) == 0
    assert "Best: learning-rate 0." in capsys.readouterr().out
    assert main(["evaluate", str(FOLDER)]) == 2
    assert "This is a sweep over `learning_rate`" in capsys.readouterr().err


def test_what_devices_are_left_out_is_said_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def fewer(*args: Any) -> Run:
        warnings.warn("3 of 4 devices are used.", stacklevel=2)
        return Run(*args)

    monkeypatch.setattr(train, "Run", fewer)
    monkeypatch.setattr(train, "watch_sweep", lambda *_: None)
    assert main(["sweep", *SIZES, *OVER]) == 143  # nothing was trained
    output = capsys.readouterr()
    assert "\n3 of 4 devices are used.\n" in output.out and "Warning" not in output.err


def test_a_sweep_continues_next_to_a_table_and_writes_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(train, "watch_sweep", lambda *_: None)
    assert main(["train", *SIZES, *OVER]) == 143  # nothing was trained
    (FOLDER / "history.csv").write_text("my own")
    assert main(["train", "--resume"]) == 143
    assert (FOLDER / "history.csv").read_text() == "my own"
    assert main(["train", "--resume", "--log", "csv"]) == 2
    assert "`log` must be omitted with `over`" in capsys.readouterr().err


def words(curves: Any) -> str:
    """What is said of a sweep over γ that seems to have trained to these, [setting, seed, eval]."""
    one = Sweep(Setup(ENV, seeds=(1, 2)), {"gamma": (0.3, 0.5, 0.9)})
    history = [{"returns": x.tolist()} for x in np.reshape(curves, (6, -1)).T.astype(float)]
    one.snapshot = one.snapshot._replace(history=history)
    return outcome.verdict(one)


def test_the_last_command_repeats_the_whole_setup():
    own = ["--agent", "r2d2", "--preset", "paper", "--capacity", "10240", "--no-rescale"]
    own += ["--memory", "gru", "--precision", "tf32"]
    own += ["--memory-sizes", "state_size", "4", "--observes"]
    _, setup, _ = parse([ENV, *own, "--over", "eta", ".1", ".2"])
    command = shlex.split(outcome.to_train(setup, {"eta": 0.1 + 0.2}, 2))
    assert command[:5] == ["mmrl", "train", ENV, "--eta", "0.30000000000000004"]
    options, setup_of, _ = parse(command[2:])
    config = dataclasses.replace(setup.config, eta=0.1 + 0.2)
    for seeds, others in (((1, 2), {3, 4, 5, 6, 7}), ((7,), {0, 1, 2, 3, 4})):
        words = outcome.to_train(dataclasses.replace(setup, seeds=seeds), {"eta": 0.3}, None)
        assert {*parse(shlex.split(words)[2:])[1].seeds} == others
    assert setup_of == dataclasses.replace(setup, config=config, seeds=Setup.seeds, over=())
    assert options.devices == 2 and setup.over == (("eta", (0.1, 0.2)),)


def test_an_edge_and_equals_are_told():
    curves = np.ones((3, 2, 4)) * np.array([0.0, 1.0, 0.5])[:, None, None]
    assert words(curves).startswith("Best: gamma 0.5, 1.000 [1.000, 1.000].\nTrain it on other")
    curves[0, 0], curves[1] = 2.0, 0.2
    message = words(curves)
    assert "Best: gamma 0.3, 1.000" in message and "At the edge of the range: gamma." in message
    assert "2 other settings are not significantly worse: gamma 0.5; gamma 0.9." in message
    assert words(np.full((3, 2, 4), np.nan)).startswith("The loss of every setting diverged")


def test_the_rule_is_told_where_it_broke_a_tie():
    curves = np.ones((3, 2, 4)) * np.array([1.0, 0.996, 0.0])[:, None, None]
    curves[0, :, 0] = 0.5  # the last quarter is better, and the whole of it not
    message, rule = words(curves), "the larger area under the curve"
    assert (
        "Best: gamma 0.5, 0.996 [0.996, 0.996].\nA tie with gamma 0.3: scores within 0" in message
    )
    assert f"{rule}.\n" in message
    curves[1] = 0.994
    assert "Best: gamma 0.3, 1.000" in words(curves) and "tie" not in words(curves)
    curves[:2] = 1.0
    assert "Best: gamma 0.3" in words(curves)
    assert "A tie with gamma 0.5: s" in words(curves) and f"{rule}, and of equal" in words(curves)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep"], "ENVIRONMENT is missing. Example: `mmrl sweep popgym-"),
        (["sweep", ENV], "`over` must name a setting and its values, such as learning_rate"),
        (["train", ENV, "--over"], "`over` must name a setting and its values, such as learning"),
        (["sweep", ENV, "--over", "widht", "1", "2"], "settings of dqn; got 'widht'. Try width."),
        (["sweep", ENV, "--over", "width", "8", "16"], "got width, which is static"),
        (["sweep", ENV, "--over", "gamma", ".5"], "at least two values for gamma"),
        (["sweep", ENV, "--over", "gamma", ".5", ".50"], "all different in 32 bits; got 0.5, 0.5"),
        (["sweep", ENV, "--over", "gamma", "a", "b"], "must have numbers for gamma; got"),
        (["sweep", ENV, "--over", "tau", "1", "2"], "`tau` must be between 0 and 1; got 2"),
        (["sweep", ENV, *["--over", "tau", "0", "1"] * 2], "must name each setting once, with all"),
        (["sweep", ENV, "--clip", "1", "--over", "tau", "0", "1"], "--clip is an option of ppo"),
        (["sweep", "--resume"], "There is no sweep under results/ to resume"),
        (["sweep", "--resume", "--out", "x"], "There is no sweep to resume in x"),
        (["train", ENV, "--preset", "mine"], "`preset` of dqn must be one of paper; got 'mine'"),
        (["train", ENV, "--steps", "9", "--blocks", "1"], "`steps` must be omitted with `blocks`"),
        (["train", ENV, "--steps", "0"], "`steps` must be"),
        (
            ["train", ENV, "--over", "tau", ".1", "1", "--log", "csv"],
            "omitted with `over`, because",
        ),
    ],
)
def test_what_cannot_be_tried_is_said(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err and not pathlib.Path("results").exists()


@pytest.mark.parametrize("over", [[], ["--over", "eta", ".1", ".2"]])
def test_a_preset_is_what_other_options_change(over: list[str]):
    own = ["--agent", "r2d2", "--preset", "paper", "--capacity", "10240", "--gamma", ".9"]
    options, *_ = parse([ENV, *own, *over])
    paper = PRESETS["r2d2"]["paper"]
    fields = {k for k, v in vars(options.config).items() if v != getattr(paper.config, k)}
    assert fields == {"capacity", "gamma"} and options.observes == paper.observes


@pytest.mark.slow
@pytest.mark.parametrize("over", [[], ["--over", "eta", ".5", ".75"]])
def test_what_options_change_of_a_preset_is_said(
    over: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def changes_with(*words: str) -> str:
        with pytest.raises(KeyboardInterrupt):
            train.main([ENV, "--agent", "r2d2", "--preset", "paper", *words, *over])
        return " ".join(capsys.readouterr().out.split())

    monkeypatch.setattr(train, "watch_sweep" if over else "watch", stop)
    sentence = "Your options change eta=(0.5, 0.75) (from 0.9)." if over else ""
    same = changes_with(
        "--gamma", "0.997", "--episodes", "3"
    )  # as there, and what the paper does not say
    assert sentence in same and ("Your options change" in same) == bool(sentence)
    other = changes_with("--gamma", ".9", "--capacity", "102400", "--observes", "begin_flag")
    assert "Your options change gamma=0.9 (from 0.997), capacity=102400 (from 4003840), " in other
    assert "observes=('begin_flag',) (from ('previous_action', 'previous_reward'))." in other


def test_presets_are_listed_and_a_run_keeps_its_own(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "--presets"]) == 0
    output = capsys.readouterr().out
    names = [f"--agent {agent} --preset {name}:" for agent in PRESETS for name in PRESETS[agent]]
    assert all(name in output for name in names) and "On a smaller machine" in output
    arguments = [*SIZES, "--seeds", "0", "1", "--preset", "paper", "--rollout", "4"]
    _, setup, path = parse([*arguments, "--blocks", "1"])
    Run(setup, path)  # killed before its first block
    again, *_ = parse(["--resume", "--preset", "paper", "--blocks", "2"])
    assert again.config.rollout == 4 and again.config.blocks == 2
    with pytest.raises(ValueError, match="`preset` of dqn must be one of paper; got 'mine'"):
        parse(["--resume", "--preset", "mine"])


def test_steps_are_whole_blocks_that_reach_them():
    config = parse([*SIZES, "--steps", "1000"])[1].config
    assert config.block_steps == 32 and config.blocks == 32
    assert parse([*SIZES, "--steps", "1024"])[1].config.blocks == 32
    assert parse([*SIZES, "--steps", "1025"])[1].config.blocks == 33
