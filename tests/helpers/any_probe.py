"""All probes as one environment: an agent learns each of them, in one compiled program."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from mmrl import rollout
from mmrl.envs import probes
from mmrl.envs.popgym.base import Leaf, Params, Task


@struct.dataclass
class Which(Params):
    """Parameters with `probe`, the index of the probe that is played; it may be traced."""

    probe: Leaf = 0


class AnyProbe(Task):
    """The given probes, of which `params.probe` is played. Short observations end in zeros."""

    actions, state_size, start_numbers, step_numbers = 2, 2, 1, 0

    def __init__(self, *names: str):
        self.probes = tuple(probes.SPECS[f"probe-{name}-v0"]() for name in names)
        self.num_steps = max(probe.num_steps for probe in self.probes)
        self.obs_size = max(probe.obs_size for probe in self.probes)

    def params(self, probe: Any) -> Which:
        return Which(max_steps_in_episode=self.num_steps, probe=probe)

    def of(self, params: Any, answer: Callable[[probes.Probe], Any]) -> Any:
        """Return the answer of the probe that is played."""
        return jax.lax.switch(params.probe, [partial(answer, probe) for probe in self.probes])

    def start(self, u, params):
        return self.probes[0].start(u, params)

    def advance(self, u, state, action, params):
        return self.of(params, lambda probe: probe.advance(u, state, action, params))

    def look(self, state, params):
        zeros = jnp.zeros(self.obs_size)
        return self.of(params, lambda p: zeros.at[: p.obs_size].set(p.look(state, params)))

    def is_terminated(self, state, params):
        return self.of(params, lambda probe: probe.is_terminated(state, params))

    def is_truncated(self, state, params):
        return self.of(params, lambda probe: jnp.asarray(state.time >= probe.num_steps))

    def state_obs(self, state, params):
        return self.of(params, lambda probe: probe.state_obs(state, params))

    def optimal_q(self, obs, begin, gamma, params):
        return self.of(params, lambda p: p.optimal_q(obs[:, : p.obs_size], begin, gamma))


def check_learned(
    agent: Any,
    config: Any,
    *names: str,
    policy: Callable[[Any], Any],
    values: Callable[[Any, Any], Any],
    state_values: bool = False,
    within: float = 0.1,
    seeds: int = 2,
    failures: int = 0,
) -> None:
    """Train on each named probe with some seeds, and check the values and scores of each.

    `values(net, steps)` of the trained network, along a tape that `policy(net)` collects, must be
    within `within` of Q*, or of max Q* with `state_values`; the scores of the last block, within
    0.6 of the best policy's. Episodes of ±1 by chance must score far less than that: evaluate in 64
    of them. Up to `failures` of the seeds may miss, with a margin over the number measured with
    other seeds. If none may miss, no value of twelve other seeds was off by more than 0.06.
    """
    env = AnyProbe(*names)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    @partial(jax.vmap, in_axes=(None, 0))
    def learn(probe, seed):
        params, key = env.params(probe), jax.random.key(seed)
        state, metrics = agent.train(config, env, params, key)
        carry = rollout.start(env, params, state.net.init(), jax.random.fold_in(key, 1))
        key = jax.random.fold_in(key, 2)
        _, seen = rollout.collect(policy(state.net), env, params, carry, key, 100)
        optimal = env.optimal_q(seen.obs, seen.begin, config.gamma, params)
        optimal = jnp.max(optimal, axis=-1) if state_values else optimal
        return values(state.net, seen), optimal, metrics.finite.all(), metrics.returns[-1].mean()

    found = learn(np.arange(len(names)), np.arange(seeds))
    for name, probe, value, optimal, finite, score in zip(names, env.probes, *found, strict=True):
        assert finite.all(), name
        errors = np.abs(value - optimal).reshape(seeds, -1).max(axis=1)
        good = (errors < within) & (np.abs(score - probe.optimal_return) < 0.6)
        assert (~good).sum() <= failures, f"{name}: values off by {errors}, scores {score}"
