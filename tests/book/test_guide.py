"""The guides to parts of one's own and to debugging: their files, commands and messages."""

import pathlib
import re
import runpy
import sys

import jax
import pytest

from mmrl.__main__ import main
from mmrl.agents import ppo
from mmrl.envs.wrappers.observation import with_inputs
from mmrl.runs import reopen

BOOK = pathlib.Path(__file__).parents[2] / "book"
PAGE, DEBUGGING = ((BOOK / name).read_text("utf-8") for name in ("own.md", "debugging.md"))
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE + DEBUGGING, flags=re.DOTALL))
COMMANDS = re.findall(r"^mmrl (.+)$", PAGE, flags=re.MULTILINE)
MESSAGES = [" ".join(x.split()) for x in re.findall(r"```text\n(`.*?)```\n", PAGE, flags=re.DOTALL)]
TINY = "width=8, environments=4, rollout=4, block=1, episodes=4, minibatches=1, epochs=1"


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """An empty folder, and in it the files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    yield tmp_path
    sys.modules.pop("tmaze", None)


def change(path: pathlib.Path, old: str, new: str) -> None:
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.full
def test_the_environment_is_checked(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    runpy.run_path("check.py")
    assert "follows the rules" in capsys.readouterr().out
    del sys.modules["tmaze"]
    change(folder / "tmaze.py", "time=state.time + 1", "time=state.time")
    with pytest.raises(ValueError) as error:
        runpy.run_path("check.py")
    assert str(error.value) == MESSAGES[0]


def test_the_masked_maze_allows_a_step_first():
    env = runpy.run_path("masked.py")["MaskedTMaze"]()
    names = with_inputs(env, env.default_params, ())
    obs, _ = names.reset_env(jax.random.key(0), env.default_params)
    assert obs[-3:].tolist() == [1, 0, 0]


@pytest.mark.full
@pytest.mark.slow
def test_the_agent_is_checked(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    runpy.run_path("agent.py")
    assert "same outputs as acting" in capsys.readouterr().out
    change(folder / "agent.py", "flags = tape.begin", "flags = tape.last")
    with pytest.raises(ValueError) as error:
        runpy.run_path("agent.py")
    numbers = r"-?\d+\.\d+"
    assert re.sub(numbers, "", str(error.value)) == re.sub(numbers, "", MESSAGES[1])


@pytest.mark.full
@pytest.mark.slow
def test_a_network_is_checked(capsys: pytest.CaptureFixture[str]):
    runpy.run_path("net.py")
    assert "same outputs as acting" in capsys.readouterr().out


def test_the_steps_shown_are_those_of_the_defaults():
    matches = [int(n.replace(",", "")) for n in re.findall(r"^ +\d +([\d,]+) ", PAGE, re.MULTILINE)]
    config = ppo.Config()
    each = config.block * 32 * config.environments
    assert matches == [each, 2 * each, 3 * each] and "--rollout 32" in COMMANDS[0]


@pytest.mark.full
def test_the_commands_train_go_on_and_evaluate(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    """With sizes that are tiny, and one compiled program for the command and for Python."""
    tiny = [word for pair in TINY.split(", ") for word in f"--{pair}".split("=")]
    ours = [command.split() for command in COMMANDS if "navix:" not in command]
    train, resume, evaluate, without = ours
    assert main([*train, *tiny]) == 0
    assert main(resume) == 0
    assert main(evaluate) == 0
    assert "tmaze:TMaze in mmrl, 100 greedy episodes each" in capsys.readouterr().out
    run = reopen("gru")
    assert run.setup.env == "tmaze:TMaze" and len(run.history) == 4
    assert [word for word in without if word not in train] == ["none", "none"]
    change(folder / "train.py", 'memory="gru", rollout=32', f'memory="gru", {TINY}')
    runpy.run_path("train.py")
    both = [reopen(name).history[2]["returns"] for name in ("gru", "by_python")]
    assert both[0] == both[1]


@pytest.mark.full
def test_a_loss_is_replaced(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    change(folder / "loss.py", "rollout=32, blocks=1", f"{TINY}, blocks=1")
    runpy.run_path("loss.py")
    assert capsys.readouterr().out.startswith("1 [")


@pytest.mark.full
def test_the_contracts_are_checked(capsys: pytest.CaptureFixture[str]):
    runpy.run_path("contracts.py")
    assert "All contracts hold." in capsys.readouterr().out


@pytest.mark.full
def test_whether_a_memory_is_used(capsys: pytest.CaptureFixture[str]):
    runpy.run_path("used.py")
    matches = re.findall(r"```text\n(as trained:.*?)```", DEBUGGING, flags=re.DOTALL)
    output = capsys.readouterr().out
    numbers = [[float(x) for x in re.findall(r"\d\.\d+", text)] for text in (output, *matches)]
    assert len(numbers[0]) == 7 and abs(numbers[0][2] - (25 + 26 / 4) / 51) < 0.05
    assert all(abs(a - b) < 0.03 for a, b in zip(*numbers, strict=True))


@pytest.mark.full
def test_a_probe_is_tried(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    """One of the seven, which all are learned in tests/agents/test_dqn_training.py."""
    path = folder / "probes.py"
    path.write_text(re.sub(r"for name in \(.*\):", 'for name in ("Match",):', path.read_text()))
    runpy.run_path("probes.py")
    assert capsys.readouterr().out.startswith("Match        Q is off by 0.0")
