"""Every rule of an environment, broken once."""

import pathlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnax.environments import environment, spaces

from mmrl import checks
from mmrl.agents import AGENTS, dqn
from mmrl.checks.tracing import random_action
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag, TimeLimit
from mmrl.runs import Run, Setup, program


@struct.dataclass
class State(environment.EnvState):
    cue: Any


@struct.dataclass
class Params(environment.EnvParams):
    max_steps_in_episode: int = 4
    scale: float = 1.0


class Good(environment.Environment):
    """Shows a cue of 0 to 1, pays for action 1 while it is above a half, and is cut short."""

    @property
    def default_params(self) -> Any:
        return Params()

    def reset_env(self, key: Any, params: Any) -> Any:
        return self.look(state := State(time=jnp.int32(0), cue=jax.random.uniform(key))), state

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        reward = params.scale * jnp.where(action == 1, state.cue - 0.5, 0)
        state = State(time=state.time + 1, cue=jax.random.uniform(key))
        return self.look(state), state, reward, state.cue < 0.1, {}

    def look(self, state: Any) -> Any:
        return jnp.stack([state.cue, 1 - state.cue])

    def action_space(self, params: Any) -> Any:
        return spaces.Discrete(2)

    def observation_space(self, params: Any) -> Any:
        return spaces.Box(0.0, 1.0, (2,), jnp.float32)


def change(place: int, by: Callable[[Any], Any]) -> Callable[..., Any]:
    """`step_env` with another value at one place of what it returns."""

    def step_env(self: Any, *args: Any) -> Any:
        step = Good.step_env(self, *args)
        return (*step[:place], by(step[place]), *step[place + 1 :])

    return step_env


def first(by: Callable[[Any], Any]) -> Callable[..., Any]:
    """`reset_env` with another state."""

    def reset_env(self: Any, *args: Any) -> Any:
        obs, state = Good.reset_env(self, *args)
        return obs, by(state)

    return reset_env


def params(value: Any) -> property:
    return property(lambda self: value)


def space(value: Any) -> Callable[..., Any]:
    return lambda self, params: value


class Bare:
    """Not of gymnax, and with nothing but a step and a reset."""

    step_env = reset_env = default_params = None


@struct.dataclass
class Timeless:
    cue: Any


class NoNumbers:
    max_steps_in_episode = 4


def branches(self: Any, key: Any, state: Any, action: Any, params: Any) -> Any:
    return Good.step_env(self, key, state, action + 1 if action > 0 else 0, params)


def four(self: Any, *args: Any) -> Any:
    return Good.step_env(self, *args)[:4]


def six(self: Any, *args: Any) -> Any:
    obs, state, reward, terminated, info = Good.step_env(self, *args)
    return obs, state, reward, terminated, terminated, info


def older(self: Any, key: Any, state: Any, action: Any, params: Any = None) -> Any:
    """A `step` as gymnax had it once."""
    obs, state, reward, terminated, truncated, info = environment.Environment.step(
        self, key, state, action, params
    )
    return obs, state, reward, terminated | truncated, info


def forgetful(self: Any, *args: Any) -> Any:
    *step, info = environment.Environment.step(self, *args)
    return *step, {k: v for k, v in info.items() if k != "final_observation"}


class FromOne(spaces.Discrete):
    start = 1


