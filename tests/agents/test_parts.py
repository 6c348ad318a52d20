"""Every agent takes a memory, an environment and a loss that are defined here, as objects."""

import dataclasses
import inspect
import pathlib
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnax.environments import environment, spaces

from mmrl.agents import AGENTS
from mmrl.agents.common import q_net
from mmrl.envs.wrappers import BeginFlag
from mmrl.memory import Memory
from mmrl.monoid import Affine
from mmrl.nets import ActorCritic, Dense, DuelingHead, LinearHead, Net
from mmrl.runs import Run, RunError, Setup, program, reopen, saved_setup
from mmrl.runs.identity import describe
from tests.helpers.compiling import text
from tests.helpers.runs import payload

STEPS, WIDTH = 4, 8


# An environment: what was shown first is to be named at each step


@struct.dataclass
class State(environment.EnvState):
    cue: jax.Array


@struct.dataclass
class Params(environment.EnvParams):
    max_steps_in_episode: int = STEPS


class Recall(environment.Environment):
    num_actions = 2

    def __init__(self, cues: int = 2):
        super().__init__()
        self.cues = cues

    @property
    def default_params(self) -> Params:
        return Params()

    def reset_env(self, key: Any, params: Params) -> tuple[jax.Array, State]:
        state = State(time=jnp.int32(0), cue=jax.random.bernoulli(key).astype(jnp.int32))
        return jax.nn.one_hot(state.cue, 3), state

    def step_env(self, key: Any, state: State, action: Any, params: Params) -> Any:
        reward = jnp.where(action == state.cue, 1.0, -1.0)
        state = State(time=state.time + 1, cue=state.cue)
        terminated = state.time == params.max_steps_in_episode
        return jax.nn.one_hot(jnp.int32(2), 3), state, reward, terminated, {}

    def action_space(self, params: Any = None) -> spaces.Discrete:
        return spaces.Discrete(2)

    def observation_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (3,), jnp.float32)


# A memory: a trace that fades at one rate for each feature


class Trace(Memory):
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Affine
    rate: jax.Array

    def __init__(self, size: int):
        self.input_size = self.output_size = size
        self.monoid, self.rate = Affine((size,)), jnp.full(size, 2.0, jnp.float32)

    def encode(self, x: Any) -> Any:
        return jax.nn.sigmoid(self.rate), x

    def decode(self, h: Any, x: Any) -> Any:
        return h[1]


# Networks of it, one for values of actions and one that acts and judges


def q(config: Any, env: Any, params: Any, key: Any) -> Net:
    keys = jax.random.split(key)
    (size,) = env.observation_space(params).shape
    encoder = Dense(size, config.width, key=keys[0])
    return Net(encoder, Trace(config.width), DuelingHead(2 * config.width, 2, key=keys[1]))


def acts(config: Any, env: Any, params: Any, key: Any) -> ActorCritic:
    def net(outputs: int, key: Any) -> Net:
        keys = jax.random.split(key)
        (size,) = env.observation_space(params).shape
        encoder = Dense(size, config.width, key=keys[0])
        head = LinearHead(2 * config.width, outputs, key=keys[1])
        return Net(encoder, Trace(config.width), head)

    policy_key, critic_key = jax.random.split(key)
    return ActorCritic(net(3, policy_key), net(1, critic_key))


def default(function: Any, name: str) -> Any:
    return inspect.signature(function).parameters[name].default


USUAL = {name: default(agent.init, "make") for name, agent in AGENTS.items()}
MAKE = {name: q if usual is q_net else acts for name, usual in USUAL.items()}
SIZES: dict[str, Any] = {
    "gamma": 0.9,
    "horizon": 2.0,  # a run that is prolonged keeps its rates
    "width": WIDTH,
    "environments": 4,
    "rollout": 4,
    "block": 2,
    "blocks": 2,
    "episodes": 4,
}


def patient(agent: str) -> Any:
    """The agent's own loss where γ is more than ½, and elsewhere the same without its gradient.

    γ may be traced, so that one program serves both.
    """
    module: Any = AGENTS[agent]
    own = module.loss

    def mine(*arguments: Any) -> Any:
        (config,) = (x for x in arguments if isinstance(x, AGENTS[agent].Config))
        return jax.tree.map(
            lambda x: jnp.where(config.gamma > 0.5, x, jax.lax.stop_gradient(x)), own(*arguments)
        )

    return mine


