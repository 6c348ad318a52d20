"""`--memory my_module:MyMemory`: a memory of the user's own in every command."""

import pathlib

import jax
import pytest

from mmrl import memory
from mmrl.__main__ import main
from mmrl.commands.options import parse, summarize
from mmrl.runs import Run, Setup, reopen
from tests.helpers.runs import CONFIG, arguments

ENV = "probe-Memory-v0"
SOURCE = """
import equinox as eqx
from mmrl.memory import LRU

class Mine(LRU):
    pass

def build(input_size, output_size, *, key, **sizes):
    return LRU(input_size, output_size, key=key, **sizes)

class Short(eqx.Module):
    def __init__(self, input_size, output_size, *, key): ...
    def init(self): ...

def broken(input_size, output_size, *, key):
    raise KeyError("inside")

class Wide(LRU):
    def decode(self, h, x):
        return h[0].real

class Grows(LRU):
    def step(self, state, x, begin):
        return (state, state), super().step(state, x, begin)[1]

class Fails(LRU):
    def encode(self, x):
        return self.missing

def count(input_size, output_size, *, key):
    return 4

number = 3
"""


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_memories.py").write_text(SOURCE, "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ["Mine", "build"])
def test_an_own_memory_is_built_as_ours_are(name: str, layers: int):
    mine, ours = (
        memory.make(x, 3, 4, key=jax.random.key(0), layers=layers, state_size=2)
        for x in (f"own_memories:{name}", "lru")
    )
    own = jax.tree.leaves(mine), jax.tree.leaves(ours)
    assert all((x == y).all() for x, y in zip(*own, strict=True))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_memories:Short", "without `__call__`, `step`, `lookahead`"),
        ("own_memories:broken", r"raised KeyError: 'inside' \(own_memories.py, line 16\)"),
        ("own_memories:number", "which is 3"),
        ("own_memories:Mime", "Nearest: Mine"),
        ("own_memories:nope", "own_memories has: Mine, build, Short, "),
        ("own_memories:count", "an object of type int without"),
        ("own_memories:Wide", r"'own_memories:Wide'.*`step`.*\(4,\).*got \(64,\)"),
        ("own_memories:Grows", r"'own_memories:Grows'.*`step`.*state"),
        ("own_memories:Fails", r"'own_memories:Fails'.*missing.*line \d+\)"),
        ("nowhere:Mine", "there is no module 'nowhere'"),
        (":Mine", "before the colon"),
    ],
)
def test_names_of_other_things_are_refused(name: str, message: str):
    with pytest.raises(ValueError, match=f"^`name` .*{message}"):
        memory.make(name, 3, 4, key=jax.random.key(0))


@pytest.mark.parametrize("name", ["Mine", "build"])
def test_sizes_that_an_own_memory_lacks_are_refused(name: str):
    with pytest.raises(ValueError, match=r"`hidden`|'hidden'"):
        memory.make(f"own_memories:{name}", 3, 4, key=jax.random.key(0), hidden=2)


@pytest.mark.slow
def test_a_run_with_an_own_memory_is_resumed_and_evaluated(capsys: pytest.CaptureFixture[str]):
    words = [ENV, *arguments(CONFIG), "--memory", "own_memories:Mine"]
    _, setup, path = parse([*words, "--blocks", "1"])
    assert path == pathlib.Path("results/probe-Memory-Mine-tape-1")
    Run(setup, path)
    for more in ([], ["--memory", "own_memories:Mine"], ["--memory=own_memories:Mine"]):
        _, again, result = parse(["--resume", *more])
        assert again == setup and result == path
    small = ["--width", "8", "--environments", "2", "--rollout", "4", "--minibatches", "2"]
    words_ppo = [ENV, "--agent", "ppo", "--memory", "own_memories:Mine", *small]
    _, newest, folder = parse(words_ppo)
    Run(newest, folder)
    assert parse(["--resume", "--memory", "own_memories:Mine"])[1].agent == "ppo"
    assert main(["train", "--resume", "--memory", "own_memories:build"]) == 2
    assert "memory was 'own_memories:Mine'" in capsys.readouterr().err
    over = ["--over", "gamma", "0.5", "0.9"]
    assert parse([*words, *over])[1].config.memory == "own_memories:Mine"
    assert main(["train", ENV, "--memory", "own_memories:Short"]) == 2
    assert "`memory` must refer to a class or function that builds" in capsys.readouterr().err
    assert main(["train", ENV, *arguments(CONFIG), "--memory", "own_memories:Wide"]) == 2
    assert "`memory` must refer to a class or function that builds" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.slow
def test_an_own_memory_is_trained_and_reopened():
    words = ["--seeds", "0", "--memory", "own_memories:Mine", "--blocks", "1", "--out", "own"]
    assert main(["train", ENV, *arguments(CONFIG), *words]) == 0
    assert len(reopen("own").history) == 1
    assert main(["evaluate", "own", "--episodes", "2"]) == 0
    assert main(["train", "--resume", "--out", "own", "--blocks", "2"]) == 0
    assert len(reopen("own").history) == 2


def test_a_folder_is_named_by_the_class():
    config = Setup(ENV, agent="r2d2").config
    config = type(config)(memory="own.memories:Mine")
    assert summarize("r2d2", config)[1] == "r2d2-Mine-stored"
