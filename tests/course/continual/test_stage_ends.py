"""Who plays when a stage ends: what learned its own task, before it leaves, and what is kept.

The agent is a stub whose columns always press the same button, so that no score hangs on rounding:
`iterate` moves the button of the column that learns, and `leave` hands it on and takes another.
"""

import dataclasses
import types
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents.clear import of_task
from mmrl.agents.common import score
from mmrl.course import plain
from mmrl.course.continual import cycles
from mmrl.envs import continual as tasks
from mmrl.nets import Categorical, Outputs

FAMILY, PARAMS = tasks.permuted_catch(2, rows=4, columns=3)
GAMES = [(FAMILY, of_task(PARAMS, task)) for task in range(2)]
CONFIG = dataclasses.replace(plain.CLEAR, environments=3, block=2, blocks=2, episodes=16)
ORDER = (0, 1, 0)


class Player(eqx.Module):
    """Presses one button, whatever it sees."""

    logits: Any

    def init(self) -> Any:
        return ()

    def step(self, state: Any, obs: Any, begin: Any) -> Any:
        return state, Outputs(Categorical(self.logits), jnp.zeros(()), jnp.zeros(()))


class State(eqx.Module):
    net: Player
    past_net: Player
    tasks: Any


def init(config: Any, env: Any, params: Any, key: Any, tasks: Any = None) -> State:
    return State(Player(jnp.array([9.0, 0, 1])), Player(jnp.array([0, 9.0, 1])), tasks)


def enter(config: Any, env: Any, params: Any, state: State, tasks: Any = None) -> State:
    return dataclasses.replace(state, tasks=tasks)


def iterate(config: Any, env: Any, params: Any, state: State) -> Any:
    state = eqx.tree_at(lambda s: s.net.logits, state, jnp.roll(state.net.logits, 1))
    return state, (jnp.zeros(()), jnp.zeros(()), jnp.array(True))


def leave(config: Any, env: Any, params: Any, state: State) -> State:
    return State(Player(jnp.roll(state.net.logits, 1)), state.net, state.tasks)


STUB: Any = types.SimpleNamespace(init=init, enter=enter, iterate=iterate, leave=leave)
play = jax.jit(lambda net, key: cycles.evaluate(net, FAMILY, PARAMS, 2, key, CONFIG.episodes))
KEY = jax.random.key(0)


@jax.jit
def alone(net: Player, task: Any, key: Any) -> dict[str, Any]:
    """Each policy's mean return in one game."""
    params = of_task(PARAMS, task)
    return {
        name: score(net, FAMILY, params, key, CONFIG.episodes, policy).returns.mean()
        for name, policy in cycles.POLICIES.items()
    }


@cache
def cycle_scores() -> dict[str, cycles.PolicyScores]:
    plan = np.repeat(np.array(ORDER, np.int32)[:, None], CONFIG.environments, axis=1)
    whole = jax.jit(lambda key: cycles.cycle(STUB, CONFIG, FAMILY, PARAMS, plan, 2, key))
    return whole(KEY)[1].by_policy


@cache
def tour_scores() -> dict[str, cycles.PolicyScores]:
    return cycles.tour(STUB, CONFIG, GAMES, ORDER, KEY)[1].by_policy


def by_hand(evaluate: Any) -> np.ndarray:
    """Scores [stage, block, task] in a plain loop; `evaluate` is of (network, stage, block)."""
    state, result, differs = init(CONFIG, FAMILY, PARAMS, None), [], []
    for stage, task in enumerate(ORDER):
        for block in range(CONFIG.blocks):
            for _ in range(CONFIG.block):
                state = iterate(CONFIG, FAMILY, PARAMS, state)[0]
            own = evaluate(state.net, stage, block)
            if block == CONFIG.blocks - 1:
                state = leave(CONFIG, FAMILY, PARAMS, state)
                differs.append(evaluate(state.net, stage, block)[task] != own[task])
            others = evaluate(state.past_net, stage, block)
            result.append(np.where(np.arange(2) == task, own, others))
    assert any(differs)  # so it matters when it plays
    return np.reshape(result, (len(ORDER), CONFIG.blocks, 2))


@pytest.mark.full
@pytest.mark.parametrize("name", cycles.POLICIES)
def test_in_a_cycle_a_task_is_scored_before_it_is_left(name: str):
    stages = jax.random.split(jax.random.split(KEY, 3)[2], len(ORDER))
    keys = [jax.random.split(stage, CONFIG.blocks) for stage in stages]
    expected = by_hand(lambda net, s, b: play(net, keys[s][b])[name])
    np.testing.assert_array_equal(cycle_scores()[name].scores, expected)


@pytest.mark.full
@pytest.mark.parametrize("name", cycles.POLICIES)
def test_in_a_tour_a_game_is_scored_before_it_is_left(name: str):
    key = jax.random.split(KEY)[1]

    def evaluate(net: Player, stage: int, block: int) -> np.ndarray:
        now = jax.random.fold_in(key, stage * CONFIG.blocks + block)
        return np.array([alone(net, task, now)[name] for task in range(2)])

    np.testing.assert_array_equal(tour_scores()[name].scores, by_hand(evaluate))


@pytest.mark.slow
def test_whoever_evaluates_says_by_which_policies():
    """Sampled actions of a player that is sure are the greedy ones, and else they are not."""
    sure, unsure = Player(jnp.array([0.0, 99, 0])), Player(jnp.array([0.0, 0.1, 0]))
    key = jax.random.key(1)
    assert set(play(sure, key)) == {"sampled", "greedy"}
    np.testing.assert_array_equal(play(sure, key)["sampled"], play(sure, key)["greedy"])
    np.testing.assert_array_equal(play(sure, key)["greedy"], play(unsure, key)["greedy"])
    assert (play(sure, key)["sampled"] != play(unsure, key)["sampled"]).all()
    alone = {"greedy": cycles.mode}
    results = jax.eval_shape(
        lambda net, key: cycles.evaluate(net, FAMILY, PARAMS, 2, key, CONFIG.episodes, alone),
        sure,
        key,
    )
    assert set(results) == {"greedy"}
