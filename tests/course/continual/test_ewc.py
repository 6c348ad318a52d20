"""Elastic weight consolidation: two quadratics in closed form, the Fisher information, the loop."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import clear
from mmrl.course import plain
from mmrl.course.continual import cycles, ewc, schedules
from mmrl.envs import continual as tasks
from mmrl.nets import Categorical, Outputs
from mmrl.replay.reservoir import Unrolls
from mmrl.rollout import Carry, Transition

pytestmark = pytest.mark.slow

FAMILY, PARAMS = tasks.permuted_catch(3, rows=4, columns=3)
TINY = ewc.Config(
    memory="none",
    width=8,
    environments=3,
    rollout=6,
    block=2,
    blocks=2,
    episodes=4,
    fisher_unrolls=2,
)


def distance(a: Any, b: Any) -> float:
    leaves = [jax.tree.leaves(eqx.filter(x, eqx.is_inexact_array)) for x in (a, b)]
    return max(float(np.abs(x - y).max()) for x, y in zip(*leaves, strict=True))


# Two tasks whose losses are quadratic: ½ Σ h_i (θ_i - c_i)²


class Quadratic:
    def __init__(self, seed: int):
        draw = np.random.default_rng(seed)
        self.h, self.c = draw.uniform(0.2, 4, size=(2, 6)), draw.normal(size=(2, 6))

    def loss(self, task: int, theta: Any) -> Any:
        return 0.5 * jnp.sum(self.h[task] * (theta - self.c[task]) ** 2)

    def joint(self, theta: Any) -> float:
        return float(self.loss(0, theta) + self.loss(1, theta))

    def second(self, fisher: Any) -> Any:
        """Task 1 after task 0 was learned to its end, held by `fisher`: gradient descent."""
        anchor = jnp.asarray(self.c[0])

        def total(theta):
            return self.loss(1, theta) + ewc.ewc_penalty(fisher, anchor, theta)

        step = jax.jit(lambda theta: theta - 0.05 * jax.grad(total)(theta))
        theta = anchor
        for _ in range(4000):
            theta = step(theta)
        return theta


def test_with_the_true_curvature_nothing_is_forgotten(x64):
    """Held by F = h of the first task, the second one's optimum is that of both together."""
    toy = Quadratic(0)
    both = np.sum(toy.h * toy.c, axis=0) / np.sum(toy.h, axis=0)
    theta = toy.second(jnp.asarray(toy.h[0]))
    np.testing.assert_allclose(theta, both, atol=1e-8)
    # As strong a pull on all parameters alike does worse, and none forgets the first task.
    same = toy.second(jnp.full(6, toy.h[0].mean()))
    none = toy.second(jnp.zeros(6))
    np.testing.assert_allclose(none, toy.c[1], atol=1e-5)
    assert toy.joint(theta) < toy.joint(same) < toy.joint(none)


def test_one_anchor_adds_up_what_mattered():
    config = dataclasses.replace(TINY, fisher_decay=0.5)
    fisher = {"w": jnp.array([4.0, 0.0])}
    for new in ([1.0, 2.0], [0.0, 8.0]):
        fisher = ewc.update_fisher(config, fisher, {"w": jnp.array(new)})
    assert fisher["w"].tolist() == [1.5, 9.0]


# The Fisher information


class Softmax(eqx.Module):
    """π = softmax(θ) and V = b, whatever is seen."""

    theta: jax.Array
    bias: jax.Array

    def __call__(self, state: Any, obs: Any, begin: Any) -> Any:
        logits = jnp.broadcast_to(self.theta, (len(obs), self.theta.size))
        value = jnp.broadcast_to(self.bias, (len(obs),))
        return state, Outputs(Categorical(logits), value, value)


def test_information_is_that_of_a_softmax():
    """E[(1{a=i} - π_i)²] = π_i (1 - π_i) per step, and 1 for the mean of a unit Gaussian."""
    net = Softmax(jnp.array([0.5, -1.0, 0.2]), jnp.array(0.3))
    rows, time = 4000, 5
    steps = Transition(
        obs=np.zeros((rows, time, 1), np.float32),
        action=np.zeros((rows, time), np.int32),
        reward=np.zeros((rows, time), np.float32),
        next_obs=np.zeros((rows, time, 1), np.float32),
        begin=np.zeros((rows, time), bool),
        terminated=np.zeros((rows, time), bool),
        truncated=np.zeros((rows, time), bool),
    )
    fisher = jax.jit(ewc.information)(net, Unrolls((), steps), jax.random.key(0))
    p = jax.nn.softmax(net.theta)
    np.testing.assert_allclose(fisher.theta, p * (1 - p), rtol=0.1)
    np.testing.assert_allclose(fisher.bias, 1.0, rtol=0.1)


