"""What the explorers of PPO-EWMA must compute: by mmrl's losses and monoid, optax and the paper."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mmrl.losses import clip_loss, kl_loss, squared_log_ratio
from mmrl.monoid import EWMA
from mmrl.scan import scan

# Hilton et al. 2022, Table 1, 3 and 4, and Section 4's rules: c, step size, β_prox, decay of the
# advantages' moments, β₁ and β₂ to the power 1/c, N_π.
TABLE = (
    (1, 5e-4, 0.888889, 0.0, 0.9, 0.999, 32),
    (4, 2.5e-4, 0.969697, 0.6, 0.974004, 0.9997499, 128),
    (16, 1.25e-4, 0.992248, 0.88235, 0.993437, 0.9999375, 512),
    (64, 6.25e-5, 0.998051, 0.96923, 0.998355, 0.9999844, 2048),
    (256, 3.125e-5, 0.999512, 0.99222, 0.999589, 0.9999961, 8192),
)


def adjustments() -> Iterator[dict[str, Any]]:
    for c, rate, prox, fade, beta1, beta2, phases in TABLE:
        decays = {"prox": prox, "advantage_decay": fade, "beta1": beta1, "beta2": beta2}
        yield dict(c=c, batch=8192 / c, learning_rate=rate, decays=decays, phases=phases)


def spans() -> Iterator[dict[str, Any]]:
    """Mean age Σ k w_k / Σ w_k and effective sample size (Σ w)² / Σ w² of w_k = β^k, summed up."""
    k = np.arange(40_000)
    for decay in (0.0, 0.5, 0.888889, 0.999):
        w = decay**k
        span = w.sum() ** 2 / np.sum(w**2)
        yield dict(decay=decay, center=np.sum(k * w) / w.sum(), span=span)


def averages() -> Iterator[dict[str, Any]]:
    thetas = np.random.default_rng(6).normal(size=(30, 2))
    for center in (0.0, 1.5, 8.0):
        decay = 1 - 1 / (1 + center)
        rows = (np.full((30, 2), decay), np.ones((30, 2)), thetas)
        expected = scan(EWMA(shape=(2,)), jax.tree.map(jnp.asarray, rows))[2]
        yield dict(thetas=thetas, center=center, wanted=np.asarray(expected))


def clips() -> Iterator[dict[str, Any]]:
    """-loss and its gradient in log π, over a range that reaches past every limit."""
    logs = jnp.linspace(-2.03, 2.03, 41)
    loss = {
        "clip": lambda x, p, a, e, b, m: clip_loss(x, jnp.zeros(()), p, a, e, m),
        "kl": lambda x, p, a, e, b, m: kl_loss(
            x, jnp.zeros(()), a, squared_log_ratio(x, jnp.asarray(p)), b, m
        ),
    }
    for form, f in loss.items():
        both = jax.jit(jax.vmap(jax.value_and_grad(f), in_axes=(0, *[None] * 5)))
        for prox, a, (e, b, m) in itertools.product(
            (0.0, 0.55), (1.3, -0.7), ((0.2, 1.0, 100.0), (0.5, 0.3, 2.5))
        ):
            value, slope = both(logs, prox, a, e, b, m)
            settings = {"proximal": prox, "behavior": 0, "advantage": a}
            settings |= {"epsilon": e, "weight": b, "most": m}
            expected = {"value": -np.asarray(value), "gradient": -np.asarray(slope)}
            yield dict(form=form, settings=settings, logs=np.asarray(logs), wanted=expected)


CURVATURE, SIGMA, NOISE = jnp.array([0.25, 1.2]), 0.5, 1.0
START, MINIBATCHES = (-3.0, 1.6), 8


def climbs() -> Iterator[dict[str, Any]]:
    """PPO-EWMA on the hill by `jax.grad` of the losses, the EWMA as a monoid, and optax."""
    z = np.random.default_rng(7).normal(size=(120, 3))
    scalars = {"center": 5.0, "learning_rate": 0.05, "epsilon": 0.15, "weight": 0.7, "batch": 3}
    for band, optimizer in (("kl", "adam"), ("clip", "sgd")):
        step = jax.jit(_step(band, getattr(optax, optimizer)(scalars["learning_rate"]), scalars))
        for proximal, staleness in (("behavior", 2), ("recent", 1), ("ewma", 0), ("ewma", 2)):
            kinds = {"band": band, "optimizer": optimizer, "proximal": proximal}
            settings = scalars | kinds | {"staleness": staleness}
            thetas, proxes = _climb(step, z, settings)
            yield dict(z=z, settings=settings, thetas=thetas, proxes=proxes)


def _log_prob(theta, action):
    return jnp.sum(jax.scipy.stats.norm.logpdf(action, theta, SIGMA))


def _loss(theta, behavior, proximal, z, band, scalars):
    action = behavior + SIGMA * z[:2]
    value = -jnp.sum(CURVATURE * (behavior**2 + SIGMA**2)) / 2
    advantage = NOISE * z[2] - jnp.sum(CURVATURE * action**2) / 2 - value
    now, behavior_log, near = (_log_prob(at, action) for at in (theta, behavior, proximal))
    if band == "clip":
        return clip_loss(now, behavior_log, near, advantage, scalars["epsilon"])
    divergence = jnp.sum((theta - proximal) ** 2) / (2 * SIGMA**2)
    return kl_loss(now, behavior_log, advantage, divergence, scalars["weight"])


def _step(band, optimizer, scalars):
    def mean_loss(theta, behavior, proximal, zs):
        return jnp.mean(jax.vmap(lambda z: _loss(theta, behavior, proximal, z, band, scalars))(zs))

    def step(theta, slots, behavior, proximal, zs):
        slots = optimizer.init(theta) if slots is None else slots
        slope = jax.grad(mean_loss)(theta, behavior, proximal, zs)
        change, slots = optimizer.update(slope, slots)
        return theta + change, slots

    return step


def _climb(step, z, settings):
    monoid, fade = EWMA(shape=(2,)), 1 - 1 / (1 + settings["center"])

    def lift(theta):
        return jnp.full(2, fade), jnp.ones(2), theta

    theta, slots = jnp.asarray(START), None
    mean, starts, thetas, proxes = lift(theta), [], [theta], []
    for t, batch in enumerate(z.reshape(-1, settings["batch"], 3)):
        if t % MINIBATCHES == 0:
            starts.append(theta)
        behavior = starts[max(0, len(starts) - 1 - settings["staleness"])]
        prox = {"behavior": behavior, "recent": starts[-1], "ewma": mean[2]}[settings["proximal"]]
        theta, slots = step(theta, slots, behavior, prox, jnp.asarray(batch))
        mean = monoid(mean, lift(theta))
        thetas.append(theta)
        proxes.append(prox)
    return np.stack(thetas), np.stack(proxes)


VECTORS = {
    "adjustments": adjustments,
    "spans": spans,
    "averages": averages,
    "clips": clips,
    "climbs": climbs,
}
