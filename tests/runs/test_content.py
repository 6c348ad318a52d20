"""Environments by content: a changed one is compiled anew, and none is kept for ever."""

import collections
import dataclasses
import functools
import gc
import importlib
import pathlib
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import runs
from mmrl.envs.probes import Memory
from mmrl.runs import Run, Setup, programs
from mmrl.runs.content import content
from tests.helpers.runs import SETUP

SCALE = 1.0


class Scale(Memory):
    """Compared by identity, as environments of users are."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, scale: float):
        super().__init__()
        self.scale, self.more = scale, {"table": np.zeros(3)}

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, info = super().step_env(key, state, action, params)
        return obs, state, self.scale * SCALE * reward, terminated, info


@pytest.fixture
def game(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module of a user's, with an environment."""
    (tmp_path / "game_of_a_user.py").write_text(
        "from mmrl.envs.probes import Memory\nREWARD = 1\nclass Game(Memory):\n"
        "    def step_env(self, *rest):\n        *step, info = super().step_env(*rest)\n"
        "        step[2] = REWARD * step[2]\n        return *step, info\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("game_of_a_user")
    del sys.modules["game_of_a_user"]


def test_content_changes_with_attributes():
    env, other = Scale(1.0), Scale(1.0)
    assert content(env) == content(other)
    for name, value in (("scale", 2.0), ("scale", 1), ("new", ()), ("more", {"table": np.ones(3)})):
        other.__dict__ = {**vars(env), name: value}
        assert content(env) != content(other)
    before = content(env)
    env.more["table"][1] = 1
    assert content(env) != before
    assert content((env, 1)) != content((env, 2)) and content(jnp.ones(2)) != content(jnp.ones(2))


def test_content_changes_with_code(monkeypatch: pytest.MonkeyPatch):
    before = content(Scale(1.0))
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.0)
    assert content(Scale(1.0)) != before
    monkeypatch.undo()
    assert content(Scale(1.0)) == before
    monkeypatch.setattr(Scale, "step_env", lambda self, *rest: Memory.step_env(self, *rest))
    assert content(Scale(1.0)) != before

    one, two = (lambda: 1), (lambda: 2)
    assert content(one) == content(one) != content(two)

    def closure(x: Any) -> Any:
        return lambda: x

    assert content(closure(1)) == content(closure(1)) != content(closure(2))


class Box(list):
    """A container with attributes, and an object to put in one."""

    def __init__(self, *items: Any, size: int = 1):
        super().__init__(items)
        self.size = size

    __hash__ = object.__hash__


def times(factor: int) -> Any:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def product(x: Any) -> Any:
            return factor * function(x)

        return product

    return decorate


def with_size(size: int) -> Any:
    def function(x: Any) -> Any:
        return x

    function.size = size  # pyright: ignore[reportFunctionMemberAccess]
    return function


@pytest.mark.parametrize(
    "build",
    [
        lambda x: times(x)(abs),
        lambda x: jax.jit(times(x)(with_size(1))),
        with_size,
        lambda x: Box(size=x),
        lambda x: np.array([types.SimpleNamespace(size=x)], object),
        lambda x: {Box(size=x), Box(size=3)},
        lambda x: collections.deque([Box(size=x)]),
        lambda x: functools.partial(max, Box(size=x), key=len),
        lambda x: -0.0 if x == 1 else 0.0,
        lambda x: float("nan") if x == 1 else 0.0,
    ],
)
def test_content_of_what_holds_other_parts(build: Any):
    assert content(build(1)) == content(build(1)) != content(build(2))


RULES = """
import logging
BONUS, TABLE, LIST, LEVELS = 1, {"a": [1]}, [1], {1}
class Options:
    goal = 3
    def __init__(self):
        self.size = 3
OPTIONS, LOG, OTHER = Options(), logging.getLogger("rules"), [1]
def reward(x):
    return x * BONUS
"""
READS = """
import rules_of_a_user
import rules_of_a_user as rules
from rules_of_a_user import LEVELS, LIST, LOG, OPTIONS, TABLE
class Game:
    def step_env(self):
        LOG.info("")
        return TABLE["a"], LIST[0], OPTIONS.size, LEVELS
    @property
    def bonus(self):
        return rules.reward(1)
    def later(self):
        from rules_of_a_user import reward
        return reward(2)
"""


