"""A recurrent agent in plain NumPy-like functions, and the mistakes that are made at a reset."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import checks
from mmrl.checks import replaying
from mmrl.envs import make
from mmrl.nets import ActorCritic, Net
from mmrl.rollout import Transition
from mmrl.runs import Run, Setup, program
from tests.checks.test_playing import DISCRETE_VIEW, Good, change, with_fault

ENV = type("Cut", (Good,), {"step_env": change(3, lambda x: x & False)})()  # after 4 steps
W, U, V = (np.random.default_rng(0).normal(size=(3, k)).astype(np.float32) for k in (2, 3, 4))
INIT = jnp.array([0.5, -0.5, 0.25])


def cell(h: Any, obs: Any) -> tuple[Any, dict[str, Any]]:
    h = jnp.tanh(jnp.asarray(W) @ obs + jnp.asarray(U) @ h)
    numbers = h @ jnp.asarray(V)
    return h, {"log_probs": jax.nn.log_softmax(numbers[:3]), "value": numbers[3]}


def resets(h: Any, begin: Any) -> Any:
    return jnp.where(begin, INIT, h)


def step(h: Any, obs: Any, begin: Any) -> Any:
    return cell(resets(h, begin), obs)


def zero(h: Any, begin: Any) -> Any:
    return jnp.where(begin, 0, h)


def unroll(
    h: Any,
    tape: Transition,
    flags: Callable[[Any], Any] = lambda tape: tape.begin,
    at: Callable[[Any, Any], Any] = resets,
) -> Any:
    return jax.lax.scan(lambda h, x: cell(at(h, x[1]), x[0]), h, (tape.obs, flags(tape)))


def replay(state: Any, tape: Any) -> Any:
    h = state[0] if isinstance(state, tuple) else state
    return unroll(h, tape)[1]


def ahead(h: Any, tape: Any, obs: Any = None) -> Any:
    def one(h: Any, x: Any) -> Any:
        h, _ = step(h, *x[:2])
        return h, cell(h, x[2])[1]

    follow = tape.next_obs if obs is None else obs
    return jax.lax.scan(one, h, (tape.obs, tape.begin, follow))[1]


def last_flag(tape: Any) -> Any:
    """Of the step before, as an acting loop has it in hand; here it comes one step too late."""
    return jnp.concatenate([jnp.zeros(2, bool), tape.last[:-2]])


def after_terminations(tape: Any) -> Any:
    return jnp.concatenate([tape.begin[:1], tape.terminated[:-1]])


def fresh(h: Any, tape: Any) -> Any:
    return jax.vmap(lambda obs: cell(INIT, obs)[1])(tape.next_obs)


def next_value(h: Any, tape: Any) -> Any:
    values = replay(h, tape)
    own = jax.tree.map(lambda x: x[-1:], ahead(h, tape))
    return jax.tree.map(lambda x, y: jnp.concatenate([x[1:], y]), values, own)


def next_obs(h: Any, tape: Any) -> Any:
    return ahead(h, tape, jnp.concatenate([tape.obs[1:], tape.next_obs[-1:]]))


def late(state: Any, obs: Any, begin: Any) -> Any:
    """Acts by the flag of the step before."""
    h, before = state
    h, outputs = step(h, obs, before)
    return (h, begin), outputs


def wrong(init: Any = INIT, **changes: Any) -> dict[str, Any]:
    return {"init": init, "step": step, "replay": replay, "ahead": ahead} | changes


NEXT = r"the final observation (is|are) replaced by"
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "acting never resets": (
        wrong(step=lambda h, obs, begin: cell(h, obs)),
        r"`acting` .* step 0 of episode 2: .* as if the state is never reset",
    ),
    "acting resets late": (
        wrong((INIT, jnp.array(False)), step=late, ahead=None),
        r"`acting` .* as if the begin flag comes one step late",
    ),
    "acting resets to zeros": (
        wrong(step=lambda h, obs, begin: cell(zero(h, begin), obs)),
        r"`replay` .* is reset to `init` during replay, but",
    ),
    "replay never resets": (
        wrong(replay=lambda h, tape: unroll(h, tape, lambda x: jnp.zeros_like(x.begin))[1]),
        r"`replay` .* step 0 of episode 2: .* as if the state is never reset",
    ),
    "replay resets late": (
        wrong(replay=lambda h, tape: unroll(h, tape, last_flag)[1]),
        r"`replay` .* step 0 of episode 2: .* as if the begin flag comes one step late",
    ),
    "replay resets to zeros": (
        wrong(replay=lambda h, tape: unroll(h, tape, at=zero)[1]),
        r"`replay` .* as if the state is reset to zeros",
    ),
    "replay resets early": (
        wrong(replay=lambda h, tape: unroll(h, tape, lambda x: x.last)[1]),
        r"`replay` .* of episode 1, the last step of .* as if the flag of the step that ended",
    ),
    "the observation of the next episode": (wrong(ahead=next_obs), rf"`ahead` .* if {NEXT}"),
    "the value of the next episode": (
        wrong(ahead=next_value),
        rf"`ahead` .* if the outputs for {NEXT}",
    ),
    "an empty memory ahead": (wrong(ahead=fresh), "`ahead` .* as if the memory is empty at"),
    "noise": (
        wrong(replay=lambda h, tape: jax.tree.map(lambda x: x + 1e-3, replay(h, tape))),
        r"`replay` .* at step 0 of the tape, which is step 0 of episode 1: .* No common mistake",
    ),
    "one output alone": (
        wrong(replay=lambda h, tape: replay(h, tape)["value"]),
        r"`replay` must return the outputs of `step`, stacked",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str):
    functions, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        checks.functions(**functions, env=ENV, steps=24)


@pytest.mark.slow
def test_where_no_episode_is_cut_off_the_clock_is_set():
    often = type("Often", (Good,), {"step_env": change(3, lambda x: ~x)})()  # nine ends in ten
    mine = often.default_params.replace(max_steps_in_episode=1000)
    functions = wrong(replay=lambda h, tape: unroll(h, tape, after_terminations)[1], ahead=None)
    with pytest.raises(ValueError, match="reset only after a termination"):
        checks.functions(**functions, env=often, params=mine, steps=200)


def test_a_right_agent_passes_and_one_that_sees_the_flag():
    def sees(h: Any, obs: Any, begin: Any) -> Any:
        return step(h, obs + begin, begin)

    def replays(h: Any, tape: Any) -> Any:
        return jax.lax.scan(lambda h, x: sees(h, *x), h, (tape.obs, tape.begin))[1]

    checks.functions(INIT, step, replay, ENV, ahead=ahead, steps=24)
    checks.functions(INIT, sees, replays, ENV, steps=24)


def test_too_short_a_play_is_refused():
    with pytest.raises(ValueError, match=r"`steps` must .* got 4"):
        checks.functions(INIT, step, replay, ENV, steps=4)


class Short(eqx.Module):
    """A memory without a lookahead."""

    inner: Any

    def init(self) -> Any:
        return self.inner.init()

    def step(self, state: Any, x: Any, begin: Any) -> Any:
        return self.inner.step(state, x, begin)

    def __call__(self, state: Any, xs: Any, begin: Any) -> Any:
        return self.inner(state, xs, begin)


class Late(Short):
    """A memory that hears of a begin one step late, on tapes alone."""

    def __call__(self, state: Any, xs: Any, begin: Any) -> Any:
        return self.inner(state, xs, jnp.roll(begin, 1).at[0].set(False))

    def lookahead(self, state: Any, xs: Any, begin: Any, next_xs: Any) -> Any:
        return self.inner.lookahead(state, xs, begin, next_xs)


@pytest.mark.full
def test_networks_of_ours_pass_and_a_late_memory_does_not():
    env, params = make("probe-Memory-v0")
    (size,) = env.observation_space(params).shape
    net = ActorCritic.make("lru", size, 2, width=4, key=jax.random.key(0))
    checks.agent(net, env, params, steps=24)
    late = eqx.tree_at(lambda net: net.critic.memory, net, replace_fn=Late)
    with pytest.raises(ValueError, match=r"`replay` .* as if the begin flag comes one step late"):
        checks.agent(late, env, params, steps=24)


@pytest.mark.parametrize(
    ("more", "observes"),
    [
        (0, None),
        (1, None),  # the begin flag
        (2, ("begin_flag", "previous_reward")),
        (4, None),  # all three
        (2, ("previous_action",)),
    ],
)
def test_a_network_sees_what_training_shows_it(
    more: int, observes: Any, monkeypatch: pytest.MonkeyPatch
):
    """A discrete observation is one-hot, and what fits the network follows."""
    env, calls = with_fault(DISCRETE_VIEW), []
    monkeypatch.setattr(replaying, "functions", lambda *args, **rest: calls.append(args[3]))
    net = Net.make("none", 2 + more, 2, width=4, key=jax.random.key(0))
    checks.agent(net, env, observes=observes)
    obs, _ = jax.eval_shape(calls[0].reset_env, jax.random.key(0), env.default_params)
    assert obs.shape == (2 + more,)
    if observes is not None:
        inner = program("dqn", env, observes).env
        assert repr(calls[0]) == repr(inner)


def test_a_network_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"`net` must .* of `env`, .*begin_flag"):
        net = Net.make("none", 9, 2, width=4, key=jax.random.key(0))
        checks.agent(net, with_fault(DISCRETE_VIEW))


@pytest.mark.slow
def test_a_network_for_a_discrete_observation_passes():
    checks.agent(
        Net.make("none", 3, 2, width=4, key=jax.random.key(0)), with_fault(DISCRETE_VIEW), steps=24
    )


def test_a_network_that_lacks_a_call_is_named(tmp_path: Any):
    def net_of(config: Any, env: Any, params: Any, key: Any) -> Net:
        (size,) = env.observation_space(params).shape
        net = Net.make("elman", size, 2, width=4, key=key)
        return eqx.tree_at(lambda net: net.memory, net, replace_fn=Short)

    with pytest.raises(ValueError, match=r"`make` must build .*`lookahead` .*AttributeError"):
        Run(Setup(env="probe-Memory-v0", make=net_of), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    Run(Setup(env="probe-Memory-v0", agent="r2d2", make=net_of))  # which has no use for it
    with pytest.raises(ValueError, match=r"`net` must have the methods .* without init, step"):
        checks.agent(INIT, ENV)
