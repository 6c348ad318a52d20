"""Tiny environments whose optimal values are known in closed form.

An agent that fails on a game gives no hint of its bug; an agent that fails on a probe does. Each
probe adds one thing that an agent must get right to the previous probe (after A. Jones's probe
environments, "Debugging RL, without the agonizing pain", 2021):

| id | what must work | Q* |
|---|---|---|
| `probe-Constant-v0` | the value loss | 1 |
| `probe-Observation-v0` | the network sees the observation | ±1 |
| `probe-Delay-v0` | discount and bootstrapping | γ^(steps left - 1) |
| `probe-Truncation-v0` | a time limit is no end; `next_obs` is not the reset's | 1/(1-γ), γ/(1-γ) |
| `probe-Choice-v0` | the policy | -1, +1 |
| `probe-Match-v0` | a policy that depends on the observation | ±1 |
| `probe-Memory-v0` | memory: the cue is gone when the question comes | γ^(steps left - 1), ±1 |

All have two actions and see one-hot vectors. `probe-Bandit-v0` is a trial of several episodes: see
`bandit`. Compare an agent's values with `optimal_q` along the tape that it collected.
"""

import abc
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import Action, Leaf, Numbers, Params, Task, one_hot
from mmrl.envs.wrappers.trial import Trial

Obs = Float[Array, " obs"]
ObsTape = Float[Array, "time obs"]
BeginTape = Bool[Array, " time"]
QTape = Float[Array, "time action"]
Reward = Float[Array, ""]
Gamma = Float[Array, ""] | float


@struct.dataclass
class ProbeState(environment.EnvState):
    """State with a `cue` of 0 or 1, drawn at the reset; some probes do not use it."""

    time: Leaf
    cue: Leaf


class Probe(Task):
    """An episode of `num_steps` steps that terminates; subclasses define observations and rewards.

    `optimal_return` is the expected undiscounted return of the best policy.
    """

    optimal_return: float
    actions = 2
    state_size = 2
    start_numbers = 1
    step_numbers = 0

    @abc.abstractmethod
    def reward(self, state: ProbeState, action: Action) -> Reward:
        """Return the reward of this action in this state."""

    @abc.abstractmethod
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        """Return Q*(o_{≤t}, ·) at each step of a tape that starts with an episode."""

    def start(self, u: Numbers, params: Params) -> ProbeState:
        """Return the first state."""
        return ProbeState(time=jnp.int32(0), cue=(u[0] < 0.5).astype(jnp.int32))

    def advance(
        self, u: Numbers, state: ProbeState, action: Action, params: Params
    ) -> tuple[ProbeState, Reward]:
        """Return the next state and the reward."""
        return ProbeState(time=state.time + 1, cue=state.cue), self.reward(state, action)

    def is_terminated(self, state: ProbeState, params: Params) -> Bool[Array, ""]:
        """Return True after `num_steps` steps."""
        return jnp.asarray(state.time >= self.num_steps)

    @promoting
    def state_obs(self, state: ProbeState, params: Params) -> Float[Array, " state"]:
        """Return (cue, share of the episode that has passed)."""
        return jnp.stack([state.cue, state.time / self.num_steps]).astype(jnp.float32)


class Constant(Probe):
    """One step with r = 1, Q* = 1: can the value learn a constant?"""

    num_steps, obs_size = 1, 1
    optimal_return = 1.0

    def look(self, state: ProbeState, params: Params) -> Obs:
        return jnp.ones(1)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return jnp.float32(1)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return jnp.ones((len(obs), 2))


class Observation(Probe):
    """One step with r = ±1 by the cue in view, Q* = ±1: does the value use the observation?"""

    num_steps, obs_size = 1, 2
    optimal_return = 0.0

    def look(self, state: ProbeState, params: Params) -> Obs:
        return one_hot(state.cue, 2)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return _sign(state.cue == 1)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return _both(_sign(obs[:, 1] == 1))


class Delay(Probe):
    """`num_steps` steps, r = 1 at the last, Q* = γ^(num_steps-1-t): does value propagate back?"""

    optimal_return = 1.0

    def __init__(self, num_steps: int = 2):
        if num_steps < 1:
            raise ValueError(f"`num_steps` must be at least 1, got {num_steps}.")
        self.num_steps = self.obs_size = num_steps

    def look(self, state: ProbeState, params: Params) -> Obs:
        return one_hot(state.time, self.num_steps)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return (state.time == self.num_steps - 1).astype(jnp.float32)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return _both(gamma ** (self.num_steps - 1.0 - steps_since(begin)))


class Truncation(Probe):
    """A → B → B …, r = 1 in B, cut after two steps. Q*(B) = 1/(1-γ), Q*(A) = γ/(1-γ).

    An episode starts in A or B at random and would continue forever without the time limit. If an
    agent learns from random episodes and takes the limit for an end, it finds Q(B) = 3/(3-γ); if it
    bootstraps from the observation after the reset, it finds Q(B) = 3/((1-γ)(3+γ)).
    """

    num_steps, obs_size = 2, 2
    optimal_return = 1.5

    def look(self, state: ProbeState, params: Params) -> Obs:
        return one_hot(self._in_b(state), 2)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return self._in_b(state).astype(jnp.float32)

    def is_terminated(self, state: ProbeState, params: Params) -> Bool[Array, ""]:
        return jnp.array(False)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return _both(jnp.where(obs[:, 1] == 1, 1.0, gamma) / (1.0 - gamma))

    def _in_b(self, state: ProbeState) -> Int[Array, ""]:
        return jnp.where(state.time > 0, 1, state.cue)


