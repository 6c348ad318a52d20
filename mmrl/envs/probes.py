"""Probes: tiny environments whose optimal Q-values are known in closed form.

When an agent fails on a game, the cause is hard to find. Each probe in this table requires one more
component of an agent than the probe above, so the first probe on which the agent fails identifies
the faulty component. The idea is from A. Jones, "Debugging RL, without the agonizing pain", 2021.

| id | component | Q* |
|---|---|---|
| `probe-Constant-v0` | value loss | 1 |
| `probe-Observation-v0` | observation as input of the network | ±1 |
| `probe-Delay-v0` | discounting and bootstrapping | γ^(steps left - 1) |
| `probe-Truncation-v0` | bootstrapping from `next_obs` at a time limit | 1/(1-γ), γ/(1-γ) |
| `probe-Choice-v0` | policy | -1, +1 |
| `probe-Match-v0` | policy that depends on the observation | ±1 |
| `probe-Memory-v0` | memory: the cue is hidden when it is needed | γ^(steps left - 1), ±1 |

All probes have two actions and small observation vectors. `probe-Bandit-v0` is a trial of several
episodes; see `bandit`. To debug an agent, compare its Q-values on a collected tape with
`optimal_q`.
"""

import abc
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mmrl._dtypes import with_promotion
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
    """State of a probe, with a `cue` of 0 or 1 that is sampled at reset."""

    time: Leaf
    cue: Leaf


class Probe(Task):
    """Base class of probes.

    `optimal_return` is the expected undiscounted return of the optimal policy. Episodes have
    `num_steps` steps.
    """

    optimal_return: float
    actions = 2
    state_size = 2
    start_numbers = 1
    step_numbers = 0

    @abc.abstractmethod
    def reward(self, state: ProbeState, action: Action) -> Reward:
        """Return the reward for taking `action` in `state`."""

    @abc.abstractmethod
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        """Return Q*(o_{≤t}, ·) for each step of a tape whose first step begins an episode."""

    def start(self, u: Numbers, params: Params) -> ProbeState:
        """Return the initial state of an episode."""
        return ProbeState(time=jnp.int32(0), cue=(u[0] < 0.5).astype(jnp.int32))

    def advance(
        self, u: Numbers, state: ProbeState, action: Action, params: Params
    ) -> tuple[ProbeState, Reward]:
        """Return the next state and the reward."""
        return ProbeState(time=state.time + 1, cue=state.cue), self.reward(state, action)

    def is_terminated(self, state: ProbeState, params: Params) -> Bool[Array, ""]:
        """Return True after `num_steps` steps."""
        return jnp.asarray(state.time >= self.num_steps)

    @with_promotion
    def state_obs(self, state: ProbeState, params: Params) -> Float[Array, " state"]:
        """Return the cue and t / num_steps."""
        return jnp.stack([state.cue, state.time / self.num_steps]).astype(jnp.float32)


class Constant(Probe):
    """Probe of the value loss: the only reward is 1, after one step."""

    num_steps, obs_size = 1, 1
    optimal_return = 1.0

    def look(self, state: ProbeState, params: Params) -> Obs:
        return jnp.ones(1)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return jnp.float32(1)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return jnp.ones((len(obs), 2))


class Observation(Probe):
    """Probe of the network's input: a single reward of ±1, which the observation predicts."""

    num_steps, obs_size = 1, 2
    optimal_return = 0.0

    def look(self, state: ProbeState, params: Params) -> Obs:
        return one_hot(state.cue, 2)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return _sign(state.cue == 1)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return _both(_sign(obs[:, 1] == 1))


class Delay(Probe):
    """Probe of bootstrapping: r = 1 only at the last step, so Q* = γ^(num_steps-1-t)."""

    optimal_return = 1.0

    def __init__(self, num_steps: int = 2):
        if num_steps < 1:
            raise ValueError(f"`num_steps` must be at least 1, got {num_steps}.")
        self.num_steps = self.obs_size = num_steps

    def look(self, state: ProbeState, params: Params) -> Obs:
        return one_hot(state.time, self.num_steps)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return (state.time == self.num_steps - 1).astype(jnp.float32)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return _both(gamma ** (self.num_steps - 1.0 - steps_since(begin)))


class Truncation(Probe):
    """Probe of truncation: A → B → B …, with r = 1 in B and a time limit of two steps.

    An episode starts in A or B at random, and only the time limit ends it. The optimal values are
    Q*(B) = 1/(1-γ) and Q*(A) = γ/(1-γ). Two common mistakes lead to other values: treating the
    time limit as a termination gives Q(B) = 3/(3-γ), and bootstrapping from the observation after
    the reset gives Q(B) = 3/((1-γ)(3+γ)).
    """

    num_steps, obs_size = 2, 2
    optimal_return = 1.5

    def look(self, state: ProbeState, params: Params) -> Obs:
        return one_hot(self._in_b(state), 2)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return self._in_b(state).astype(jnp.float32)

    def is_terminated(self, state: ProbeState, params: Params) -> Bool[Array, ""]:
        return jnp.array(False)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return _both(jnp.where(obs[:, 1] == 1, 1.0, gamma) / (1.0 - gamma))

    def _in_b(self, state: ProbeState) -> Int[Array, ""]:
        return jnp.where(state.time > 0, 1, state.cue)


