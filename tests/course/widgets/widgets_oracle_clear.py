"""What the explorers of V-trace and of the reservoir must compute: by mmrl, by sums, by SciPy."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from mmrl.replay import reservoir
from mmrl.returns import vtrace


def traces() -> Iterator[dict[str, Any]]:
    """`mmrl.returns.vtrace`, and Eq. 1 of Espeholt et al. 2018 term by term, summed up here."""
    rng, steps = np.random.default_rng(11), 9
    tape = {k: rng.normal(size=steps) for k in ("rewards", "values", "nextValues")}
    last, terminated = np.isin(np.arange(steps), (3, 6)), np.arange(steps) == 6
    tape |= {"discount": np.where(terminated, 0.0, 0.9), "last": last}
    tape |= {"ratio": rng.lognormal(size=steps)}
    arrays = [jnp.asarray(tape[k]) for k in ("rewards", "discount", "values", "nextValues")]
    compute = jax.jit(lambda s: vtrace(*arrays, jnp.asarray(last), jnp.asarray(tape["ratio"]), **s))
    delta = tape["rewards"] + tape["discount"] * tape["nextValues"] - tape["values"]
    for lam, rho_max, c_max in ((1.0, 1.0, 1.0), (0.7, 1.5, 0.8), (1.0, 100.0, 100.0)):
        settings = {"lam": lam, "rho_max": rho_max, "c_max": c_max}
        adds = np.zeros((steps, steps))
        for s, k in itertools.combinations_with_replacement(range(steps), 2):
            between = slice(s, k)
            gain = np.where(last, 0, tape["discount"] * lam * np.minimum(c_max, tape["ratio"]))
            adds[s, k] = np.prod(gain[between]) * min(rho_max, tape["ratio"][k]) * delta[k]
        result = compute(settings)
        np.testing.assert_allclose(adds.sum(1), result.values - tape["values"], atol=1e-12)
        expected = {
            "values": np.asarray(result.values),
            "advantages": np.asarray(result.advantages),
        }
        yield dict(tape=tape, settings=settings, adds=adds) | expected


def fixed_points() -> Iterator[dict[str, Any]]:
    """The value of one state at which the expected V-trace update vanishes, found by bisection."""
    mu, pi = np.array([0.1, 0.45, 0.27, 0.18]), np.array([0.4, 0.3, 0.2, 0.1])
    rewards, gamma = np.array([1.0, -0.5, 0.3, 2.0]), 0.8
    for rho_max in (0.05, 0.5, 1.0, 2.0, 50.0):
        low, high = -50.0, 50.0
        for _ in range(80):
            value = (low + high) / 2
            update = np.sum(mu * np.minimum(rho_max, pi / mu) * (rewards + gamma * value - value))
            low, high = (value, high) if update > 0 else (low, value)
        yield dict(pi=pi, mu=mu, rho_max=rho_max, rewards=rewards, gamma=gamma, value=value)


def reservoirs() -> Iterator[dict[str, Any]]:
    """One unroll from each worker at a time into `mmrl.replay.reservoir`, and its `merge`."""
    rng = np.random.default_rng(12)
    insert = jax.jit(reservoir.insert)
    for parts, slots, rounds in ((1, 5, 20), (3, 4, 9), (4, 6, 3)):
        count = parts * rounds
        lots = rng.permutation(count) / count
        ids, levels = [], []
        single = []
        for part in range(parts):
            storage = reservoir.init(jnp.zeros((), int), (), slots, length=1)
            thresholds = []
            for i in range(part, count, parts):
                unroll = reservoir.Unrolls((), jnp.full((1, 1), i))
                storage = insert(storage, unroll, jnp.asarray(lots[i : i + 1]))
                thresholds.append(float(storage.threshold[0]))
            single.append(storage)
            levels.append(thresholds)
            ids.append(stored_steps(storage))
        together = single[0]
        for other in single[1:]:
            together = reservoir.merge(together, other)
        same = dict(lots=lots, parts=parts, slots=slots)
        yield same | dict(ids=ids, levels=levels, merged=stored_steps(together))


def stored_steps(storage: reservoir.Reservoir) -> list[int]:
    real = np.isfinite(np.asarray(storage.lots)).ravel()
    return sorted(np.asarray(storage.unrolls.steps)[:, 0][real].tolist())


def mulberry(seed: int, count: int) -> np.ndarray:
    """Tommy Ettinger's generator of 32 bits, in whole numbers of any size."""
    mask, numbers = 2**32 - 1, np.zeros(count)
    for n in range(count):
        seed = (seed + 0x6D2B79F5) & mask
        t = (seed ^ (seed >> 15)) * (1 | seed) & mask
        t ^= (t + (t ^ (t >> 7)) * (61 | t)) & mask
        numbers[n] = (t ^ (t >> 14)) / 2**32
    return numbers


def inclusions() -> Iterator[dict[str, Any]]:
    """Counts by a full sort; the quadratic form by a pseudoinverse of all intervals' covariance."""
    runs = 30
    for seed, count, parts, slots in ((7, 60, 1, 20), (3, 50, 4, 5), (5, 120, 8, 3)):
        lots = mulberry(seed, runs * count).reshape(runs, count)
        counts, inside = np.zeros(count, int), np.zeros((count, count))
        for part in range(parts):
            mine = np.arange(part, count, parts)
            best = np.argsort(-lots[:, mine], axis=1)[:, :slots]
            counts += np.bincount(mine[best].ravel(), minlength=count)
            n = len(mine)
            # Of each pair both are kept with probability k (k - 1) / (n (n - 1)).
            both = slots * (slots - 1) / (n * (n - 1)) - (slots / n) ** 2
            block = np.full((n, n), both)
            np.fill_diagonal(block, slots / n * (1 - slots / n))
            inside[np.ix_(mine, mine)] = block
        size = min(13, count // max(5, parts))
        size -= size % 2 == 0
        edges = np.floor(np.arange(size + 1) * count / size + 0.5).astype(int)
        member = (np.arange(count) >= edges[:-1, None]) & (np.arange(count) < edges[1:, None])
        chance = np.array([slots / len(range(i % parts, count, parts)) for i in range(count)])
        off = member @ (counts - runs * chance)
        covariance = runs * member @ inside @ member.T
        statistic = off @ np.linalg.pinv(covariance, rcond=1e-9) @ off
        p = stats.chi2.sf(statistic, size - 1)
        same = dict(seed=seed, runs=runs, seen=count, parts=parts, slots=slots, edges=edges)
        sigma = np.sqrt(np.diag(covariance))
        yield same | dict(counts=counts, statistic=statistic, p=float(p), sigma=sigma)


VECTORS = {
    "traces": traces,
    "learned": fixed_points,
    "reservoirs": reservoirs,
    "inclusions": inclusions,
}