class Choice(Probe):
    """One step, r = -1 for action 0 and +1 for action 1: does the policy prefer the reward?"""

    num_steps, obs_size = 1, 1
    optimal_return = 1.0

    def look(self, state: ProbeState, params: Params) -> Obs:
        return jnp.ones(1)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return _sign(jnp.asarray(action) == 1)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return jnp.tile(jnp.array([-1.0, 1.0]), (len(obs), 1))


class Match(Probe):
    """One step, r = 1 if the action equals the cue in view, otherwise -1: does the policy look?"""

    num_steps, obs_size = 1, 2
    optimal_return = 1.0

    def look(self, state: ProbeState, params: Params) -> Obs:
        return one_hot(state.cue, 2)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return _sign(jnp.asarray(action) == state.cue)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return 2.0 * obs - 1.0


class Memory(Probe):
    """The cue is shown at t = 0, the question asked at t = num_steps - 1; r = ±1 there, 0 before.

    Observes (cue one-hot or zeros, question). Q* = γ^(num_steps-1-t) before the question, ±1 at it.
    Without memory no policy earns more than 0 on average.
    """

    optimal_return = 1.0
    optimal_return_without_memory = 0.0

    def __init__(self, num_steps: int = 5):
        if num_steps < 2:
            raise ValueError(f"`num_steps` must be at least 2 to forget anything, got {num_steps}.")
        self.num_steps, self.obs_size = num_steps, 3

    def look(self, state: ProbeState, params: Params) -> Obs:
        cue = jnp.where(state.time == 0, one_hot(state.cue, 2), 0.0)
        asked = (state.time == self.num_steps - 1).astype(jnp.float32)
        return jnp.append(cue, asked)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        right = _sign(jnp.asarray(action) == state.cue)
        return jnp.where(state.time == self.num_steps - 1, right, 0.0)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        since = steps_since(begin)
        cue = obs[jnp.arange(len(obs)) - since, :2]
        waiting = _both(gamma ** (self.num_steps - 1.0 - since))
        return jnp.where(obs[:, 2:] == 1, 2.0 * cue - 1.0, waiting)


class Arm(Probe):
    """One step, r = 1 for one of `arms` actions and 0 for the others; no observation reveals which.

    Inside a `Trial` the right arm stays for all episodes: an agent that remembers its pulls can
    find it, and an agent that forgets them with each episode earns 1/arms per pull.
    """

    num_steps, obs_size = 1, 1

    def __init__(self, arms: int = 4):
        if arms < 2:
            raise ValueError(f"`arms` must be at least 2, got {arms}.")
        self.actions, self.optimal_return = arms, 1 / arms

    def start(self, u: Numbers, params: Params) -> ProbeState:
        arm = jnp.floor(u[0] * self.actions).astype(jnp.int32)
        return ProbeState(time=jnp.int32(0), cue=arm)

    def next_episode(
        self, key: PRNGKeyArray, state: ProbeState, params: Params
    ) -> tuple[Obs, ProbeState]:
        """Return the first observation and state of another episode with the same arm."""
        state = ProbeState(time=jnp.zeros_like(state.time), cue=state.cue)
        return self.look(state, params), state

    def look(self, state: ProbeState, params: Params) -> Obs:
        return jnp.ones(1)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return jnp.asarray(action == state.cue, jnp.float32)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return jnp.full((len(obs), self.actions), 1 / self.actions)


def bandit(arms: int = 4, pulls: int = 8) -> Trial:
    """Return a trial of `pulls` episodes of `Arm`.

    The best policy tries one arm after the other until one pays. With n arms it earns
    Σ_{j ≤ min(n, pulls)} (pulls - j + 1) / n on average: see `bandit_return`. Observe the previous
    action and reward.
    """
    return Trial(Arm(arms), pulls)


def bandit_return(arms: int = 4, pulls: int = 8) -> float:
    """Return the expected return of the best policy for `bandit`; without memory: pulls / arms."""
    return sum(pulls - j for j in range(min(arms, pulls))) / arms


TRIALS: dict[str, Callable[..., Trial]] = {"probe-Bandit-v0": bandit}
"""Probes whose memory must be kept over several episodes."""

SPECS: dict[str, Callable[..., Probe]] = {
    f"probe-{probe.__name__}-v0": probe
    for probe in (Constant, Observation, Delay, Truncation, Choice, Match, Memory)
}


def _sign(yes: Bool[Array, "*time"]) -> Float[Array, "*time"]:
    return jnp.where(yes, jnp.float32(1), jnp.float32(-1))


def _both(value: Float[Array, " time"]) -> QTape:
    """Return a value for both actions."""
    return jnp.stack([value, value], axis=1)


def steps_since(begin: BeginTape) -> Int[Array, " time"]:
    """Return the number of steps since the episode began."""
    time = jnp.arange(len(begin))
    return time - jax.lax.cummax(jnp.where(begin, time, 0))
