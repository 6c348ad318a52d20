"""A network for tasks that make some actions illegal at times.

    obs = [features, mask] ──net──► Q(s, ·) or logits ──mask──► -∞ for illegal actions

Everything computed from the outputs therefore counts only legal actions: a greedy or sampled
action, the largest value of a target, log-probabilities, entropies, divergences and importance
weights. The network itself sees the mask as a part of its observation.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


class Masked(eqx.Module):
    """A network of action values or an actor-critic, limited to legal actions.

    The flags are numbers `first` to `first + actions - 1` of an observation, 1 for a legal action.
    If no action is legal, as in padding and in the last state of an episode, all count as legal.
    """

    net: Any  # anything with the calls of a `Net` or an `ActorCritic`
    first: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)

    @property
    def critic(self) -> Any:
        """The value network of an actor-critic; None if policy and value share one."""
        return self.net.critic

    def init(self) -> PyTree:
        """Return the memory's state before the first observation."""
        return self.net.init()

    def legal(self, obs: Float[Array, "*time obs"]) -> Bool[Array, "*time action"]:
        """Return True for each action that may be taken."""
        mask = obs[..., self.first : self.first + self.actions] > 0.5
        return mask | ~jnp.any(mask, axis=-1, keepdims=True)

    def __call__(
        self, state: PyTree, obs: Float[Array, "time obs"], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Any]:
        """Read a tape; return the state after it, and the outputs at every step."""
        state, outputs = self.net(state, obs, begin)
        return state, self._mask(outputs, obs)

    def step(
        self, state: PyTree, obs: Float[Array, " obs"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Any]:
        """Read one observation, for acting; return the new state and the outputs."""
        state, outputs = self.net.step(state, obs, begin)
        return state, self._mask(outputs, obs)

    def lookahead(
        self,
        state: PyTree,
        obs: Float[Array, "time obs"],
        begin: Bool[Array, " time"],
        next_obs: Float[Array, "time obs"],
    ) -> tuple[PyTree, Any, Any]:
        """Read a tape, for targets; return also the outputs after `next_obs[t]` at each step."""
        state, now, ahead = self.net.lookahead(state, obs, begin, next_obs)
        return state, self._mask(now, obs), self._mask(ahead, next_obs)

    def _mask(self, outputs: Any, obs: Float[Array, "*time obs"]) -> Any:
        """Return Q(s, ·), or the outputs of an actor-critic, with -∞ for illegal actions."""

        def only(x: Float[Array, "*time action"]) -> Float[Array, "*time action"]:
            return jnp.where(self.legal(obs), x, -jnp.inf)

        if not hasattr(outputs, "policy"):
            return only(outputs)
        return eqx.tree_at(lambda x: x.policy.logits, outputs, replace_fn=only)