@pytest.mark.parametrize(
    ("change", "changes"),
    [
        ("reward = lambda x: x", True),
        ("BONUS = 2", True),
        ("TABLE['a'].append(1)", True),
        ("LIST.append(1)", True),
        ("LEVELS.add(2)", True),
        ("OPTIONS.size = 4", True),
        ("Options.goal = 4", True),
        ("OTHER.append(1)", False),
        ("logging.getLogger('another logger')", False),
        ("", False),
    ],
)
def test_content_changes_with_what_the_code_reads(
    change: str, changes: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = [types.ModuleType(f"{name}_of_a_user") for name in ("rules", "game")]
    for module, text in zip(modules, (RULES, READS), strict=True):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(text, vars(module))
    rules, game = modules
    before = content(game.Game())
    exec(change, vars(rules))
    assert (content(game.Game()) != before) == changes


def test_content_of_slots():
    class Slots:
        __slots__ = "goal"

    class More(Slots):
        __slots__ = ("__hidden", "__weakref__")

        def __init__(self, goal: int, secret: int):
            self.goal, self.__hidden = goal, secret

    assert content(More(1, 2)) == content(More(1, 2))
    assert content(More(1, 2)) != content(More(2, 2))
    assert content(More(1, 2)) != content(More(1, 3))


def test_content_may_be_nested_deeply():
    def nest(value: int) -> list[Any]:
        return functools.reduce(lambda inner, _: [inner], range(5000), [value])

    assert content(nest(1)) == content(nest(1)) != content(nest(2))
    assert content([[1], 2]) != content([[1, 2]]) != content([[], 1, 2])


def test_a_program_is_that_of_the_environment_as_it_is():
    env = Scale(1.0)
    first = runs.program("dqn", env)
    assert runs.program("dqn", env) is first is runs.program("dqn", Scale(1.0))
    env.scale = 2.0
    second = runs.program("dqn", env)
    assert second is not first and (first.env.env.scale, second.env.env.scale) == (1.0, 2.0)


def test_a_module_that_was_edited_and_loaded_again_is_compiled_anew(game: types.ModuleType):
    first, program = runs.program("dqn", "game_of_a_user:Game"), runs.program("dqn", game.Game())
    assert runs.program("dqn", "game_of_a_user:Game") is first
    file = pathlib.Path(str(game.__file__))
    file.write_text(file.read_text().replace("REWARD = 1", "REWARD = 20"))
    importlib.invalidate_caches()
    importlib.reload(game)
    assert runs.program("dqn", "game_of_a_user:Game") is not first
    assert runs.program("dqn", game.Game()) is not program


def test_a_run_warns_that_its_environment_was_changed():
    env = Scale(1.0)
    run = Run(dataclasses.replace(SETUP, env=env))
    report = run.description
    run.program = run.program._replace(init=None)  # nothing is to be trained
    warnings: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda message, **_: warnings.append(message))
        for scale, count in ((1.0, 0), (2.0, 1)):
            env.scale = scale
            with pytest.raises(TypeError):
                next(iter(run))
            assert len(warnings) == count
    assert run.description == report != Run(Setup(env, SETUP.config, SETUP.seeds)).description


@pytest.mark.slow
def test_programs_are_freed_with_their_environments():
    env, same = Scale(1.0), Scale(1.0)
    program = weakref.ref(runs.program("dqn", env).block)
    assert runs.program("dqn", same).block is program()
    del env
    gc.collect()
    assert runs.program("dqn", same).block is program()
    del same
    gc.collect()
    assert program() is None


@pytest.mark.full
@pytest.mark.slow
def test_few_programs_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "MOST", 3)
    envs = [Scale(float(i)) for i in range(6)]
    blocks = [weakref.ref(runs.program("dqn", env).block) for env in envs]
    for name in ("probe-Memory-v0", "probe-Match-v0"):
        runs.program("dqn", name)
    gc.collect()
    assert len(programs._PROGRAMS) == 3 and [ref() is None for ref in blocks] == [True] * 5 + [
        False
    ]