@pytest.mark.parametrize("agent", AGENTS)
def test_the_usual_loss_is_public(agent: str):
    """So that one of the user's can call it, with the same arguments."""
    module: Any = AGENTS[agent]
    assert module.loss is default(module.learn, "loss")
    assert len(inspect.signature(module.loss).parameters) >= 3
    assert module.loss.__doc__


ENV = Recall()
LOSSES = {agent: patient(agent) for agent in AGENTS}
LEARN = {agent: partial(AGENTS[agent].learn, loss=LOSSES[agent]) for agent in AGENTS}


def setup(agent: str, parts: bool = False, **changes: Any) -> Setup:
    config = AGENTS[agent].Config(**{**AGENTS[agent].SMALL, **SIZES})
    own: dict[str, Any] = {"make": MAKE[agent], "learn": LEARN[agent]} if parts else {}
    config = dataclasses.replace(config, **changes)
    return Setup(env=ENV, agent=agent, seeds=(0, 1), config=config, **own)


@pytest.mark.full
@pytest.mark.parametrize("agent", AGENTS)
def test_parts_of_the_user_s_train_are_kept_and_are_asked_for(agent: str, tmp_path: pathlib.Path):
    """And what was interrupted goes on exactly."""
    path = tmp_path / "run"
    mine = setup(agent, parts=True)
    first = next(iter(Run(setup(agent, parts=True, blocks=1), path)))
    assert np.isfinite(first.returns).all() and np.abs(first.returns).max() <= STEPS
    run, full_run = Run(mine, path, resume=True), Run(mine, tmp_path / "unbroken")
    assert [report.block for report in run] == [2]
    assert [report.env_steps for report in full_run] == [32, 64]
    assert payload(path) == payload(tmp_path / "unbroken")
    memories = jax.tree.leaves(run.state.net, is_leaf=lambda x: isinstance(x, Trace))
    traces = [x for x in memories if isinstance(x, Trace)]
    assert len(traces) == (1 if MAKE[agent] is q else 2)
    assert all(np.ptp(trace.rate) > 0 for trace in traces)  # each has been learned
    message = (
        rf"with custom parts: env=.*Recall\(cues=2\), make=.*\.{MAKE[agent].__name__}, "
        r"learn=.*learn\(loss=.*patient.*mine\)"
    )
    for open_run in (reopen, saved_setup):
        with pytest.raises(RunError, match=message):
            open_run(path)
    with pytest.raises(RunError, match=r"learn was '.*', is None; make was '.*', is None"):
        Run(setup(agent), path, resume=True)
    with pytest.raises(RunError, match=r"env was '.*Recall\(cues=2\)', is '.*Recall\(cues=1\)'"):
        Run(dataclasses.replace(mine, env=Recall(1)), path, resume=True)


@pytest.mark.slow
def test_a_block_takes_what_it_gives_whatever_the_types_of_the_user_s():
    """`jnp.full(n, 2.0)` has a weak type, which a gradient step does not keep: compiled twice."""

    def weak(*arguments: Any) -> Net:
        return eqx.tree_at(lambda net: net.memory.rate, q(*arguments), jnp.full(WIDTH, 2.0))

    assert jnp.full(WIDTH, 2.0).weak_type
    run = Run(dataclasses.replace(setup("dqn"), make=weak))
    before = jax.eval_shape(run.begin)
    after = jax.eval_shape(run.program.block, run.setup.config, before)[0]
    assert [x.weak_type for x in jax.tree.leaves(before)] == [
        x.weak_type for x in jax.tree.leaves(after)
    ]


@pytest.mark.full_except("dqn")
@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_a_loss_of_the_user_s_is_the_one_that_is_learned_from(agent: str):
    """Without a gradient the network stays as it was, but for PPG's other phase."""
    run = Run(setup(agent, parts=True, gamma=0.1))
    before = run.begin().net
    report = next(iter(run))
    assert np.isfinite(report.loss).all()
    changes = jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(a - b).max(), before, run.state.net))
    assert max(changes) == 0 if agent != "ppg" else max(changes) > 0


