"""Spaces and types: each agent trains in an environment, or refuses it before it compiles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import environment, spaces

from mmrl import checks
from mmrl.agents import AGENTS
from mmrl.envs.wrappers.observation import with_inputs
from mmrl.runs import OPTIONAL_INPUTS, Run, Setup
from tests.envs.test_masked import Params, State


class Plain(environment.Environment):
    """Shows numbers of a space and accepts actions of another one; nothing depends on either."""

    def __init__(self, view: Any, actions: Any, reward: Any = 0.5):
        super().__init__()
        self.seen, self.actions, self.reward = view, actions, reward

    @property
    def default_params(self) -> Params:
        return Params()

    def reset_env(self, key: Any, params: Any) -> Any:
        return zeros(self.seen), State(time=jnp.int32(0), bits=jnp.int32(0))

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        after = state.replace(time=state.time + 1)
        return zeros(self.seen), after, jnp.asarray(self.reward), jnp.array(False), {}

    def action_space(self, params: Any = None) -> Any:
        return self.actions

    def observation_space(self, params: Any) -> Any:
        return self.seen


class MultiDiscrete:
    """As gymnasium has it, for gymnax has none."""

    def __init__(self, *sizes: int):
        self.nvec, self.shape, self.dtype = np.array(sizes), (len(sizes),), jnp.int32


def zeros(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: zeros(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(zeros(part) for part in space.spaces)
    return jnp.zeros(space.shape, space.dtype)


VECTOR, TWO = spaces.Box(-1.0, 1.0, (3,), jnp.float32), spaces.Discrete(2)
TABLE = spaces.Dict({"suit": spaces.Discrete(4), "cards": spaces.Box(0, 9, (2, 3), jnp.int32)})
VIEWS: dict[str, tuple[Any, int]] = {  # and how many numbers a network sees
    "a number": (spaces.Box(0, 5, (), jnp.float32), 1),
    "one of five": (spaces.Discrete(5), 5),
    "integers": (spaces.Box(0, 5, (3,), jnp.int32), 3),
    "bytes": (spaces.Box(0, 255, (2, 2, 1), jnp.uint8), 4),
    "flags": (spaces.Box(0, 1, (3,), jnp.bool_), 3),
    "halves": (spaces.Box(0, 1, (3,), jnp.float16), 3),
    "a dictionary": (TABLE, 10),
    "a dictionary in another": (spaces.Dict({"b": VECTOR, "a": TABLE}), 13),
}
REWARDS = {"int32": jnp.int32(1), "bool": jnp.array(True), "float16": jnp.float16(1)}
ACTIONS = {
    "a vector": spaces.Box(-1.0, 1.0, (3,), jnp.float32),
    "integers": spaces.Box(0, 4, (3,), jnp.int32),
}


def takes_vectors(agent: str) -> bool:
    """Return True if the agent checks, and accepts, actions that are vectors of numbers."""
    env = Plain(VECTOR, ACTIONS["a vector"])
    try:
        AGENTS[agent].check(AGENTS[agent].Config(), env, Params())
    except ValueError:
        return False
    return True


LEARNERS = tuple(agent for agent in AGENTS if takes_vectors(agent))
VALUES = {"dqn", "r2d2", "clear", "pqn"}  # agents of mmrl that need discrete actions


def tiny(agent: str, env: Any, **changes: Any) -> Setup:
    small = {"memory": "none", "width": 8, "environments": 4, "rollout": 8, "episodes": 2}
    small |= {"block": 2, "blocks": 1, **changes}
    kind = {**AGENTS[agent].SMALL, **small}
    return Setup(
        env, config=AGENTS[agent].Config(**kind), agent=agent, seeds=(0,), observes=OPTIONAL_INPUTS
    )


def test_agents_with_a_policy_over_numbers_take_vectors_and_others_do_not():
    assert {"ppo", "ppg"} <= {*LEARNERS} and not VALUES & {*LEARNERS}


@pytest.mark.full_except("a dictionary in another")
@pytest.mark.parametrize("view", VIEWS)
def test_an_observation_of_any_type_becomes_a_vector(view: str):
    """What all agents see, with a reward of another type in it."""
    space, size = VIEWS[view]
    for reward in REWARDS.values():
        env = Plain(space, TWO, reward)
        checks.environment(env, steps=0)
        env, params = with_inputs(env, Params(), OPTIONAL_INPUTS), Params()
        obs, state = jax.eval_shape(env.reset, jax.random.key(0), params)
        step = jax.eval_shape(env.step, jax.random.key(1), state, jnp.int32(0), params)
        assert obs.shape == step[0].shape == env.observation_space(params).shape == (size + 4,)
        assert obs.dtype == step[0].dtype and jnp.issubdtype(obs.dtype, jnp.floating)


@pytest.mark.full
@pytest.mark.parametrize("agent", AGENTS)
def test_agents_train_on_dictionaries_and_rewards_of_any_type(agent: str):
    """A whole block is traced, not computed."""
    run = Run(tiny(agent, Plain(TABLE, TWO, jnp.array(True))))
    state = jax.eval_shape(run.begin)
    after, metrics = jax.eval_shape(run.program.block, run.setup.config, state)
    carries = after.policy.carries if agent == "ppg" else after.carries
    assert carries.obs.shape == (1, 4, 10 + 4) and metrics.returns.dtype == jnp.float32


@pytest.mark.full
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("agent", LEARNERS)
def test_agents_train_with_actions_of_three_numbers(agent: str, actions: str):
    run = Run(tiny(agent, Plain(VECTOR, ACTIONS[actions], jnp.int32(1))))
    after, _ = jax.eval_shape(run.program.block, run.setup.config, jax.eval_shape(run.begin))
    net = after.policy.net if agent == "ppg" else after.net
    assert net.log_std.shape == (1, 3)


MISTAKES: dict[str, tuple[Plain, str]] = {
    "a tuple": (
        Plain(spaces.Tuple([TWO, VECTOR]), TWO),
        r"`observation_space` must be .*; got Tuple.*one vector",
    ),
    "a tuple made of a tuple": (
        Plain(spaces.Tuple((TWO, VECTOR)), TWO),
        r"`observation_space` must be .*; got Tuple.*one vector",
    ),
    "a tuple in a dictionary": (
        Plain(spaces.Dict({"a": spaces.Tuple([TWO])}), TWO),
        r"`observation_space\['a'\]` must be .*; got Tuple",
    ),
    "a complex reward": (Plain(VECTOR, TWO, jnp.complex64(1)), "`reward` must .*complex64"),
    "two rewards": (Plain(VECTOR, TWO, jnp.ones(2)), r"`reward` must .*got \(2,\)"),
    "several discrete actions": (
        Plain(VECTOR, MultiDiscrete(2, 3)),
        r"`action_space` must be a Box .* Discrete .*; got .*Multi",
    ),
    "actions in a dictionary": (Plain(VECTOR, TABLE), "`action_space` must be .*; got Dict"),
    "actions in rows": (Plain(VECTOR, spaces.Box(-1, 1, (2, 2))), r"got shape \(2, 2\)"),
    "an action without axes": (Plain(VECTOR, spaces.Box(-1, 1, ())), r"got shape \(\)"),
}


@pytest.mark.full_except(*[f"{what}-dqn" for what in MISTAKES])
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("what", MISTAKES)
def test_runs_refuse_other_spaces_in_one_sentence_before_they_compile(what: str, agent: str):
    env, message = MISTAKES[what]
    with pytest.raises(ValueError, match=message) as error:
        Run(tiny(agent, env))
    assert "breaks 1 rule:" in str(error.value)


@pytest.mark.full_except("dqn")
@pytest.mark.parametrize("agent", sorted({*AGENTS} - {*LEARNERS}))
def test_agents_of_values_refuse_vectors_of_actions(agent: str):
    with pytest.raises(ValueError, match=r"must have discrete actions, got Box.*`ppo`"):
        Run(tiny(agent, Plain(VECTOR, ACTIONS["a vector"])))


@pytest.mark.full_except("dqn", "ppo")
@pytest.mark.parametrize("agent", AGENTS)
def test_agents_without_a_run_refuse_what_they_would_misread(agent: str):
    module = AGENTS[agent]
    for env, message in (
        (Plain(VECTOR, MultiDiscrete(2, 3)), "must have discrete actions"),
        (Plain(TABLE, TWO), "must have observations .*; got Dict.*FlattenObservation"),
    ):
        with pytest.raises(ValueError, match=message):
            module.init(module.Config(), env, Params(), jax.random.key(0))
