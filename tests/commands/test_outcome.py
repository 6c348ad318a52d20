"""What is said of a run that ends: is it above chance, and what does each column mean?"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces

from mmrl.checks.tracing import random_policy
from mmrl.commands import outcome
from mmrl.commands.terminal import open_console
from mmrl.envs.probes import Memory
from mmrl.envs.wrappers import Wrapper
from mmrl.rollout import evaluate
from mmrl.runs import Run, Setup


@pytest.fixture(scope="module")
def run() -> Any:
    """A run in an environment where random actions earn about 0, and the right ones 1."""
    run = Run(Setup("probe-Match-v0", seeds=(0, 1, 2)))
    run.snapshot = run.snapshot._replace(history=[{"env_steps": 1234}])
    return run


def test_random_actions_earn_chance(run: Run):
    returns = outcome.random_returns(run)
    assert set(np.unique(returns)) == {-1.0, 1.0}
    np.testing.assert_allclose(returns.mean(), 0.0, atol=4 / np.sqrt(len(returns)))
    assert (returns != outcome.random_returns(run, seed=1)).any()


def test_random_actions_are_legal():
    run = Run(Setup("probe-MaskedBandit-v0", seeds=(0,)))
    env, params, *_ = run.program
    returns = outcome.random_returns(run)
    policy, steps = random_policy(env, params), params.max_steps_in_episode
    legal = evaluate(policy, env, params, (), jax.random.key(1), 256, steps).returns

    def blind(state: Any, obs: Any, begin: Any, key: Any) -> Any:
        return state, env.action_space(params).sample(key)

    illegal = evaluate(blind, env, params, (), jax.random.key(1), 256, steps).returns
    assert returns.mean() > illegal.mean() + 1
    np.testing.assert_allclose(returns.mean(), legal.mean(), atol=0.5)


@pytest.mark.parametrize("blocks", [1, 2, 16])
@pytest.mark.parametrize(("level", "chance"), [(0.0, True), (-1.0, True), (0.9, False)])
def test_returns_that_do_not_rise_are_compared_with_random_actions(
    run: Run, blocks: int, level: float, chance: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outcome, "random_returns", lambda _: np.tile([-1.0, 1.0], 128))
    returns = level + np.random.default_rng(0).uniform(-0.05, 0.05, (blocks, 3))
    last = returns[-max(1, blocks // 4) :]
    message = outcome.at_chance(run, returns)
    assert bool(message) == chance
    if chance:
        assert f"{np.mean(last):.2f}" in message and "1,234 steps" in message


def test_returns_that_rise_need_no_comparison(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outcome, "random_returns", None)
    assert outcome.at_chance(run, np.linspace(-1, 0, 16)[:, None] + np.zeros(3)) == ""


class Free(Wrapper):
    """Costs the size of an action without bounds."""

    def action_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(-jnp.inf, jnp.inf, (2,))

    def inner_action(self, action: Any, params: Any) -> Any:
        return jnp.int32(0)

    def after_step(self, key: Any, before: Any, action: Any, step: Any, params: Any) -> Any:
        return *step[:2], -jnp.sum(jnp.abs(action)), *step[3:]


def test_actions_without_bounds_are_compared_with_normal_ones():
    run = Run(Setup(Free(Memory()), seeds=(0,), agent="ppo"))
    chance = outcome.random_returns(run)
    steps = run.program.params.max_steps_in_episode
    assert np.isfinite(chance).all() and -4 * steps < chance.mean() < -0.5


def test_returns_that_are_not_finite_are_not_compared(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outcome, "random_returns", lambda _: np.array([np.nan]))
    assert outcome.at_chance(run, np.zeros((16, 3))) == ""


@pytest.mark.parametrize(("scores", "warns"), [((0.0, 1.0, 0.25), True), ((0.0, 1.0), False)])
def test_a_run_that_ended_below_its_best_says_so(
    scores: tuple[float, ...],
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    history = [{"returns": [score] * 4, "fill": [0.5]} for score in scores]
    run = Run(Setup("probe-Match-v0"))
    run.snapshot = run.snapshot._replace(history=history)
    monkeypatch.setattr(outcome, "at_chance", lambda *_: "")
    outcome.show_outcome(run, "", open_console())
    output = capsys.readouterr().out
    assert ("Best after block 2: 1.00; at the end 0.25.\n" in output) == warns