def test_the_estimate_is_a_mean_over_unrolls_in_which_the_learner_goes_on(
    monkeypatch: pytest.MonkeyPatch,
):
    """Steps are counted here instead of played, and tell ten times their number of another net."""
    zero, key = jnp.zeros(()), jax.random.key(0)
    carries = Carry(None, None, None, zero)
    learner = clear.State(zero, zero, None, None, carries, None, key, jnp.zeros((), int))

    def act(config: Any, env: Any, params: Any, learner: Any, key: Any) -> Any:
        now = learner.carries.policy_state + 1
        return carries._replace(policy_state=now), Unrolls((now, 10 * now), ())

    monkeypatch.setattr(ewc.clear, "act", act)
    monkeypatch.setattr(ewc, "information", lambda net, unrolls, key: unrolls.state)
    config = dataclasses.replace(TINY, fisher_unrolls=4)
    after, result = ewc.estimate_fisher(config, FAMILY, PARAMS, learner, zero, lambda s: s[1])
    assert after.carries.policy_state == 4 and result == 25.0


# The loop


@jax.jit
def begin(config: Any) -> Any:
    return ewc.init(config, FAMILY, PARAMS, jax.random.key(0), tasks=jnp.zeros(3, int))


@jax.jit
def iterate(config: Any, state: Any) -> Any:
    return ewc.iterate(config, FAMILY, PARAMS, state)


@jax.jit
def leave(config: Any, state: Any) -> Any:
    return ewc.leave(config, FAMILY, PARAMS, state)


@pytest.mark.full
def test_the_first_task_is_learned_as_without_it():
    fields = {f.name: getattr(TINY, f.name) for f in dataclasses.fields(clear.Config)}
    first = begin(TINY)
    ours, (_, measures, _) = iterate(TINY, first)
    theirs, _ = jax.jit(lambda c, s: clear.iterate(c, FAMILY, PARAMS, s))(
        dataclasses.replace(plain.CLEAR, **fields), first.learner
    )
    assert distance(ours.net, theirs.net) < 1e-6 and measures.penalty == 0


@pytest.mark.full
def test_what_mattered_is_held():
    """After a task has ended, a strong pull stops all parameters as far as they matter."""
    state, _ = iterate(TINY, begin(TINY))
    start = leave(TINY, state)
    assert distance(start.net, state.net) == 0 and distance(start.anchor, state.net) == 0
    fisher = start.fisher
    assert min(x.min() for x in jax.tree.leaves(fisher)) >= 0
    assert max(x.max() for x in jax.tree.leaves(fisher)) > 0
    free = anchor = start
    for _ in range(20):
        free, _ = iterate(dataclasses.replace(TINY, consolidation=0.0), free)
        anchor, (_, measures, _) = iterate(dataclasses.replace(TINY, consolidation=1e3), anchor)

    def change_of(state):
        return float(ewc.ewc_penalty(fisher, start.anchor, state.net))

    # Twelve other keys: 0.003 to 0.09 of it; a pull that is not felt would leave all.
    assert change_of(anchor) < 0.3 * change_of(free)
    assert measures.penalty > 0


@pytest.mark.full
def test_it_goes_through_a_cycle():
    plan = schedules.sequential(range(3), 1, 3)
    state, curves = jax.jit(lambda c, k: cycles.cycle(ewc, c, FAMILY, PARAMS, plan, 3, k, {}))(
        TINY, jax.random.key(1)
    )
    assert (curves.measures.penalty[0] == 0).all() and (curves.measures.penalty[1:] > 0).all()
    assert state.learner.iteration == 12 and curves.finite


@pytest.mark.parametrize(
    ("name", "values"), [("fisher_decay", 1.5), ("consolidation", -1.0), ("fisher_unrolls", 0)]
)
def test_errors_name_the_setting(name: str, values: Any):
    with pytest.raises(ValueError, match=f"`{name}`"):
        ewc.check(dataclasses.replace(TINY, **{name: values}), FAMILY, PARAMS)
