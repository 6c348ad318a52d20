"""Environments of the user's own, by their place in a module."""

import importlib
import pathlib
import sys

import pytest

from mmrl.envs import make
from mmrl.runs import Setup, program, restore
from mmrl.runs.identity import describe

MODULE = """
from mmrl.envs.continual import permuted_catch
from mmrl.envs.probes import Delay, Memory

class Mine(Memory):
    inner = Delay

def wide(num_steps: int = 3):
    return Delay(num_steps)

def broken():
    raise RuntimeError("no room")

made = Delay(5)
number = 7
"""


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """A folder that has the module, and is not on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [x for x in sys.path if x])
    (tmp_path / "games.py").write_text(MODULE)
    (tmp_path / "half.py").write_text("import no_such_module\n")
    (tmp_path / "torn.py").write_text("class Env(\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "games.py").write_text("from games import Mine\n")
    yield
    for name in ("games", "half", "torn", "deep", "deep.games"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def test_a_class_a_function_and_an_object_are_found_in_the_current_folder():
    for name, kind, steps in (
        ("games:Mine", "Mine", 5),
        ("games:wide", "Delay", 3),
        ("games:made", "Delay", 5),
        ("games:Mine.inner", "Delay", 2),
        ("deep.games:Mine", "Mine", 5),
    ):
        env, params = make(name)
        assert (type(env).__name__, params.max_steps_in_episode) == (kind, steps), name
    assert make("games:wide", num_steps=7)[1].max_steps_in_episode == 7
    assert type(make("games:permuted_catch")[1]).__name__ == "FamilyParams"  # its own parameters


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("game:Mine", r"no module 'game' in the current .* Nearest in this folder: games\."),
        ("games.py:Mine", r"got 'games.py:Mine'.*folder.module.*without \.py"),
        ("./games:Mine", r"must name a module before the colon, got './games:Mine'"),
        (":Mine", "must name a module before the colon"),
        (
            "half:Env",
            r"half raised ModuleNotFoundError: No module named 'no_such_module' \(half.py",
        ),
        ("torn:Env", r"torn raised SyntaxError: .* \(torn.py, line 1\)"),
        ("gymnasum:Acrobot-v1", r"no module 'gymnasum' in .* Nearest library: gymnasium\."),
        ("games:mine", r"'mine' does not exist. Nearest: .*Mine"),
        ("games:nothing_alike", r"games has: (?!.*(jax|environment))"),
        ("games:", r"must name an object of games after the colon, got 'games:': no name follows"),
        ("games:Mine.outer", "'outer' does not exist"),
        ("games:number", r"must .*`step_env`.* got 'games:number', which is of type int"),
        ("games:broken", r"which raised RuntimeError: no room \(games.py, line 12\)"),
        ("half", "my_module:MyEnv"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(env_id: str, message: str):
    with pytest.raises(ValueError, match=rf"^`env_id` .*{message}"):
        make(env_id)


def test_arguments_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"`kwargs` must .*games:wide.*num_steps: int = 3"):
        make("games:wide", steps=7)
    with pytest.raises(ValueError, match=r"`kwargs` must be empty .* games:made"):
        make("games:made", num_steps=7)


def test_a_run_remembers_it_by_its_name():
    setup = Setup(env="games:wide")
    assert describe(setup)["env"] == "games:wide" and "own" not in describe(setup)
    assert restore(describe(setup)) == setup
    assert type(program("dqn", "games:wide", ()).env).__name__ == "Delay"
