"""Environments with illegal actions: how a mask reaches an observation, and where it must not be.

Also dictionary observations, which become a vector in the same place.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnax.environments import environment, spaces

from mmrl import checks, rollout
from mmrl._spaces import stuck
from mmrl.agents import AGENTS
from mmrl.envs import make, masked
from mmrl.envs.continual import PadObservation, PermutedTasks
from mmrl.envs.probes import Delay
from mmrl.envs.wrappers import (
    ActionMask,
    FlattenObservation,
    NoisyObservation,
    TimeLimit,
    Trial,
    VmapAutoReset,
)
from mmrl.envs.wrappers.observation import OBSERVE, legal_actions, mask_place, with_inputs
from mmrl.runs import Run, Setup

ACTIONS, STEPS = 3, 5


@struct.dataclass
class State(environment.EnvState):
    bits: Any


@struct.dataclass
class Params(environment.EnvParams):
    max_steps_in_episode: int = STEPS
    shut: Any = 0  # the number of the step that has no open door
    ends: Any = False  # whether the episode terminates before that step


class Doors(environment.Environment):
    """Three doors, of which a random set is open; only the mask states which."""

    @property
    def default_params(self) -> Params:
        return Params()

    def reset_env(self, key: Any, params: Any) -> Any:
        return self._at(key, jnp.int32(0), params)

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after = self._at(key, state.time + 1, params)
        wrong = (state.bits >> action) % 2 == 0
        last = (after.time + 1 == params.shut) & params.ends
        return obs, after, jnp.where(wrong, -1, action), last, {}

    def action_mask(self, state: Any, params: Any) -> Any:
        return (state.bits >> jnp.arange(ACTIONS)) % 2 == 1

    def action_space(self, params: Any = None) -> Any:
        return spaces.Discrete(ACTIONS)

    def observation_space(self, params: Any) -> Any:
        return spaces.Box(0.0, 1.0, (2,), jnp.float32)

    def _at(self, key: Any, time: Any, params: Any) -> Any:
        bits = jax.random.randint(key, (), 1, 2**ACTIONS)
        state = State(time=time, bits=jnp.where(time + 1 == params.shut, 0, bits))
        return self._look(state), state

    def _look(self, state: Any) -> Any:
        return jnp.array([0.25, 0.75])


class DictDoors(Doors):
    """The mask is a part of the observation, next to a picture, a number and a vector."""

    action_mask = None

    def observation_space(self, params: Any) -> Any:
        return spaces.Dict(
            {
                "suit": spaces.Discrete(4),
                "action_mask": spaces.Box(0, 1, (ACTIONS,), jnp.bool_),
                "cards": spaces.Dict({"b": spaces.Box(-2, 2, (2,)), "a": spaces.Box(0, 9, (1, 2))}),
            }
        )

    def _look(self, state: Any) -> Any:
        cards = {"b": jnp.array([-1.0, 1.0]), "a": jnp.array([[3.0, 4.0]])}
        mask = Doors.action_mask(self, state, None)
        return {"suit": jnp.int32(2), "action_mask": mask, "cards": cards}


@functools.cache
def recorder(env: Any, steps: int) -> Callable[[Any], tuple[Any, Any]]:
    """One compiled program for all parameters."""

    def policy(state: Any, obs: Any, begin: Any, key: Any) -> Any:
        params = env.default_params
        mask = legal_actions(env, params, obs)
        return state, checks.tracing.random_action(env.action_space(params), key, mask)

    @jax.jit
    def play(params: Any) -> Any:
        carry = rollout.start(env, params, (), jax.random.key(0))
        carry, tape = rollout.collect(policy, env, params, carry, jax.random.key(1), steps)
        return tape, stuck(carry.env_state)

    return play


def recording(env: Any, steps: int = 40, **changes: Any) -> tuple[Any, Any]:
    """Steps at random legal actions, and the number of the step that had none."""
    params = env.default_params
    return jax.device_get(recorder(env, steps)(params.replace(**changes) if changes else params))


@pytest.mark.parametrize(
    ("env", "features"),
    [(Doors(), [0.25, 0.75]), (DictDoors(), [3, 4, -1, 1, 0, 0, 1, 0])],
    ids=["method", "key"],
)
def test_an_observation_ends_in_the_mask_of_the_state_it_shows(env: Any, features: list[float]):
    names = with_inputs(env, env.default_params, ("previous_action", "begin_flag"))
    tape, number = recording(names)
    first, size = mask_place(names, env.default_params) or (0, 0)
    assert (first, size) == (len(features), ACTIONS) and number == 0
    for obs in (tape.obs, tape.next_obs):
        np.testing.assert_array_equal(obs[:, :first], np.tile(features, (len(obs), 1)))
        mask = obs[:, first : first + size]
        assert set(np.unique(mask)) == {0, 1} and mask.any(1).all()
    masks = tape.obs[np.arange(len(tape.action)), first + tape.action]
    np.testing.assert_array_equal(masks, 1)
    np.testing.assert_array_equal(tape.reward, tape.action)  # an illegal one pays -1
    space = names.observation_space(env.default_params)
    assert space.shape == tape.obs.shape[1:] and jax.vmap(space.contains)(tape.obs).all()


DOORS = ActionMask(Doors())


@pytest.mark.parametrize("shut", [1, 3, STEPS + 1])
def test_a_state_without_a_legal_action_is_remembered_by_its_step(shut: int):
    tape, number = recording(DOORS, shut=jnp.int32(shut), ends=jnp.array(False))
    assert number == shut and tape.last.sum() > 1  # after later episodes, too
    _, number = recording(DOORS, shut=jnp.int32(shut), ends=jnp.array(True))
    assert number == (1 if shut == 1 else 0)


def test_an_evaluation_names_the_step_without_a_legal_action():
    def first(state: Any, obs: Any, begin: Any, key: Any) -> Any:
        return state, jnp.int32(0)

    @jax.jit
    def play(shut: Any) -> Any:
        params = Params(shut=shut)
        return rollout.evaluate(first, DOORS, params, (), jax.random.key(0), 2, STEPS).stuck

    for number in (0, 3):
        np.testing.assert_array_equal(play(number), number)


def test_a_check_of_an_environment_plays_legal_actions_and_finds_a_state_without():
    class Strict(Doors):
        def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
            obs, after, reward, terminated, info = Doors.step_env(self, key, state, action, params)
            return obs, after, jnp.where(reward < 0, jnp.nan, reward / 2), terminated, info

    checks.environment(Strict())
    with pytest.raises(ValueError, match=r"is legal in step 4 of an episode"):
        checks.environment(Strict(), Params(shut=4))


def test_wrappers_of_actions_change_the_mask_with_them():
    env = PermutedTasks(Doors(), tasks=3)
    params = env.default_params.replace(task=1)
    state = State(time=jnp.int32(0), bits=jnp.int32(0b001))  # the inner action 0
    np.testing.assert_array_equal(env.action_mask(state, params), [False, False, True])
    mask = PadObservation(Doors(), (4,), 5).action_mask(state, Params())
    np.testing.assert_array_equal(mask, [True, False, False, False, False])


def test_a_trial_keeps_the_mask_inside_of_its_state():
    env = make("probe-MaskedBandit-v0")[0]
    trial = ActionMask(TimeLimit(Trial(env, 2), 4))
    tape, _ = recording(trial)
    assert tape.obs.shape[1] == 1 + 1 + masked.ARMS and (tape.reward >= 0).all()


class Whole(DictDoors):
    """The mask is a part of the observation, and the state can be shown as numbers or pixels."""

    def state_obs(self, state: Any, params: Any) -> Any:
        return state.bits[None].astype(jnp.float32)

    def pixels(self, obs: Any) -> Any:
        return jnp.full((3, 4, 3), obs["suit"], jnp.uint8)


class Lasting(DictDoors):
    """The doors stay as they are until a trial is over."""

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        after = state.replace(time=state.time + 1)
        return self._look(after), after, jnp.float32(action), jnp.array(False), {}

    def next_episode(self, key: Any, state: Any, params: Any) -> Any:
        state = State(time=jnp.int32(0), bits=state.bits)
        return self._look(state), state


OTHERS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "trial": (lambda env: Trial(FlattenObservation(env), 2), 9),
    "inner limit": (lambda env: FlattenObservation(TimeLimit(env, 3)), 8),
    "outer limit": (lambda env: TimeLimit(FlattenObservation(env), 3), 8),
    "permuted": (lambda env: PermutedTasks(FlattenObservation(env), 2), 8),
    "state": (OBSERVE["state"], 1),
    "state of a trial": (lambda env: OBSERVE["state"](Trial(FlattenObservation(env), 2)), 3),
    "pixels": (OBSERVE["pixels"], 36),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_mask_outlasts_the_dictionary_that_had_it(name: str):
    build, features = OTHERS[name]
    names = with_inputs(build(Whole()), build(Whole()).default_params, ("begin_flag",))
    tape, number = recording(names)
    assert mask_place(names, names.default_params) == (features, ACTIONS) and number == 0
    mask = tape.obs[:, features : features + ACTIONS]
    assert set(np.unique(mask)) == {0, 1} and len(np.unique(mask, axis=0)) > 2
    np.testing.assert_array_equal(mask[np.arange(len(mask)), tape.action], 1)
    assert (tape.reward >= 0).all()  # an illegal one pays -1
    ahead = tape.next_obs[:-1][~tape.last[:-1]]
    np.testing.assert_array_equal(ahead, tape.obs[1:][~tape.last[:-1]])


def test_a_trial_keeps_what_a_wrapped_environment_keeps():
    """The doors that end an episode begin the next one of the trial."""
    tape, _ = recording(ActionMask(Trial(FlattenObservation(Lasting()), 3)), 60)
    again = (tape.obs[:, 8] == 1) & ~tape.begin
    assert again.sum() > 5
    np.testing.assert_array_equal(tape.obs[again, 9:], tape.obs[np.roll(again, -1), 9:])


MISTAKES = {
    "hidden in a vector": (
        lambda: FlattenObservation(DictDoors()),
        "Wrap `env` in mmrl.*ActionMask",
    ),
    "not shown": (Doors, "Wrap `env` in mmrl.envs.wrappers.ActionMask"),
    "behind another wrapper": (
        lambda: NoisyObservation(ActionMask(Doors()), 0.1),
        "`env` must have ActionMask .*after ActionMask",
    ),
}


@pytest.mark.full_except(*[f"dqn-{name}" for name in MISTAKES])
@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("agent", AGENTS)
def test_agents_refuse_a_mask_that_they_would_not_find(agent: str, name: str):
    build, message = MISTAKES[name]
    env, module = build(), AGENTS[agent]
    with pytest.raises(ValueError, match=message):
        module.init(module.Config(), env, env.default_params, jax.random.key(0))


def test_a_mask_needs_discrete_actions_and_one_flag_for_each():
    class Short(Doors):
        def action_mask(self, state: Any, params: Any) -> Any:
            return jnp.ones(2, bool)

    with pytest.raises(ValueError, match=r"shape \(3,\), .*; got \(2,\)"):
        ActionMask(Short())
    with pytest.raises(ValueError, match="must have a mask"):
        ActionMask(make("CartPole-v1")[0])
    with pytest.raises(ValueError, match="discrete"):
        ActionMask(make("Pendulum-v1")[0])


def test_the_masked_bandits_values_are_those_of_its_rules():
    gamma, every = 0.9, [m for m in np.ndindex(*[2] * masked.ARMS) if any(m)]
    best = np.mean([max(a / 3 for a in range(masked.ARMS) if m[a]) for m in every])
    np.testing.assert_allclose(masked.MaskedBandit.optimal_return, 3 * best)
    env = masked.MaskedBandit()
    tape, _ = recording(ActionMask(env), 12)
    q = env.optimal_q(jnp.asarray(tape.obs), jnp.asarray(tape.begin), gamma)
    for t, row in enumerate(q):
        later = sum(gamma**k * best for k in range(1, 3 - t % 3))
        legal = tape.obs[t, 1:] == 1
        np.testing.assert_allclose(row[legal], (np.arange(4) / 3 + later)[legal], rtol=1e-5)
        assert np.all(np.isneginf(row[~legal]))


class Paying(Doors):
    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, *rest = super().step_env(key, state, action, params)
        return obs, after, jnp.float32(reward), *rest


class Additive(Paying):
    def action_mask(self, state: Any, params: Any) -> Any:
        return jnp.where(super().action_mask(state, params), 0, -jnp.inf)


class Hidden(Paying):
    """Doors whose dictionary observation has a mask that is added to logits."""

    def _at(self, key: Any, time: Any, params: Any) -> Any:
        obs, state = super()._at(key, time, params)
        return {"obs": obs, "action_mask": jnp.full(ACTIONS, -jnp.inf)}, state

    def observation_space(self, params: Any) -> Any:
        mask = spaces.Box(-jnp.inf, 0, (ACTIONS,), jnp.float32)
        return spaces.Dict({"obs": super().observation_space(params), "action_mask": mask})


class Forgetful(Paying):
    def action_mask(self, state: Any) -> Any:
        return jnp.ones(ACTIONS, bool)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Additive, "must consist of flags.*float32"),
        (Hidden, "must consist of flags.*-inf"),
        (Forgetful, r"cannot be traced: TypeError: .*given"),
    ],
)
def test_a_mask_of_another_form_is_refused_before_a_run(kind: type, message: str):
    for check in (ActionMask, checks.environment, lambda env: Run(Setup(env, seeds=(0,)))):
        with pytest.raises(ValueError, match=message):
            check(kind())


class Stuck(Delay):
    """After the first step of an episode, no action is legal."""

    def action_mask(self, state: Any, params: Any) -> Any:
        return jnp.stack([state.time == 0] * 2)


def test_parallel_environments_keep_the_number_of_a_step_without_legal_actions():
    env = ActionMask(Stuck(3))
    params, many = env.default_params, VmapAutoReset(env, 2)
    key = jax.random.key(0)
    (_, alone), (_, both) = env.reset(key, params), many.reset(key, params)
    for _ in range(5):
        alone = env.step(key, alone, 0, params)[1]
        both = many.step(key, both, jnp.zeros(2, int), params)[1]
        np.testing.assert_array_equal(both.stuck, [alone.stuck] * 2)
    assert alone.stuck == 2