class Choice(Probe):
    """Probe of the policy: a single reward, -1 for action 0 and +1 for action 1."""

    num_steps, obs_size = 1, 1
    optimal_return = 1.0

    def look(self, state: ProbeState, params: Params) -> Obs:
        return jnp.ones(1)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return _sign(jnp.asarray(action) == 1)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return jnp.tile(jnp.array([-1.0, 1.0]), (len(obs), 1))


class Match(Probe):
    """Probe of the policy's input: r = 1 if the action equals the cue, and -1 otherwise."""

    num_steps, obs_size = 1, 2
    optimal_return = 1.0

    def look(self, state: ProbeState, params: Params) -> Obs:
        return one_hot(state.cue, 2)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return _sign(jnp.asarray(action) == state.cue)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return 2.0 * obs - 1.0


class Memory(Probe):
    """Probe of memory: the cue is shown at t = 0 and needed at t = num_steps - 1.

    At the last step, r = 1 if the action equals the cue, and -1 otherwise; r = 0 at all other
    steps. The observation consists of the one-hot cue, replaced by zeros after t = 0, and a flag
    that is 1 at the last step. Q* = γ^(num_steps-1-t) before the last step, where Q* = ±1. Without
    memory, the expected return of every policy is 0.
    """

    optimal_return = 1.0
    optimal_return_without_memory = 0.0

    def __init__(self, num_steps: int = 5):
        if num_steps < 2:
            raise ValueError(f"`num_steps` must be at least 2, got {num_steps}.")
        self.num_steps, self.obs_size = num_steps, 3

    def look(self, state: ProbeState, params: Params) -> Obs:
        cue = jnp.where(state.time == 0, one_hot(state.cue, 2), 0.0)
        question = (state.time == self.num_steps - 1).astype(jnp.float32)
        return jnp.append(cue, question)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        right = _sign(jnp.asarray(action) == state.cue)
        return jnp.where(state.time == self.num_steps - 1, right, 0.0)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        since = steps_since(begin)
        cue = obs[jnp.arange(len(obs)) - since, :2]
        before_last = _both(gamma ** (self.num_steps - 1.0 - since))
        return jnp.where(obs[:, 2:] == 1, 2.0 * cue - 1.0, before_last)


class Arm(Probe):
    """One-step bandit with a single winning arm, which pays 1. The other arms pay 0.

    The observation does not reveal the paying arm. Inside a `Trial`, this arm stays the same in all
    episodes, so an agent that remembers its pulls can find it. An agent without memory of previous
    episodes earns 1/arms per pull on average.
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
        """Return the first observation and state of the next episode, with the same paying arm."""
        state = ProbeState(time=jnp.zeros_like(state.time), cue=state.cue)
        return self.look(state, params), state

    def look(self, state: ProbeState, params: Params) -> Obs:
        return jnp.ones(1)

    def reward(self, state: ProbeState, action: Action) -> Reward:
        return jnp.asarray(action == state.cue, jnp.float32)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        return jnp.full((len(obs), self.actions), 1 / self.actions)


def bandit(arms: int = 4, pulls: int = 8) -> Trial:
    """Return a trial of `pulls` episodes of `Arm`.

    The optimal policy tries the arms one by one until one pays, and then keeps pulling it. Its
    expected return with n arms is Σ_{j ≤ min(n, pulls)} (pulls - j + 1) / n; see `bandit_return`.
    Agents need the previous action and reward as inputs.
    """
    return Trial(Arm(arms), pulls)


def bandit_return(arms: int = 4, pulls: int = 8) -> float:
    """Return the expected return of the optimal policy on `bandit(arms, pulls)`.

    Without memory, the expected return is pulls / arms.
    """
    return sum(pulls - j for j in range(min(arms, pulls))) / arms


TRIALS: dict[str, Callable[..., Trial]] = {"probe-Bandit-v0": bandit}
"""Trials: probes in which an agent must keep its memory across episodes."""

SPECS: dict[str, Callable[..., Probe]] = {
    f"probe-{probe.__name__}-v0": probe
    for probe in (Constant, Observation, Delay, Truncation, Choice, Match, Memory)
}


def _sign(yes: Bool[Array, "*time"]) -> Float[Array, "*time"]:
    return jnp.where(yes, jnp.float32(1), jnp.float32(-1))


def _both(value: Float[Array, " time"]) -> QTape:
    """Return Q-values that are equal for both actions."""
    return jnp.stack([value, value], axis=1)


def steps_since(begin: BeginTape) -> Int[Array, " time"]:
    """Return the number of steps since the start of the episode, for each step of a tape."""
    time = jnp.arange(len(begin))
    return time - jax.lax.cummax(jnp.where(begin, time, 0))
