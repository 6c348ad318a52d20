"""Storage that does not fit into memory: one sentence names it and its size, before and after."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import pytest
from gymnax.environments import environment, spaces

from mmrl.agents import AGENTS, find
from mmrl.runs import Run, RunError, Setup, Sweep, room
from tests.helpers.runs import SETUP, setup

STORAGE = {"dqn": "tape.steps", "r2d2": "sequences.steps", "clear": "reservoir.unrolls"}
STORAGE |= {"ppg": "policy.carries"}  # others store nothing but the games they play


@pytest.mark.parametrize("agent", AGENTS)
def test_a_storage_that_does_not_fit_is_named(
    agent: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    config = find(agent).Config()
    monkeypatch.setattr(room, "free_bytes", lambda: 0)
    sizes = {"capacity": 64_000_000} if hasattr(config, "capacity") else {"environments": 65_536}
    expected = Setup("probe-Memory-v0", dataclasses.replace(config, **sizes), (0, 1), agent)
    (size,) = sizes
    array = rf"`{STORAGE.get(agent, 'carries')}\.[\w.\[\]]+`"
    message = rf"{array}.* takes [\d,.]+ GB.*0\.0 MB are free\. Lower `{size}`"
    with pytest.raises(ValueError, match=message):
        Run(expected, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_state_is_in_memory_twice(monkeypatch: pytest.MonkeyPatch):
    run = Run(setup(capacity=4_000))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(run._shapes))
    for free, fits in ((2 * size, True), (2 * size - 1, False)):
        monkeypatch.setattr(room, "free_bytes", lambda free=free: free)
        for make in (lambda: Run(run.setup), lambda: Sweep(SETUP, {"gamma": (0.5, 0.9)})):
            if fits:
                make()
        if not fits:
            with pytest.raises(ValueError, match=r"There is not enough memory: `tape\."):
                Run(run.setup)


def test_a_run_that_is_saved_needs_the_memory_of_another_state(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    run = Run(setup(capacity=4_000))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(run._shapes))
    monkeypatch.setattr(room, "free_bytes", lambda: 3 * size - 1)
    with pytest.raises(ValueError, match=r"There is not enough memory: `tape\."):
        Run(run.setup, tmp_path / "run")
    monkeypatch.setattr(room, "free_bytes", lambda: 3 * size)
    assert Run(run.setup, tmp_path / "run").path == tmp_path / "run"


def test_arrays_inside_of_a_block_count_too(monkeypatch: pytest.MonkeyPatch):
    run = Run(SETUP)
    state = run.begin()
    sizes = run.program.block.lower(run._config, state).compile().memory_analysis()
    inside = sizes.temp_size_in_bytes + sizes.output_size_in_bytes
    assert inside > 0
    monkeypatch.setattr(room, "free_bytes", lambda: inside - 1)
    with pytest.raises(
        RunError, match=r"a block, .* take [\d,.]+ MB.* Lower `environments`, `rollout`, `batch`, "
    ):
        room.check_block(SETUP, run.program.block, run._config, state)
    monkeypatch.setattr(room, "free_bytes", lambda: inside)
    room.check_block(SETUP, run.program.block, run._config, state)


def test_an_allocation_that_fails_is_explained():
    run = Run(SETUP)
    for error in (MemoryError(), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")):

        def fail(*_: object, error: Exception = error) -> None:
            raise error

        run.program = run.program._replace(init=fail)
        with pytest.raises(RunError, match=r"`tape\.[\w.]+`, the largest array.* takes .* MB"):
            next(iter(run))
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory.\nMore.")
    state = Run(SETUP).begin()
    run.program = run.program._replace(init=lambda *_: state, block=fail)
    with pytest.raises(RunError, match=r"a block, .* do not fit .*memory\. Lower .*`batch`"):
        next(iter(run))
    run.program = run.program._replace(init=lambda *_: jax.numpy.zeros(1).reshape(2))
    with pytest.raises(TypeError):
        next(iter(run))


def test_free_memory_is_that_of_the_tightest_limit(monkeypatch: pytest.MonkeyPatch):
    free = room.free_bytes()
    if free is None:
        pytest.skip("This system does not report its memory.")
    assert 0 < free < 2**50
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    limit = (pages + 10) * room.resource.getpagesize()
    monkeypatch.setattr(room.resource, "getrlimit", lambda _: (limit, -1))
    assert room.free_bytes() < 2**24


def test_storage_of_pictures_is_refused_before_a_run_begins(monkeypatch: pytest.MonkeyPatch):
    """A tape of 16 384 screens takes a byte for each pixel, once, and not 3.5 GB."""
    monkeypatch.setattr(room, "free_bytes", lambda: 10**8)
    expected = Setup((Screen(), Screen().default_params), find("dqn").Config(), (0,))
    with pytest.raises(ValueError, match=r"`tape\.frames\.\S+`, the largest .* takes 0\.5 GB"):
        Run(expected)


class Screen(environment.Environment):
    """A black screen, on which nothing ever happens."""

    @property
    def default_params(self) -> environment.EnvParams:
        return environment.EnvParams(max_steps_in_episode=100)

    def reset_env(self, key, params):
        return jnp.zeros((84, 84, 4), jnp.uint8), environment.EnvState(time=0)

    def step_env(self, key, state, action, params):
        state = environment.EnvState(time=state.time + 1)
        return self.reset_env(key, params)[0], state, jnp.float32(0), jnp.array(False), {}

    def is_terminated(self, state, params):
        return jnp.array(False)

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def action_space(self, params=None):
        return spaces.Discrete(2)

    def observation_space(self, params):
        return spaces.Box(0, 255, (84, 84, 4), jnp.uint8)
