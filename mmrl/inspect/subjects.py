"""Interface between agents and measurements: an initial state and a step function."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from mmrl._spaces import MASK
from mmrl.envs.wrappers.observation import bare, mask_place
from mmrl.rollout import Policy
from mmrl.runs.player import Policy as Player


class Subject(eqx.Module):
    """Agent under inspection: a state before the first observation and a step function.

    `step(state, obs, begin)` -> (state, values) must reset the state where `begin` is True.
    `values` has one entry per action, such as Q(s, ·) or log π(· | s), and the agent chooses the
    action with the largest value. If the agent is `continuous`, `values` is the action itself.

        Subject(memory.init(), memory.step)     # a memory whose outputs are interpreted as values

        >>> from mmrl import memory
        >>> net = memory.make("gru", 3, 2, key=jax.random.key(0))
        >>> Subject(net.init(), net.step).step(net.init(), jnp.ones(3), jnp.array(True))[1].shape
        (2,)
    """

    start: PyTree
    step: Callable[..., tuple[PyTree, Float[Array, " action"]]]
    continuous: bool = eqx.field(static=True, default=False)

    def choose(self, values: Float[Array, "*any action"]) -> Shaped[Array, "..."]:
        """Return the greedy action, which is `values` itself if the agent is continuous."""
        return values if self.continuous else jnp.argmax(values, axis=-1).astype(jnp.int32)

    def policy(self) -> Policy:
        """Return the greedy policy, with the flattened memory state and the values as extras."""

        def act(state: PyTree, obs: PyTree, begin: Any, key: Any) -> tuple[PyTree, Any, Any]:
            state, values = self.step(state, obs, begin)
            return state, self.choose(values), (flat_state(state), values)

        return act


def flat_state(state: PyTree) -> Float[Array, " h"]:
    """Flatten a memory's state to a vector, with separate real and imaginary parts."""
    parts = [jnp.zeros(0)]
    for leaf in jax.tree.leaves(state):
        numbers = (leaf.real, leaf.imag) if jnp.iscomplexobj(leaf) else (leaf,)
        parts += [jnp.ravel(x).astype(jnp.float32) for x in numbers]
    return jnp.concatenate(parts)


class _Network(eqx.Module):
    """Step function of a network.

    The values are Q(s, ·), log π(· | s), or the mode of a continuous policy.
    """

    net: Any

    def __call__(self, state: PyTree, obs: PyTree, begin: Any) -> tuple[PyTree, Any]:
        state, outputs = self.net.step(state, obs, begin)
        if not hasattr(outputs, "policy"):
            return state, outputs
        policy = outputs.policy
        log = getattr(policy, "logits", None)
        return state, policy.mode() if log is None else jax.nn.log_softmax(log)


def subject(net: Any) -> Subject:
    """Convert a `Net`, an `ActorCritic` or a memory to a `Subject`.

    Raises `ValueError` if `net` has no method `init` or `step`.
    """
    if isinstance(net, Subject):
        return net
    if missing := [name for name in ("init", "step") if not callable(getattr(net, name, None))]:
        raise ValueError(
            f"`net` must have the methods init and step; got {type(net).__name__} without "
            f"{' and '.join(missing)}. For custom functions, use Subject(start, step)."
        )
    inner = getattr(net, "net", net)  # unwrap a `MaskedNet`
    return Subject(net.init(), _Network(net), getattr(inner, "log_std", None) is not None)


class _ExportedPolicy(eqx.Module):
    """Step function of an exported policy, for observations as in runs."""

    arrays: dict[str, Array]
    about: tuple[tuple[str, Any], ...] = eqx.field(static=True)
    mask: tuple[int, int] | None = eqx.field(static=True)

    def __call__(self, state: PyTree, obs: Any, begin: Any) -> tuple[PyTree, Any]:
        state = jnp.where(begin, self.arrays["state"], state)
        obs = jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in jax.tree.leaves(obs)])
        state, values = Player(dict(self.about), self.arrays, jnp).network(state, obs)
        if self.mask is not None:
            first, actions = self.mask
            values = jnp.where(obs[first : first + actions] > 0.5, values, -jnp.inf)
        return state, values


def policy_subject(policy: Player, env: Any, params: Any) -> Subject:
    """Convert a policy from `mmrl export` to a `Subject`.

    `env` must have the observations of a run. The values equal `Policy.outputs` up to rounding.
    """
    about = policy.about
    arrays = {name: jnp.asarray(x) for name, x in policy.arrays.items()}
    place = mask_place(env, params) if about.get("masked") else None
    layers = (("encoder", tuple(about["encoder"])), ("head", tuple(about["head"])))
    parts = ("memory", about["memory"]), ("picture", tuple(about.get("picture", ()))), *layers
    step = _ExportedPolicy(arrays, parts, place)
    return Subject(arrays["state"], step, bool(about["continuous"]))


def own_numbers(env: Any, params: Any) -> PyTree[Bool[np.ndarray, "..."]]:
    """Return flags that are True for the entries of an observation that the task provides.

    The flags are False for a mask of legal actions, and for the entries that runs append: the
    previous action, the previous reward and the begin flag.
    """
    flags = all_numbers(env, params)
    if isinstance(flags, tuple):  # a pair: an image and additional features
        return tuple(np.full(x.shape, i == 0) for i, x in enumerate(flags))
    if isinstance(flags, np.ndarray) and flags.ndim == 1:
        flags[bare(env).observation_space(params).shape[0] :] = False
    return flags


def all_numbers(env: Any, params: Any) -> PyTree[Bool[np.ndarray, "..."]]:
    """Return flags that are True for the entries of an observation, except a mask of actions.

    If a mask were replaced, the chosen action could become illegal, with the value -∞.
    """
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    flags = jax.tree.map(lambda x: np.ones(x.shape, bool), obs)
    if isinstance(flags, dict):
        return flags | {k: np.zeros_like(x) for k, x in flags.items() if k == MASK}
    if isinstance(flags, np.ndarray) and (place := mask_place(env, params)) is not None:
        flags[place[0] : sum(place)] = False
    return flags
