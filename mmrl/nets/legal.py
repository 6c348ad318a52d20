"""Masking of illegal actions.

    obs = [features, mask] ──net──► Q(s, ·) or logits ──mask──► -∞ for illegal actions

Because the mask is applied to the outputs, everything computed from them is restricted to legal
actions: greedy and sampled actions, maxima in targets, log-probabilities, entropies, divergences
and importance weights. The network also receives the mask as a part of its observation.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


class MaskedNet(eqx.Module):
    """Wrapper that restricts a Q-network or an actor-critic to legal actions.

    The mask is `obs[first : first + actions]`, with 1 for legal actions and 0 for illegal ones. If
    no action is legal, as in padding and in the last state of an episode, all actions are treated
    as legal.
    """

    net: Any  # a `Net`, an `ActorCritic`, or a network with the same methods
    first: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)

    @property
    def critic(self) -> Any:
        """Value network of an actor-critic; None if the policy and the value share a network."""
        return self.net.critic

    def init(self) -> PyTree:
        """Return the memory's state before the first observation."""
        return self.net.init()

    def legal(self, obs: Float[Array, "*time obs"]) -> Bool[Array, "*time action"]:
        """Return True for each legal action."""
        mask = obs[..., self.first : self.first + self.actions] > 0.5
        return mask | ~jnp.any(mask, axis=-1, keepdims=True)

    def __call__(
        self, state: PyTree, obs: Float[Array, "time obs"], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Any]:
        """Process a tape; return the last state and the outputs of each step."""
        state, outputs = self.net(state, obs, begin)
        return state, self._mask(outputs, obs)

    def step(
        self, state: PyTree, obs: Float[Array, " obs"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Any]:
        """Process one observation; return the new state and the outputs."""
        state, outputs = self.net.step(state, obs, begin)
        return state, self._mask(outputs, obs)

    def lookahead(
        self,
        state: PyTree,
        obs: Float[Array, "time obs"],
        begin: Bool[Array, " time"],
        next_obs: Float[Array, "time obs"],
    ) -> tuple[PyTree, Any, Any]:
        """Process a tape; return the last state, and the outputs for `obs` and for `next_obs`."""
        state, now, ahead = self.net.lookahead(state, obs, begin, next_obs)
        return state, self._mask(now, obs), self._mask(ahead, next_obs)

    def _mask(self, outputs: Any, obs: Float[Array, "*time obs"]) -> Any:
        """Replace the Q-values or logits of illegal actions with -∞."""

        def only(x: Float[Array, "*time action"]) -> Float[Array, "*time action"]:
            return jnp.where(self.legal(obs), x, -jnp.inf)

        if not hasattr(outputs, "policy"):
            return only(outputs)
        return eqx.tree_at(lambda x: x.policy.logits, outputs, replace_fn=only)
