"""Tasks in which some actions are illegal at times, which a method `action_mask` states.

| id | what is illegal | best return |
|---|---|---|
| `probe-MaskedBandit-v0` | some arms, others in each step | 34/15 |
| `probe-MaskedHigherLower-v0` | a guess that cannot be right: above a king, below an ace | |

An agent must never take an illegal action, so what happens then is not part of the task.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mmrl._dtypes import promoting
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
SUBSETS = 2**ARMS - 1  # sets with at least one arm
BEST = sum(arm * 2**arm for arm in range(ARMS)) / SUBSETS / (ARMS - 1)
"""Expected reward of the best legal arm."""


class MaskedBandit(Probe):
    """Three steps; arm a of 4 pays a/3 if it is legal, and -1 if not.

    Each of the 15 sets of at least one legal arm is equally likely in each step, so the best arm is
    illegal in 7 of 15. Q* = a/3 + γ (1 - γ^k) / (1 - γ) · 34/45 for legal arms, with k steps left.
    """

    num_steps, obs_size, actions, step_numbers = 3, 1, ARMS, 1
    state_size = ARMS + 1
    optimal_return = num_steps * BEST

    def start(self, u: Numbers, params: Params) -> ProbeState:
        """Return the first state of an episode."""
        return ProbeState(time=jnp.int32(0), cue=_subset(u[0]))

    def advance(
        self, u: Numbers, state: ProbeState, action: Action, params: Params
    ) -> tuple[ProbeState, Reward]:
        """Return the next state and the reward."""
        return ProbeState(state.time + 1, _subset(u[0])), self.reward(state, action)

    def action_mask(self, state: ProbeState, params: Params) -> Bool[Array, " action"]:
        """Return True for each legal arm: bit a of the cue."""
        return (state.cue >> jnp.arange(ARMS)) % 2 == 1

    def look(self, state: ProbeState, params: Params) -> Obs:
        """Return the observation."""
        return jnp.ones(1)

    @promoting
    def reward(self, state: ProbeState, action: Action) -> Reward:
        """Return the reward of the action."""
        legal = (state.cue >> action) % 2 == 1
        return jnp.where(legal, action / (ARMS - 1), -1.0).astype(jnp.float32)

    @promoting
    def state_obs(self, state: ProbeState, params: Params) -> Float[Array, " state"]:
        """Return the mask, and the share of the episode that has passed."""
        mask = self.action_mask(state, params).astype(jnp.float32)
        return jnp.append(mask, state.time / self.num_steps)

    @promoting
    def optimal_q(self, obs: ObsTape, begin: BeginTape, gamma: Gamma) -> QTape:
        """Return Q* of a tape whose observations end in the mask; -∞ for illegal arms."""
        left = self.num_steps - 1 - steps_since(begin)
        future = BEST * sum(jnp.where(k <= left, gamma**k, 0) for k in range(1, self.num_steps))
        q = jnp.arange(ARMS)[None] / (ARMS - 1) + jnp.expand_dims(future, 1)
        return jnp.where(obs[:, -ARMS:] > 0.5, q, -jnp.inf)


class MaskedHigherLower(HigherLower):
    """`HigherLower` without the guesses that cannot be right.

    The next card is never higher than a king, nor lower than an ace.
    """

    def action_mask(self, state: State, params: Params) -> Bool[Array, " action"]:
        """Return True for "higher" below a king, and for "lower" above an ace."""
        return jnp.stack([state.card < RANKS - 1, state.card > 0])


SPECS: dict[str, Callable[..., Task]] = {
    "probe-MaskedBandit-v0": MaskedBandit,
    "probe-MaskedHigherLower-v0": MaskedHigherLower,
}


def _subset(u: Float[Array, ""]) -> Int[Array, ""]:
    """Return one of the sets of at least one arm, as bits."""
    return 1 + jnp.minimum(jnp.floor(u * SUBSETS), SUBSETS - 1).astype(jnp.int32)
