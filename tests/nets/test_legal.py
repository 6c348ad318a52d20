"""Networks limited to legal actions: what follows them counts nothing else, and stays finite."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import losses
from mmrl.nets import ActorCritic, Categorical, MaskedNet, Net

FEATURES, ACTIONS, TIME = 2, 4, 12
OBS = FEATURES + ACTIONS + 1  # the mask is not the last: what a run shows stands behind it


def tape(seed: int = 0) -> Any:
    """Observations with random masks, one of them empty."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(TIME, OBS)).astype(np.float32)
    mask = rng.random((TIME, ACTIONS)) < 0.5
    mask[np.arange(TIME), rng.integers(ACTIONS, size=TIME)] = True
    mask[3] = False
    obs[:, FEATURES:-1] = mask
    return jnp.asarray(obs), np.where(mask.any(1, keepdims=True), mask, True)


@pytest.fixture(scope="module")
def nets() -> Any:
    q = Net.make("gru", OBS, ACTIONS, width=8, key=jax.random.key(0))
    actor = ActorCritic.make("none", OBS, ACTIONS, width=8, key=jax.random.key(1))
    return q, actor


@pytest.mark.parametrize("kind", [0, 1])
def test_outputs_are_the_networks_for_legal_actions_and_minus_infinity_for_others(nets, kind):
    inner = nets[kind]
    net = MaskedNet(inner, FEATURES, ACTIONS)
    (obs, legal), (other, legal_ahead) = tape(), tape(1)
    begin = jnp.arange(TIME) % 5 == 0

    @eqx.filter_jit
    def outputs(net):
        now, ahead = net.lookahead(net.init(), obs, begin, other)[1:]
        again = net(net.init(), obs, begin)[1]
        first = net.step(net.init(), obs[0], begin[0])[1]
        return now, ahead, again, first

    def numbers(x):
        return x.policy.logits if kind else x

    pairs = list(zip(map(numbers, outputs(net)), map(numbers, outputs(inner)), strict=True))
    masks = (legal, legal_ahead, legal, legal[0])
    for (result, raw), mask in zip(pairs, masks, strict=True):
        np.testing.assert_array_equal(result, np.where(mask, raw, -np.inf))
    np.testing.assert_array_equal(net.legal(obs), legal)


def test_a_masked_policy_is_that_of_its_legal_actions():
    _, legal = tape()
    logits, others = (jax.random.normal(jax.random.key(k), (TIME, ACTIONS)) for k in (0, 1))

    def numbers(logits, others):
        policy, other = (Categorical(jnp.where(legal, x, -jnp.inf)) for x in (logits, others))
        action = policy.mode()
        cloning = losses.policy_cloning(policy.logits, other.logits)
        return policy.log_prob(action), policy.entropy(), policy.kl(other), cloning

    def total(logits, others):
        return sum(map(jnp.sum, numbers(logits, others)))

    compiled = jax.jit(lambda *x: (jnp.stack(numbers(*x)), jax.grad(total, (0, 1))(*x)))
    result, gradients = compiled(logits, others)
    for t, mask in enumerate(legal):
        p, q = (np.exp(np.float64(x[t][mask])) for x in (logits, others))
        p, q = p / p.sum(), q / q.sum()
        kl = [np.sum(x * np.log(x / y)) for x, y in ((p, q), (q, p))]
        expected = np.log(p.max()), -np.sum(p * np.log(p)), *kl
        np.testing.assert_allclose(result[:, t], expected, rtol=1e-4, atol=1e-6)
    for gradient in gradients:
        assert np.isfinite(gradient).all() and not gradient[~legal].any()


def test_samples_are_legal():
    _, legal = tape()
    policy = Categorical(jnp.where(legal, 0.0, -jnp.inf))
    actions = jax.vmap(policy.sample)(jax.random.split(jax.random.key(0), 400))
    counts = np.stack([(actions == a).sum(0) for a in range(ACTIONS)], axis=1)
    np.testing.assert_array_equal(counts > 0, legal)