STATIC_MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no length": ({"default_params": params(struct.dataclass(type("P", (), {}))())}, "`max_steps"),
    "inherited length": (
        {"default_params": environment.Environment.default_params},
        "end every episode after one step",
    ),
    "length of none": ({"default_params": params(Params(max_steps_in_episode=0))}, "got 0"),
    "parameters by a method": ({"default_params": lambda self: Params()}, "Write @property"),
    "parameters that are no numbers": ({"default_params": params(NoNumbers())}, "flax.struct"),
    "no observation space": (
        {"observation_space": environment.Environment.observation_space},
        r"`observation_space\(params\)` must return a space; it raised NotImplementedError",
    ),
    "composed space": (
        {"observation_space": space(spaces.Tuple([spaces.Discrete(2)]))},
        "`observation_space` must be .*Concatenate",
    ),
    "shape of a number": ({"observation_space": space(spaces.Box(0, 1, 2))}, "is a tuple"),
    "bounds of another shape": (
        {"observation_space": space(spaces.Box(jnp.zeros(3), 1, (2,)))},
        r"bounds, or bounds of shape \(2,\)",
    ),
    "bounds beyond the dtype": (
        {"observation_space": space(spaces.Box(0, 1000, (2,), jnp.uint8))},
        r"`observation_space` .*Box\(low=0, high=1000, .*uint8 is 0 to 255",
    ),
    "bounds upside down": (
        {"observation_space": space(spaces.Box(1, 0, (2,)))},
        "`observation_space` must have low <= high",
    ),
    "a bound that is no number": (
        {"action_space": space(spaces.Box(0, np.array([1, np.nan]), (2,)))},
        "`action_space` must have low < high .*, without NaN; got low=0 and high=nan at index 1",
    ),
    "an action that cannot vary": (
        {"action_space": space(spaces.Box(1, 1, (2,)))},
        "`action_space` must have low < high",
    ),
    "actions from one": (
        {"action_space": space(FromOne(2))},
        "`action_space` must .*; got start=1",
    ),
    "no action": ({"action_space": space(spaces.Discrete(0))}, "Discrete space of at least one"),
    "matrices of actions": ({"action_space": space(spaces.Box(0, 1, (2, 2)))}, "Box of vectors"),
    "no reset": (
        {"reset_env": environment.Environment.reset_env},
        "`reset_env` cannot be traced: NotImplementedError",
    ),
    "reset of one": ({"reset_env": lambda self, k, p: jnp.zeros(2)}, "2 values, .* got an array"),
    "shape of the first": (
        {"observation_space": space(spaces.Box(0, 1, (3,)))},
        r"`reset_env` must return .* `observation_space`, \(3,\); got \(2,\)",
    ),
    "no time": ({"reset_env": first(lambda s: Timeless(s.cue))}, "the state must have .* `time`"),
    "python chooses": (
        {"step_env": branches},
        r"`step_env` cannot be traced: TracerBoolConversionError.*\(test_playing.py, line \d+\)",
    ),
    "four values": ({"step_env": four}, r"5 values, .*; got 4\."),
    "six values": ({"step_env": six}, "got 6. Only `is_truncated` reports truncation"),
    "shape of a step": ({"step_env": change(0, lambda x: x[:1])}, r"`step_env` .*; got \(1,\)"),
    "fields": (
        {"step_env": change(1, lambda s: environment.EnvState(time=s.time))},
        "same fields as `reset_env`; got time after cue, time|got time after time, cue",
    ),
    "dtype of the state": (
        {"step_env": change(1, lambda s: s.replace(time=1.0 * s.time))},
        r"state\.time is int32\[\] after a reset and float32\[\] after a step",
    ),
    "reward of a vector": ({"step_env": change(2, lambda r: r[None])}, r"`reward` .*; got \(1,\)"),
    "end of a vector": (
        {"step_env": change(3, lambda x: x[None])},
        "`terminated` must be a scalar",
    ),
    "cut of a vector": (
        {"is_truncated": lambda self, state, params: jnp.zeros(2, bool)},
        "`is_truncated` must be a scalar",
    ),
    "told nothing": ({"step_env": change(4, lambda x: None)}, "`info` must be a dictionary"),
    "whole step of five": ({"step": older}, "`step` must return 6 values, .*; got 5"),
    "no final observation": ({"step": forgetful}, "`final_observation`"),
}


def with_fault(changes: dict[str, Any]) -> Any:
    return type("Broken", (Good,), changes)()


@pytest.mark.parametrize("name", STATIC_MISTAKES)
def test_what_cannot_be_played_is_said_without_playing(name: str):
    changes, message = STATIC_MISTAKES[name]
    rule = r"^`env` must follow the rules .*; Broken breaks 1 rule: .*"
    with pytest.raises(ValueError, match=f"{rule}({message})"):
        checks.environment(with_fault(changes), steps=0)


def test_what_is_no_environment_is_said():
    with pytest.raises(ValueError, match=r"got a class. Pass Good\(\)"):
        checks.environment(Good)
    with pytest.raises(ValueError, match=r"must have the methods .*; it lacks reset, step, "):
        checks.environment(Bare())


def test_all_rules_that_are_broken_are_told_at_once():
    changes = STATIC_MISTAKES["reward of a vector"][0] | STATIC_MISTAKES["cut of a vector"][0]
    with pytest.raises(ValueError, match=r"2 rules: \(1\) `reward` .*; \(2\) `is_truncated` "):
        checks.environment(with_fault(changes))


def crash(after: Callable[[Any, Any], Any], by: float) -> Callable[..., Any]:
    """A step whose observation is `by` where `after` (terminated, state) is true."""

    def step_env(self: Any, *args: Any) -> Any:
        obs, state, reward, terminated, info = Good.step_env(self, *args)
        obs = jnp.where(after(terminated, state), by, obs)
        return obs, state, reward, terminated, info

    return step_env


ANY = {"observation_space": space(spaces.Box(-jnp.inf, jnp.inf, (2,), jnp.float32))}


def count(self: Any, *args: Any) -> Any:
    """A bonus that grows whenever it is traced."""
    self.calls = getattr(self, "calls", 0) + 1
    obs, state, reward, terminated, info = Good.step_env(self, *args)
    return obs, state, reward + self.calls, terminated, info


def dice(self: Any, *args: Any) -> Any:
    obs, state = Good.reset_env(self, *args)
    return jnp.clip(obs + np.random.default_rng().uniform(), 0, 1), state


def host(self: Any, *args: Any) -> Any:
    """Chance that no program shows: it comes from the host."""
    obs, state, reward, terminated, info = Good.step_env(self, *args)
    draw = partial(np.random.default_rng().random, dtype=np.float32)
    kind = jax.ShapeDtypeStruct((), jnp.float32)
    more = jax.pure_callback(lambda _: np.float32(draw()), kind, reward, vmap_method="sequential")
    return obs, state, reward + more, terminated, info


def of_the_next(self: Any, *args: Any) -> Any:
    obs, *step, info = environment.Environment.step(self, *args)
    return obs, *step, {**info, "final_observation": obs}


def without_reset(self: Any, key: Any, state: Any, action: Any, params: Any) -> Any:
    obs, state, reward, terminated, info = self.step_env(key, state, action, params)
    truncated = self.is_truncated(state, params)
    return obs, state, reward, terminated, truncated, {**info, "final_observation": obs}


def resetting(self: Any, key: Any, state: Any, action: Any, params: Any) -> Any:
    """A step that begins the next episode itself."""
    obs, after, reward, _, info = Good.step_env(self, key, state, action, params)
    terminated, (other, first) = after.cue < 0.5, self.reset_env(key, params)
    after, obs = jax.tree.map(partial(jnp.where, terminated), (first, other), (after, obs))
    return obs, after, reward, terminated, info


def step_with_limit(late: int, alone: bool = False) -> Callable[..., Any]:
    """A step that terminates when time is up, as `state.time` has it before or after the step."""

    def step_env(self: Any, key: Any, state: Any, action: Any, params: Any) -> Any:
        *step, terminated, info = Good.step_env(self, key, state, action, params)
        up = state.time + late >= params.max_steps_in_episode
        return *step, up | (terminated & (not alone)), info

    return step_env


PLAY_MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a step that resets": (
        {"step_env": resetting},
        "`step_env` must not reset the environment; in step",
    ),
    "an end by the clock": (
        {"step_env": step_with_limit(1)},
        "`terminated` must not depend on the time",
    ),
    "no other end": (
        {"step_env": step_with_limit(1, alone=True)},
        "`terminated` must not depend on the",
    ),
    "an end by a late clock": (
        {"step_env": step_with_limit(0)},
        "`terminated` must not depend on the",
    ),
    "whole numbers seen": (
        {
            "reset_env": lambda self, *x: jax.tree.map(jnp.int32, Good.reset_env(self, *x)),
            "step_env": lambda self, *x: (
                jax.tree.map(jnp.int32, Good.step_env(self, *x)[:2]) + Good.step_env(self, *x)[2:]
            ),
        },
        "dtype of `observation_space`, float32; got int32",
    ),
    "pixels that wrap": (
        {
            "look": lambda self, state: (255 * jnp.stack([state.cue] * 2)).astype(jnp.int8),
            "observation_space": space(spaces.Box(0, 255, (2,), jnp.uint8)),
        },
        "dtype of `observation_space`, uint8; got int8",
    ),
    "whole reward": ({"step_env": change(2, jnp.int32)}, "`reward` must be a float; got int32"),
    "end in numbers": ({"step_env": change(3, jnp.int32)}, "`terminated` must be a bool"),
    "a counter of its own": ({"step_env": count}, "`step_env`: the same key, .* `self`"),
    "chance of another": ({"reset_env": dice}, "`reset_env`: the same key"),
    "chance of the host": ({"step_env": host}, "breaks 1 rule: the same key"),
    "outside": (
        {"step_env": change(0, lambda x: x - 1)},
        r"lie in `observation_space`, Box.*; got values from -0\.\d+ .* first in step 1 ",
    ),
    "no number": ({"step_env": change(0, lambda x: x * jnp.nan)}, "must lie .* from nan to nan"),
    "a crash at the end": (
        {"step_env": crash(lambda terminated, state: terminated, np.nan)},
        "must lie .*nan.*NaN or infinity occurs only where episodes terminate, .* harmless",
    ),
    "infinity at the end": (
        {"step_env": crash(lambda terminated, state: terminated, np.inf), **ANY},
        "must lie .* inf, .*NaN or infinity occurs only where episodes terminate, .* harmless",
    ),
    "a crash where time is up": (
        {"step_env": crash(lambda terminated, state: state.time == 4, np.inf), **ANY},
        "Agents would learn from NaN or infinity in step 4 of an episode",
    ),
    "infinity on the way": (
        {"step_env": crash(lambda terminated, state: state.time == 2, -np.inf), **ANY},
        "Agents would learn from NaN or infinity in step 2 of an episode",
    ),
    "no number at first": (
        {"reset_env": lambda self, *x: (jnp.full(2, jnp.nan), Good.reset_env(self, *x)[1])},
        "Agents would learn from NaN or infinity in step 1 of an episode",
    ),
    "infinite": ({"step_env": change(2, lambda r: r / 0)}, "`reward` must be finite; .* in step 1"),
    "no clock": (
        {"step_env": change(1, lambda s: s.replace(time=s.time * 0))},
        "`state.time` must be 0 after a reset.* by 1 at each step",
    ),
    "a clock that begins late": (
        {"reset_env": first(lambda s: s.replace(time=s.time + 1))},
        "`state.time` must be 0 after a reset",
    ),
    "a step too long": (
        {"is_truncated": lambda self, state, params: state.time > params.max_steps_in_episode},
        "must end after .*`max_steps_in_episode` = 4 steps",
    ),
    "no reset after the end": ({"step": without_reset}, "`state.time` must be 0 after a reset"),
    "an observation too late": (
        {"step": of_the_next},
        "`final_observation` .*; in step .* it is the first observation of the next one",
    ),
}


@pytest.mark.parametrize("name", PLAY_MISTAKES)
def test_what_is_wrong_in_play_is_said(name: str):
    changes, message = PLAY_MISTAKES[name]
    checks.environment(with_fault(changes), steps=0)  # it can be played, and so is trained
    rule = r"^`env` must follow the rules .*; Broken breaks 1 rule: .*"
    with pytest.raises(ValueError, match=rule) as error:
        checks.environment(with_fault(changes))
    assert re.search(message, str(error.value)), error.value


DISCRETE_VIEW: dict[str, Any] = {
    "look": lambda self, state: (state.cue > 0.5).astype(jnp.int32),
    "observation_space": space(spaces.Discrete(2)),
}


def test_whole_numbers_and_pictures_are_shown_as_a_vector():
    env = program("dqn", with_fault(DISCRETE_VIEW), ()).env
    obs, _ = jax.eval_shape(env.reset_env, jax.random.key(0), env.default_params)
    assert (obs.shape, obs.dtype) == ((2,), jnp.float32)


@pytest.mark.slow
def test_good_environments_pass():
    checks.environment(TimeLimit(BeginFlag(Good()), 3))
    for env, params in ((Good(), Params(max_steps_in_episode=2)), make("Pendulum-v1")):
        checks.environment(env, params, steps=0)
    checks.environment(with_fault(DISCRETE_VIEW))
    picture = spaces.Box(0.0, 1.0, (2, 2), jnp.float32)
    checks.environment(
        with_fault({"look": lambda self, s: jnp.ones((2, 2)), "observation_space": space(picture)}),
        steps=0,
    )


def test_a_run_says_so_before_it_writes(tmp_path: pathlib.Path):
    for name in ("four values", "no length", "no observation space"):
        with pytest.raises(ValueError, match="`env` must follow the rules"):
            Run(
                Setup(env=with_fault(STATIC_MISTAKES[name][0]), config=dqn.Config()),
                tmp_path / "run",
            )
    for name in ("whole numbers seen", "pixels that wrap"):
        with pytest.raises(ValueError, match=r"the observations of `env` must .*dtype"):
            Run(
                Setup(env=with_fault(PLAY_MISTAKES[name][0]), config=dqn.Config()), tmp_path / "run"
            )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_no_agent_takes_actions_that_do_not_begin_at_zero(agent: str):
    module, env = AGENTS[agent], with_fault(STATIC_MISTAKES["actions from one"][0])
    init = partial(module.init, module.Config(memory="none"), env, env.default_params)
    with pytest.raises(ValueError, match=r"`action_space` of `env` must .*; got start=1"):
        jax.eval_shape(init, jax.random.key(0))


@pytest.mark.parametrize("agent", AGENTS)
def test_no_agent_begins_with_observations_that_their_type_cannot_hold(agent: str):
    module, env = AGENTS[agent], with_fault(PLAY_MISTAKES["whole numbers seen"][0])
    init = partial(module.init, module.Config(memory="none"), env, env.default_params)
    with pytest.raises(ValueError, match=r"the observations of `env` must .*; got int32"):
        jax.eval_shape(init, jax.random.key(0))


@pytest.mark.parametrize(
    ("low", "high"),
    [(100.0, np.inf), (-np.inf, -3.0), (np.array([-1.0, 5.0]), np.array([1, np.inf]))],
)
def test_random_actions_are_legal(low: Any, high: Any):
    box = spaces.Box(low, high, (2,), jnp.float32)
    draw = jax.vmap(partial(random_action, box))
    draws = np.asarray(draw(jax.random.split(jax.random.key(0), 20)))
    assert (draws >= low).all() and (draws <= high).all() and (np.ptp(draws, 0) > 0).all()
