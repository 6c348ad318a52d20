"""The `mmrl` command: what it prints, where it writes, and how it ends."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import mmrl
from mmrl import memory
from mmrl.__main__ import COMMANDS, main
from mmrl.agents import AGENTS, clear
from mmrl.commands import evaluate, train
from mmrl.commands.options import latest, summarize
from mmrl.envs import registered_ids
from mmrl.runs import Run, RunError, Setup, describe, reopen
from tests.helpers.runs import ARGUMENTS, R2D2, SEEDS, SETUP, arguments, payload, setup

ENV = "probe-Memory-v0"


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Every test in a folder of its own, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def run(here: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> pathlib.Path:
    """A trained run in results/."""
    assert main(["train", ENV, *ARGUMENTS, "--blocks", "2"]) == 0
    return pathlib.Path("results/probe-Memory-lru-tape-1")


# Help and mistakes


def test_help_lists_the_commands_without_loading_jax():
    code = (
        "import atexit, sys\n"
        "from mmrl.__main__ import main\n"
        "atexit.register(lambda: print({'jax', 'gymnax', 'matplotlib'} & set(sys.modules)))\n"
        "main(['--help'])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert all(name in process.stdout for name in COMMANDS)
    assert process.stdout.endswith("set()\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as error:
        main([command, "--help"])
    assert error.value.code == 0
    assert f"mmrl {command}" in capsys.readouterr().out


def test_training_help_names_every_memory(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    output = capsys.readouterr().out
    assert not [name for name in memory.NAMES if name not in output]


def test_all_that_can_be_named_is_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "--list"]) == 0
    output = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert {*registered_ids(), *memory.NAMES, *AGENTS} < set(output) and len(output) == len(
        set(output)
    )


def test_every_agent_has_help_of_its_own(capsys: pytest.CaptureFixture[str]):
    own = {"dqn": "--segment-length", "r2d2": "--burn-in", "clear": "--replay-fraction"}
    for agent, options in own.items():
        with pytest.raises(SystemExit):
            main(["train", f"--agent={agent}", "--help"])
        output = capsys.readouterr().out
        assert options in output and ("--burn-in" in output) == (agent == "r2d2")


@pytest.mark.parametrize(
    ("fraction", "words", "folder"),
    [
        (0.0, "gru, V-trace without replay", "vtrace-gru"),
        (0.125, "gru, 12.5 % of each batch replayed", "clear-gru-12.5"),
        (1.0, "gru, 100 % of each batch replayed", "clear-gru-100"),
    ],
)
def test_clear_is_named_by_what_it_replays(fraction: float, words: str, folder: str):
    config = clear.Config(memory="gru", replay_fraction=fraction)
    assert summarize("clear", config) == (words, folder)


def test_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mmrl {mmrl.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "ENVIRONMENT is missing"),
        (["train", "lru"], "ENVIRONMENT must name a registered environment, got 'lru'"),
        (["train", "popgym-RepeatFrstEasy-v0"], "Nearest: popgym-RepeatFirstEasy-v0"),
        (["train", "nowhere:Env"], "ENVIRONMENT must name a module before the colon"),
        (
            ["train", ENV, "--memory", "lur"],
            "`memory` must be the name of a memory; got 'lur'. Did you mean",
        ),
        (["train", ENV, "--memory", "transformer"], "got 'transformer'. Use one of `elman`, `ffm`"),
        (["train", ENV, "--memory-sizes", "hidden", "4"], "`memory_sizes` of 'lru' must be among"),
        (["train", ENV, "--batch", "100000000000"], "`batch` must be below 2³¹"),
        (["train", ENV, "--batch", "0"], "`batch` must be at least 1, or None to choose it"),
        (["train", ENV, "--agent", "r2d3"], "got 'r2d3'. Try 'r2d2'"),
        (
            ["train", ENV, "--burn-in=9"],
            "--burn-in is an option of r2d2, not dqn. Add --agent",
        ),
        (["train", ENV, "--clip=1", "--agent=clear"], "--clip is an option of ppo, not clear"),
        (["train", ENV, "--replay-fraction", "0.5"], "an option of clear, not dqn. Add --agent cl"),
        (["train", ENV, "--agent", "clear", "--replay-fraction", "2"], "must be between 0 and 1"),
        (["train", ENV, "--agent", "clear", "--capacity", "0"], "`replay_fraction` must be 0"),
        (["train", "Pendulum-v1", "--agent", "clear"], "ENVIRONMENT must have discrete actions"),
        (["train", ENV, "--agent", "r2d2", "--start", "warm"], "`start` must be 'stored'"),
        (["train", ENV, "--batching", "segment"], "`batching` must be"),
        (["train", ENV, "--batching", "segments", "--segment-length", "0"], "`segment_length`"),
        (["train", ENV, "--capacity", "8"], "`capacity` must hold one rollout"),
        (["train", "CartPole-v1", "--batch", "9"], "Set --batch 500, or --batching segments."),
        (["train", ENV, "--seeds"], "`seeds` must be"),
        (["train", ENV, "--out", "file/run"], "Cannot write to file/run"),
        (["train", "--resume"], "There is no run under results/ to resume"),
        (["train", "--resume", "--out", "nowhere"], "There is no run to resume in nowhere"),
        (["evaluate", "nowhere"], "There is no checkpoint in nowhere"),
        (["evaluate", "file"], "file is a file. Pass the folder of the run"),
        (["evaluate", "nowhere", "--episodes", "0"], "`episodes` must be at least 1"),
        (["demo", "--out", "file/demo"], "Cannot write to file/demo"),
        (["demo", "--seeds", "0"], "`seeds` must be"),
        (["demo", "--threads", "0"], "`threads` must be"),
        (["experiment", "scans", "--minutes", "-1"], "`minutes` must be positive; got -1"),
        (["experiment", "scans", "--quick", "--out", "book/results"], "must not be book/results"),
    ],
)
def test_a_mistake_ends_in_one_message(
    arguments: list[str], message: str, here: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    (here / "file").write_text("in the way")
    assert main(arguments) == 2
    output = capsys.readouterr().err
    assert output.startswith("mmrl: ") and message in output and "Traceback" not in output
    assert output.count("\n") == 1
    assert [path.name for path in here.iterdir()] == ["file"] or arguments[0] == "demo"


@pytest.mark.parametrize("arguments", [["trian"], ["train", ENV, "--bach", "3"], ["evaluate"]])
def test_an_unknown_word_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert re.search("trian|--bach|PATH", capsys.readouterr().err)


def test_our_own_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch):
    def fail(_):
        raise KeyError("a bug")

    monkeypatch.setattr(train, "main", fail)
    with pytest.raises(KeyError, match="a bug"):
        main(["train", ENV])


def test_the_traceback_is_there_for_those_who_ask(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MMRL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="ENVIRONMENT is missing"):
        main(["train"])


# train and evaluate


@pytest.mark.slow
def test_train_prints_a_line_per_block(here: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", ENV, *ARGUMENTS, "--blocks", "3", "--out", "first"]) == 0
    output = capsys.readouterr().out
    assert f"{ENV}  lru on a tape" in output and "mmrl evaluate first" in output
    lines = [line.split() for line in output.splitlines() if re.match(r" +\d+ ", line)]
    assert [line[:2] for line in lines] == [["1", "32"], ["2", "64"], ["3", "96"]]
    history = json.loads((here / "first" / "results.json").read_text())["history"]
    for line, row in zip(lines, history, strict=True):
        np.testing.assert_allclose([float(x) for x in line[2:4]], row["returns"], atol=0.006)
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.slow
def test_runs_get_folders_of_their_own(run: pathlib.Path):
    before = payload(run)
    assert main(["train", ENV, *ARGUMENTS, "--blocks", "1"]) == 0
    assert sorted(path.name for path in run.parent.iterdir()) == [
        "probe-Memory-lru-tape-1",
        "probe-Memory-lru-tape-2",
    ]
    assert payload(run) == before


@pytest.mark.slow
def test_resume_needs_no_settings(run: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    """`--resume` alone takes up the latest run with all its settings; `--blocks` prolongs it."""
    assert main(["train", "--resume", "--blocks", "3"]) == 0
    assert "resumed after block 2 of 3" in capsys.readouterr().out
    again = reopen(run)
    assert again.setup.seeds == (0, 1) and len(again.history) == 3
    full_run = Run(SETUP, "unbroken")
    assert len(list(full_run)) == 3
    assert payload(run) == payload(pathlib.Path("unbroken"))


@pytest.mark.full
@pytest.mark.slow
def test_fewer_blocks_than_planned_or_done_are_said(
    run: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    def stdout_of(blocks: int) -> str:
        assert main(["train", "--resume", "--blocks", str(blocks)]) == 0
        return capsys.readouterr().out

    capsys.readouterr()
    fewer = (
        "--blocks 1 is fewer than the 2 that exist: no block is trained.\nComplete after block 2"
    )
    assert fewer in stdout_of(1) and reopen(run).setup.config.blocks == 2
    Run(setup(blocks=9), run, resume=True)  # killed before its first new block
    assert (
        "The run was planned for 9 blocks and now ends after block 2.\nComplete after"
        in stdout_of(2)
    )
    Run(setup(blocks=9), run, resume=True)
    output = stdout_of(3)
    assert (
        "The run was planned for 9 blocks and now ends after block 3.\nresumed after block 2 of 3"
        in output
    )
    assert "was planned for" not in stdout_of(3) and len(reopen(run).history) == 3


@pytest.mark.parametrize(
    ("horizon", "end"), [(None, ", and so does the decrease of its learning rate."), (9.0, ".")]
)
def test_a_learning_rate_that_falls_sooner_is_said(horizon: float | None, end: str):
    config = AGENTS["ppo"].Config(memory="none", width=8, blocks=3, horizon=horizon)
    run = Run(Setup(ENV, config, agent="ppo", seeds=(0,)), "run")
    assert run.folder is not None
    run.folder.total_blocks = 5
    note = f"The run was planned for 5 blocks and now ends after block 3{end}"
    assert note in train._plan(run)


@pytest.mark.full
def test_r2d2_from_the_command_line(run: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    """Its first line, its folder, and a resumption that knows whose options it takes."""
    words = ["--agent", "r2d2", *SEEDS, *arguments(R2D2.config)]
    assert main(["train", ENV, *words, "--blocks", "1"]) == 0
    assert "lstm, stored state, burn-in 2  →" in capsys.readouterr().out
    assert main(["train", "--resume", "--blocks", "2", "--burn-in", "2"]) == 0
    path = pathlib.Path("results/probe-Memory-r2d2-lstm-stored-1")
    assert f"→  {path}\nresumed after block 1 of 2" in capsys.readouterr().out
    assert reopen(path).setup == R2D2 and len(reopen(path).history) == 2
    assert main(["evaluate", str(path), "--episodes", "5"]) == 0
    assert "after block 2" in capsys.readouterr().out
    assert main(["train", "--resume", "--agent", "dqn", "--blocks", "2"]) == 0
    assert f"→  {run}\nComplete after block 2" in capsys.readouterr().out
    assert main(["train", "--resume", "--agent", "dqn", "--out", str(path)]) == 2
    assert "holds a run of r2d2, not of dqn" in capsys.readouterr().err


def test_resume_refuses_other_settings(run: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", "--resume", "--gamma", "0.9"]) == 2
    assert "gamma was 0.5, is 0.9" in capsys.readouterr().err


def test_the_same_command_with_resume_begins_what_never_began(here: pathlib.Path):
    assert main(["train", ENV, *ARGUMENTS, "--blocks", "1", "--out", "new", "--resume"]) == 0
    assert len(reopen("new").history) == 1


@pytest.mark.slow
def test_evaluate_plays_the_saved_networks(
    run: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    play, networks = evaluate.greedy_returns, []
    monkeypatch.setattr(
        evaluate, "greedy_returns", lambda *a: networks.append(play(*a)) or networks[0]
    )
    before = [(path, path.stat().st_mtime_ns) for path in run.iterdir()]
    capsys.readouterr()
    assert main(["evaluate", str(run), "--episodes", "50", "--seed", "5"]) == 0
    output = capsys.readouterr().out
    assert "50 greedy episodes" in output and "after block 2" in output
    (returns,) = networks
    assert returns.shape == (2, 50) and set(np.unique(returns)) <= {-1.0, 1.0}
    last = reopen(run)
    assert (returns != play(last, last.state.net, 50, evaluate.Options.seed)).any()
    for mean in returns.mean(1):
        assert f"{mean:.3f}" in output
    assert [(path, path.stat().st_mtime_ns) for path in run.iterdir()] == before


def test_ctrl_c_says_how_to_go_on(
    run: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "watch", interrupt)
    assert main(["train", "--resume", "--blocks", "9"]) == 130
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert f"At least blocks 1 to 2 are saved in {run}" in output
    assert f"mmrl train --resume --out {run}" in output


@pytest.mark.full
def test_ctrl_c_ends_a_process(here: pathlib.Path):
    command = [sys.executable, "-m", "mmrl", "train", ENV, *ARGUMENTS, "--blocks", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        while not re.match(rb" +3 ", process.stdout.readline()):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        stderr = process.stderr.read().decode()
        assert process.wait() == 130
    assert re.fullmatch(
        r"mmrl: Stopped\. At least blocks 1 to \d+ are saved in results/.*\n", stderr
    )
    assert len(reopen("results/probe-Memory-lru-tape-1").history) >= 3


ENDLESS = """
import threading
from mmrl.__main__ import main
from mmrl.commands import terminal, train

def block():
    print("computing", flush=True)
    threading.Event().wait()
    yield

train.main = lambda *_: list(terminal.in_background([block]))
raise SystemExit(main(["train"]))
"""


@pytest.mark.full
def test_ctrl_c_does_not_wait_for_a_block():
    """The block never ends, so only a process that leaves it behind comes to an end."""
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"computing\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 130  # the timeout only ends a test that hangs


def test_the_latest_run_is_one_of_the_environment_that_is_named(here: pathlib.Path):
    for age, env in enumerate(("CartPole-v1", ENV, "probe-Match-v0")):
        path = here / "results" / env / "results.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"setup": describe(Setup(env))}), "utf-8")
        os.utime(path, (-age, -age))
    results = [latest(env, "dqn").name for env in ("", ENV)]
    assert results == ["CartPole-v1", ENV]


def test_a_run_that_cannot_be_opened_here_does_not_hide_others(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name, text in (("own", '{"setup": {"own": {"make": "mine.make"}}}'), ("bad", "{")):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "results.json").write_text(text, "utf-8")
    with pytest.raises(RunError, match="There is no run of dqn under results/ to resume"):
        latest("", "dqn")
