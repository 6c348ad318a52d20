"""Priorities of the episodes on a tape: from errors, or as you like; and how much they count.

A tape draws uniformly unless its α is positive: give one to `tape.init`, or `set_alpha`.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mmrl._dtypes import converting, promoting
from mmrl.replay import ring, tree
from mmrl.replay.tape import Sample, Tape, reweigh, weights
from mmrl.replay.tree import PRIORITIES


@promoting
def set_alpha(tape: Tape, alpha: float | Float[Array, ""]) -> Tape:
    """This tape, drawn with probability ∝ priority^α from now on. O(capacity)."""
    alpha = jnp.asarray(alpha, jnp.float32)
    sums = tree.build(weights(tape.length, tape.priority, alpha))
    return replace(tape, sums=sums, alpha=alpha)


@converting("values")
def set_priority(tape: Tape, rows: Int[Array, " n"], values: Float[Array, " n"]) -> Tape:
    """priority[rows] ← values, for the episodes that begin in `rows` (as in `Sample.rows`).

    Values are clipped to `PRIORITIES`. A row without an episode and a value that is not finite
    change nothing; a row given twice takes one of its values. Set priorities before the next `add`,
    which may put another episode in the row. Raises ValueError for other shapes.
    """
    ring.check_numbers("values", values, jnp.shape(rows), "of `rows`")
    capacity = tape.length.shape[0]
    stored = tape.length.at[rows].get(mode="fill", fill_value=0) > 0
    rows = jnp.where(stored & jnp.isfinite(values), rows, capacity)
    values = jnp.clip(values.astype(jnp.float32), *PRIORITIES)
    priority = tape.priority.at[rows].set(values, mode="drop")
    highest = jnp.max(values, where=rows < capacity, initial=0.0)
    peak = jnp.maximum(tape.peak, highest)
    return reweigh(replace(tape, priority=priority, peak=peak), rows)


@converting("errors")
def episode_priority(
    drawn: Sample, errors: Float[Array, " batch"], eta: float | Float[Array, ""] = 0.9
) -> Float[Array, " episode"]:
    """p = η max|δ| + (1 - η) mean|δ| over the real steps of each episode (Kapturowski et al. 2019).

    `set_priority(tape, drawn.rows, episode_priority(drawn, errors))` writes it back.
    """
    size = drawn.rows.shape[0]
    errors = jnp.where(drawn.mask, jnp.abs(errors), 0.0)
    count = jax.ops.segment_sum(drawn.mask.astype(errors.dtype), drawn.episode, size)
    mean = jax.ops.segment_sum(errors, drawn.episode, size) / jnp.maximum(count, 1.0)
    highest = jnp.maximum(jax.ops.segment_max(errors, drawn.episode, size), 0.0)
    return eta * highest + (1 - eta) * mean
