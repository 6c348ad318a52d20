"""Recall: how far back an agent's actions depend on earlier observations.

Let v_t be the value of the action that the agent chose at step t. There are two measures:

- The gradient norm ‖∂v_t / ∂o_{t-k}‖, with all actions fixed, measures the effect of small changes.
- For an intervention, o_{t-k} is replaced by an observation from another episode, and the rest of
  the original episode is replayed. The changes in v_t and in the greedy action are measured.

The two measures can disagree. A large gradient does not imply that any realistic observation
changes the action, and a replaced observation may change the action where the gradient is 0.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl import _random
from mmrl._dtypes import with_promotion
from mmrl.inspect.playing import Episodes, resolve_own, unroll
from mmrl.inspect.subjects import Subject

TOGETHER = 8  # number of episodes that are replayed in parallel
MOST = 2_000_000  # largest number of gradient entries in memory at once
TOLERANCE = 1e-5  # relative differences up to this size are attributed to rounding

Own = PyTree[Bool[np.ndarray, "..."]] | None


class Recall(NamedTuple):
    """Effects of earlier observations on actions and values, by lag.

    Lag 0 is the current observation. `gradient` is the mean of ‖∂v_t/∂o_{t-lag}‖, and `change` is
    the mean of |Δv_t|, in units of the value, or in nats for log-probabilities. `flips` is the
    fraction of interventions that change the action, or NaN for continuous actions. `pairs` is the
    number of interventions; where `pairs` is 0, `change` and `flips` are NaN. `gradient_at` and
    `flips_at` are the same measures for each step t.
    """

    gradient: Float[np.ndarray, " lag"]
    change: Float[np.ndarray, " lag"]
    flips: Float[np.ndarray, " lag"]
    pairs: Int[np.ndarray, " lag"]
    gradient_at: Float[np.ndarray, "time lag"]
    flips_at: Float[np.ndarray, "time lag"]

    def reach(self, share: float = 0.01) -> dict[str, int]:
        """Return how many of the latest observations matter, according to each measure.

        A reach of 0 means that no observation matters, and a reach of 1 means that only the current
        observation matters. An observation matters if its effect is larger than `share` times the
        largest effect. For `flips`, the difference must also be significant at the 5 % level
        (binomial tail with a Bonferroni correction over lags), so that a single flip is not enough.
        """
        flips = np.nan_to_num(self.flips)
        flips = np.where(often(flips, self.pairs, share * flips.max(initial=0.0)), flips, 0)
        measures = {"gradient": self.gradient, "change": self.change, "flips": flips}
        return {name: last_above(sizes, share) for name, sizes in measures.items()}

    def by_observation(self) -> Float[np.ndarray, " time"]:
        """Return the fraction of later actions that change if one observation is replaced.

        The result has one entry per step, which is NaN for the last step, because no action follows
        it, and for steps whose observation was never replaced.
        """
        rows = [np.diagonal(self.flips_at, -step)[1:] for step in range(len(self.flips_at))]
        return np.array([np.nanmean(x) if np.isfinite(x).any() else np.nan for x in rows])

    @property
    def ignores_memory(self) -> bool:
        """True if earlier observations were replaced, without effect on actions and values.

        Changes in values up to 1 % of the largest change are ignored. Inputs that were not
        replaced, such as earlier actions and rewards, may still matter.
        """
        flips = np.nan_to_num(self.flips[1:]).any()
        return bool(self.pairs[1:].any() and self.reach()["change"] <= 1 and not flips)


def often(
    shares: Float[np.ndarray, " lag"], pairs: Int[np.ndarray, " lag"], least: float
) -> Bool[np.ndarray, " lag"]:
    """Return True where a fraction of `pairs` is significantly larger than `least`.

    The condition is P(X ≥ k) < 0.05 / lags, where k is the fraction times `pairs`, and X is
    binomial with `pairs` trials and probability `least`.
    """
    from scipy import special

    counts = np.rint(shares * pairs)
    tested = counts > 0
    k = np.where(tested, counts, 1)
    tail = special.betainc(k, np.maximum(pairs - k + 1, 1), min(least, 1.0))
    return tested & (tail < 0.05 / len(shares))


def last_above(sizes: Float[np.ndarray, " lag"], share: float) -> int:
    """Return 1 + the last lag whose size exceeds `share` times the largest size, or else 0."""
    sizes = np.nan_to_num(np.abs(sizes))
    above = np.flatnonzero(sizes > share * sizes.max(initial=0.0))
    return int(above[-1]) + 1 if above.size else 0


def recall(
    agent: Subject,
    episodes: Episodes,
    key: PRNGKeyArray,
    *,
    own: Own = None,
    lags: int | None = None,
    swaps: int = 2,
) -> Recall:
    """Measure the effects of earlier observations on each action, up to `lags` steps back.

    Each observation is replaced `swaps` times with an observation from another episode, at the same
    step if another episode is still running. `own` marks the entries that are replaced and
    differentiated, by default all (see `own_numbers`). Earlier actions and rewards are unchanged.
    Relative changes up to 1e-5 of the largest value are treated as rounding.

    The cost is about `swaps` + 2 agent steps per episode, step and lag. Raises `ValueError` if
    `lags` or `swaps` is below 1, or if `own` does not fit the observations.
    """
    time = episodes.mask.shape[1]
    most = time if lags is None else lags
    for name, value in (("lags", most), ("swaps", swaps)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1; got {value}.")
    own = resolve_own(own, episodes)
    donors = _donors(np.asarray(episodes.mask), _random.one_key(key), swaps)
    sums = jax.device_get(_effects(agent, episodes, own, donors, min(most, time), swaps))
    gradient, steps, change, flips, pairs = (np.asarray(x, np.float64) for x in sums)
    with np.errstate(invalid="ignore"):
        flips_at = np.nan if agent.continuous else flips / pairs
        return Recall(
            gradient.sum(0) / steps.sum(0),
            change.sum(0) / pairs.sum(0),
            flips.sum(0) * (np.nan if agent.continuous else 1) / pairs.sum(0),
            pairs.sum(0).astype(np.int64),
            gradient / steps,
            np.broadcast_to(flips_at, pairs.shape),
        )


def _donors(
    mask: Bool[np.ndarray, "episode time"], key: PRNGKeyArray, swaps: int
) -> tuple[Int[np.ndarray, "swap episode time"], Int[np.ndarray, "swap episode time"]]:
    """Choose a replacement from another episode for each step; return its episode and step."""
    episodes, time = mask.shape
    scores = np.array(jax.random.uniform(key, (swaps, episodes, time, episodes)))
    scores += mask.T
    scores[:, np.arange(episodes), :, np.arange(episodes)] = -1
    donor = scores.argmax(-1)
    last = mask.sum(1) - 1
    return donor, np.minimum(np.arange(time), last[donor])


@eqx.filter_jit
@with_promotion
def _effects(
    agent: Subject, episodes: Episodes, own: PyTree, donors: Any, lags: int, swaps: int
) -> tuple[Array, ...]:
    """Return the sums over episodes of gradients, steps, changes, flips and pairs, [time, lag]."""

    def at(place: Any) -> PyTree:
        return jax.tree.map(lambda x: jnp.asarray(x)[place].astype(float), episodes.obs)

    def one(number: Any) -> tuple[Array, ...]:
        obs = at(number)
        action, mask = (jnp.asarray(x)[number] for x in (episodes.action, episodes.mask))
        gradient = _gradients(agent, obs, action, own)
        steps = mask[:, None] & (jnp.arange(len(mask))[:, None] >= jnp.arange(lags)[None])
        sums = jnp.where(steps, _by_lag(gradient, lags), 0), steps
        total: list[Any] = [0.0] * 3
        for swap in range(swaps):
            other = at(tuple(jnp.asarray(x)[swap, number] for x in donors))
            other = jax.tree.map(lambda f, x, y: jnp.where(f[None], x, y), own, other, obs)
            effects = _interventions(agent, obs, other, action, mask, lags)
            total = [a + b for a, b in zip(total, effects, strict=True)]
        return tuple(x.astype(jnp.float32) for x in (*sums, *total))

    count = len(episodes.mask)
    each = jax.lax.map(one, jnp.arange(count), batch_size=min(TOGETHER, count))
    return tuple(jnp.sum(x, axis=0) for x in each)


def action_values(
    agent: Subject, values: Float[Array, "time action"], action: Shaped[Array, "time *action"]
) -> Float[Array, "time chosen"]:
    """Return the value of each chosen action, or all entries of a continuous action."""
    if agent.continuous:
        return values
    mask = action[:, None] == jnp.arange(values.shape[1])[None]
    return jnp.sum(jnp.where(mask, values, 0), axis=1, keepdims=True)


def _gradients(
    agent: Subject, obs: PyTree, action: Array, own: PyTree
) -> Float[Array, "time time"]:
    """Return ‖∂v_t/∂o_i‖ for each step t and each observation i."""

    def value(obs: PyTree) -> Array:
        return action_values(agent, unroll(agent, agent.start, obs)[2], action)

    values, back = jax.vjp(value, obs)

    def squares(direction: Array) -> Float[Array, " time"]:
        gradient = jax.tree.map(lambda f, x: jnp.where(f[None], x, 0), own, back(direction)[0])
        sizes = [jnp.sum(x.reshape(len(x), -1) ** 2, axis=1) for x in jax.tree.leaves(gradient)]
        return jnp.sum(jnp.stack(sizes), axis=0)

    time, width = values.shape
    basis = jnp.eye(values.size, dtype=values.dtype).reshape(-1, time, width)
    numbers = sum(x.size for x in jax.tree.leaves(obs))
    together = max(1, min(values.size, MOST // numbers))
    rows = jax.lax.map(squares, basis, batch_size=together)
    return jnp.sqrt(rows.reshape(time, width, time).sum(1))


def _by_lag(matrix: Float[Array, "time time"], lags: int) -> Float[Array, "time lag"]:
    """Return m[t, t - lag] of a matrix m[t, i], with m[t, 0] where t - lag is negative."""
    steps = jnp.arange(len(matrix))[:, None]
    return matrix[steps, jnp.maximum(steps - jnp.arange(lags)[None], 0)]


def _interventions(
    agent: Subject, obs: PyTree, other: PyTree, action: Array, mask: Array, lags: int
) -> tuple[Array, ...]:
    """Replace each observation in turn; return |Δv|, changes in the action, and validity (0 or 1).

    All results have shape [time, lag], where time is the step of the action, and are 0 where there
    is no intervention.
    """
    time = len(mask)
    steps = jnp.arange(time)
    _, before, values = unroll(agent, agent.start, obs)
    states, first = jax.vmap(agent.step)(before, other, steps == 0)

    def later(states: PyTree, lag: Any) -> tuple[PyTree, Array]:
        now = jax.tree.map(lambda x: x[jnp.minimum(steps + lag, time - 1)], obs)
        return jax.vmap(lambda s, o: agent.step(s, o, jnp.array(False)))(states, now)

    rest = jax.lax.scan(later, states, jnp.arange(1, lags))[1]
    after = jnp.concatenate([first[None], rest])  # [lag, time of the observation, action]
    apart = jax.tree.map(lambda x, y: jnp.any((x != y).reshape(time, -1), axis=1), other, obs)
    differs = jnp.any(jnp.stack(jax.tree.leaves(apart)), axis=0)

    def compare(at: Any, lag: Any) -> tuple[Array, ...]:
        new, old = after[lag, jnp.maximum(at - lag, 0)][None], values[at][None]
        counts = mask[at] & (at >= lag) & differs[jnp.maximum(at - lag, 0)]
        pair = (action_values(agent, x, action[at][None]) for x in (new, old))
        change = jnp.linalg.norm(difference(*pair))
        flip = jnp.any(agent.choose(new) != agent.choose(old))
        above = jnp.any(difference(new, old) > TOLERANCE * jnp.maximum(1, largest(old)))
        return (*(jnp.where(counts & above, x, 0.0) for x in (change, flip)), counts * 1.0)

    return jax.vmap(lambda at: jax.vmap(lambda lag: compare(at, lag))(jnp.arange(lags)))(steps)


def largest(x: Float[Array, "..."]) -> Float[Array, ""]:
    """Return the largest finite |x|."""
    return jnp.max(jnp.where(jnp.isfinite(x), jnp.abs(x), 0))


def difference(x: Float[Array, "*any"], y: Float[Array, "..."]) -> Float[Array, "*any"]:
    """Return |x - y|, and 0 where both are the same infinity or both are NaN."""
    equal = (x == y) | (jnp.isnan(x) & jnp.isnan(y))
    return jnp.where(equal, 0, jnp.abs(x - y))


class Leak(NamedTuple):
    """Effects of an earlier episode on the values in the next one, by step.

    `change` is the largest difference in values caused by the earlier episode. `not_a_number` is
    True at steps where NaN observations in the earlier episode change the values.
    """

    change: Float[np.ndarray, " time"]
    not_a_number: Bool[np.ndarray, " time"]

    @property
    def steps(self) -> Int[np.ndarray, " n"]:
        """Steps at which an earlier episode changes the values."""
        return np.flatnonzero((self.change > 0) | self.not_a_number)


def leak(agent: Subject, episodes: Episodes) -> Leak:
    """Measure how the values in an episode depend on the episode before it.

    The earlier episode consists of the observations of another episode, or of NaNs. In both cases,
    a correct memory forgets the earlier episode where `begin` is true. Differences up to 1e-5 of
    the largest value are treated as rounding.
    """
    change, broken, most = jax.device_get(_after_another(agent, episodes))
    change = np.nan_to_num(np.asarray(change), nan=np.inf)
    return Leak(np.where(change > TOLERANCE * max(1, most), change, 0), np.asarray(broken))


@eqx.filter_jit
@with_promotion
def _after_another(agent: Subject, episodes: Episodes) -> tuple[Array, Array, Array]:
    def one(obs: PyTree, other: PyTree) -> tuple[Array, Array]:
        nans = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), other)
        pasts = jax.tree.map(lambda *x: jnp.stack(x), other, nans)
        states = jax.vmap(lambda past: unroll(agent, agent.start, past)[0])(pasts)
        starts = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), agent.start, states)
        values = jax.vmap(lambda state: unroll(agent, state, obs)[2])(starts)
        apart = difference(values[1:], values[:1])
        return apart, largest(values[0])

    obs = jax.tree.map(lambda x: jnp.asarray(x).astype(float), episodes.obs)
    other = jax.tree.map(lambda x: jnp.roll(x, 1, axis=0), obs)
    apart, sizes = jax.vmap(one)(obs, other)  # [episode, past, time, action]
    mask = jnp.asarray(episodes.mask)[:, :, None]
    most = jnp.max(sizes)
    leaks = mask & ~(apart[:, 1] <= TOLERANCE * jnp.maximum(1, most))
    change = jnp.max(jnp.where(mask, apart[:, 0], 0), axis=(0, 2))
    return change, jnp.any(leaks, axis=(0, 2)), most