@pytest.mark.parametrize("agent", AGENTS)
def test_train_takes_the_same_parts_as_a_run(agent: str):
    """`train` is traced and never run: are its network and its gradient steps those it is given?"""
    calls = []

    def learn(*arguments: Any) -> Any:
        calls.append(agent)
        return AGENTS[agent].learn(*arguments)

    run = Run(setup(agent, parts=True, blocks=3))
    env, params, *_ = run.program
    train = partial(AGENTS[agent].train, run.setup.config, env, params)
    parts = {"make": MAKE[agent], "learn": learn}
    state, metrics = jax.eval_shape(partial(train, **parts), jax.random.key(0))
    shapes = jax.eval_shape(run.begin)
    alone = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)
    assert calls and jax.tree.structure(state) == jax.tree.structure(alone)
    assert jax.tree.leaves(state.net) == jax.tree.leaves(alone.net)
    assert metrics.returns.shape == (3, 4)  # not one for each of a block's two iterations


@pytest.mark.full
@pytest.mark.parametrize("agent", USUAL)
def test_the_usual_network_is_one_of_its_parts(agent: str):
    """Traced, because what is computed in the same way is the same."""
    config, keys = setup(agent).config, jax.random.split(jax.random.key(0))
    usual, own = (
        text(partial(program(agent, ENV, make=make).init, config), keys)
        for make in (None, USUAL[agent])
    )
    assert usual == own != text(partial(program(agent, ENV, make=MAKE[agent]).init, config), keys)


def test_what_cannot_be_trained_is_refused():
    def by_function(config: Any, env: Any, params: Any, key: Any) -> Net:
        keys = jax.random.split(key)
        encoder = eqx.nn.Sequential([eqx.nn.Linear(4, 8, key=keys[0]), eqx.nn.Lambda(jnp.tanh)])
        return Net(encoder, Trace(8), LinearHead(16, 2, key=keys[1]))

    with pytest.raises(ValueError, match=r"`make` must build .* arrays; got .*tanh.* at .*encoder"):
        Run(dataclasses.replace(setup("dqn"), make=by_function))

    def outputs(count: int, config: Any, env: Any, params: Any, key: Any) -> Net:
        return Net.make("none", env.observation_space(params).shape[0], count, width=8, key=key)

    def critic_of(config: Any, env: Any, params: Any, key: Any) -> ActorCritic:
        return ActorCritic(*(outputs(count, config, env, params, key) for count in (2, 1)))

    with pytest.raises(ValueError, match=r"2 outputs, .*`policy`.*`step` .*\(1,\)"):
        Run(dataclasses.replace(setup("ppo"), make=critic_of))
    messages = {
        "dqn": r"2 outputs, one for each action; `step` .*\(7,\)",
        "clear": "an `ActorCritic`",  # and not a `Net` of as many outputs
    }
    for agent, message in messages.items():
        with pytest.raises(ValueError, match=f"`make` must build .*{message}"):
            Run(dataclasses.replace(setup(agent), make=partial(outputs, 7)))


@dataclasses.dataclass
class Equal(environment.Environment):
    """An environment without a hash, as Python leaves every dataclass."""


def test_an_environment_without_a_hash_is_refused():
    for env in (Equal(), (Equal(), Params())):
        with pytest.raises(ValueError, match=r"`env` must be hashable.* got Equal\(\)"):
            Setup(env=env)


def test_what_an_environment_was_given_is_in_its_name():
    """Else a run in one could be resumed in another."""

    def text_of(env: Any) -> str:
        return describe(Setup(env=env, config=setup("dqn").config))["own"]["env"]

    class Layout(Recall):
        def __init__(self, cells: Any):
            super().__init__()
            self.cells = cells

    games = [Recall(2), Recall(3), BeginFlag(Recall(2)), BeginFlag(Recall(3)), Layout((1, 2))]
    games += [
        Layout((2, 1)),
        Layout(np.tanh),
        Layout(np.cosh),
        (Recall(2), Params(max_steps_in_episode=3)),
    ]
    games += [(Recall(2), Params(max_steps_in_episode=5))]
    names = [text_of(game) for game in games]
    assert len({*names}) == len(names) and names == [text_of(game) for game in games]
    assert " at 0x" not in text_of(Layout(lambda: None))


def test_an_environment_may_bring_its_parameters():
    config, fewer = setup("dqn").config, Params(max_steps_in_episode=2)
    for env, params in ((ENV, Params()), ((ENV, fewer), fewer)):
        assert Run(Setup(env=env, config=config)).program.params == params
