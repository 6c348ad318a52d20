"""Environments with illegal actions, which the method `action_mask` reports.

| id | illegal actions | optimal return |
|---|---|---|
| `probe-MaskedBandit-v0` | a random set of arms, sampled at each step | 34/15 |
| `probe-MaskedHigherLower-v0` | "higher" on a king and "lower" on an ace | |

Agents never take illegal actions, so the rewards of illegal actions do not matter.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mmrl._dtypes import with_promotion
from mmrl.envs.popgym.base import Action, Numbers, Params, Task
from mmrl.envs.popgym.higher_lower import RANKS, HigherLower, State
from mmrl.envs.probes import (
    BeginTape,
    Gamma,
    Obs,
    ObsTape,
    Probe,
    ProbeState,
    QTape,
    Reward,
    steps_since,
)

ARMS = 4
SUBSETS = 2**ARMS - 1  # number of nonempty sets of arms
BEST = sum(arm * 2**arm for arm in range(ARMS)) / SUBSETS / (ARMS - 1)
"""Expected reward of the best legal arm, over all nonempty sets of legal arms."""


class MaskedBandit(Probe):
    """Bandit with four arms and three steps. A random subset of the arms is legal at each step.

    Arm a pays a/3 if it is legal, and -1 otherwise. At each step, the set of legal arms is sampled
    uniformly from the 15 nonempty sets, so the best arm is illegal with probability 7/15. If k
    steps remain after the current one, Q* = a/3 + γ (1 - γ^k) / (1 - γ) · 34/45 for legal arms.
    """

    num_steps, obs_size, actions, step_numbers = 3, 1, ARMS, 1
    state_size = ARMS + 1
    optimal_return = num_steps * BEST

    def start(self, u: Numbers, params: Params) -> ProbeState:
        """Return the initial state of an episode."""
        return ProbeState(time=jnp.int32(0), cue=_subset(u[0]))

    def advance(
        self, u: Numbers, state: ProbeState, action: Action, params: Params
    ) -> tuple[ProbeState, Reward]:
        """Return the next state and the reward."""
        return ProbeState(state.time + 1, _subset(u[0])), self.reward(state, action)

    def action_mask(self, state: ProbeState, params: Params) -> Bool[Array, " action"]:
        """Return the mask of legal arms. Arm a is legal if bit a of the cue is 1."""
        return (state.cue >> jnp.arange(ARMS)) % 2 == 1

    def look(self, state: ProbeState, params: Params) -> Obs:
        """Return the observation, which is constant."""
        return jnp.ones(1)

    @with_promotion
    def reward(self, state: ProbeState, action: Action) -> Reward:
        """Return the reward for taking `action` in `state`."""
        legal = (state.cue >> action) % 2 == 1
        return jnp.where(legal, action / (ARMS - 1), -1.0).astype(jnp.float32)

    @with_promotion
    def state_obs(self, state: ProbeState, params: Params) -> Float[Array, " state"]:
        """Return the mask of legal actions and t / num_steps."""
        mask = self.action_mask(state, params).astype(jnp.float32)
        return jnp.append(mask, state.time / self.num_steps)

    @with_promotion
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        """Return Q* for each step of a tape, with -∞ for illegal arms.

        The last four elements of an observation must be the mask of legal actions.
        """
        left = self.num_steps - 1 - steps_since(begin)
        future = BEST * sum(jnp.where(k <= left, gamma**k, 0) for k in range(1, self.num_steps))
        q = jnp.arange(ARMS)[None] / (ARMS - 1) + jnp.expand_dims(future, 1)
        return jnp.where(obs[:, -ARMS:] > 0.5, q, -jnp.inf)


class MaskedHigherLower(HigherLower):
    """Variant of `HigherLower` in which impossible guesses are illegal.

    No card is higher than a king or lower than an ace.
    """

    def action_mask(self, state: State, params: Params) -> Bool[Array, " action"]:
        """Return the mask: "higher" is illegal if the card is a king, "lower" if it is an ace."""
        return jnp.stack([state.card < RANKS - 1, state.card > 0])


SPECS: dict[str, Callable[..., Task]] = {
    "probe-MaskedBandit-v0": MaskedBandit,
    "probe-MaskedHigherLower-v0": MaskedHigherLower,
}


def _subset(u: Float[Array, ""]) -> Int[Array, ""]:
    """Return a random nonempty set of arms, encoded as bits. All sets are equally likely."""
    return 1 + jnp.minimum(jnp.floor(u * SUBSETS), SUBSETS - 1).astype(jnp.int32)
