"""ΔQ: by hand, against a loop over episodes, and of a tape, which has none."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.course.instruments import STARTS, delta_q, replay_delta_q
from mmrl.replay import sequences, tape
from tests.helpers import r2d2 as oracle
from tests.helpers.r2d2 import CONFIG, game, store

pytestmark = pytest.mark.slow


def test_delta_q_by_hand():
    truth = jnp.array([[1.0, -4.0], [-2.0, -8.0]])
    replay = truth + jnp.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(delta_q(replay, truth), [5.0, 0.0])
    np.testing.assert_allclose(delta_q(truth - 1, 2 * truth), np.hypot([2, 1], [3, 7]) / [2, 4])


measure = jax.jit(replay_delta_q, static_argnums=(2, 3))
COUNT, PREFIX = 24, 6


@pytest.mark.full
def test_delta_q_equals_a_loop():
    state, key = game().state, jax.random.key(4)
    later = dataclasses.replace(state, net=game().other)
    ours = jax.device_get(measure(later, key, COUNT, PREFIX))
    batch = jax.jit(sequences.sample, static_argnums=2)(state.sequences, key, COUNT)
    past = np.asarray(state.sequences.past[batch.rows])
    np.testing.assert_array_equal(ours.valid, (past > 0) & (past <= PREFIX))
    assert 5 < ours.valid.sum() < COUNT
    steps = np.asarray(batch.loss_mask.sum(axis=1))
    for i in np.flatnonzero(ours.valid):
        expected = np.array(
            oracle.stale_by_loop("lstm", later.net, int(batch.rows[i]), int(steps[i]))
        )
        np.testing.assert_allclose(ours.first[:, i], expected[:, 0], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(ours.last[:, i], expected[:, 1], rtol=1e-3, atol=1e-5)
    # Without a drift the actor's states are today's.
    fresh = jax.device_get(measure(state, key, COUNT, PREFIX))
    for name, first, last in zip(STARTS, fresh.first, fresh.last, strict=True):
        size = np.stack([first, last])[:, fresh.valid]
        assert (size < 1e-5).all() if "stored" in name else size[0].max() > 1e-2


def test_delta_q_needs_a_state_at_both_ends_of_the_burn_in():
    for burn_in in (0, 3):
        config = dataclasses.replace(CONFIG, burn_in=burn_in)
        storage = store(config, game().steps, game().states)
        state = dataclasses.replace(game().state, sequences=storage)
        with pytest.raises(ValueError, match=r"`burn_in` must be a positive multiple .* = 2"):
            replay_delta_q(state, jax.random.key(0), COUNT, PREFIX)


def test_a_tape_has_no_staleness():
    """A tape of whole episodes gives the values of each episode alone, with any parameters."""
    net, steps = game().other, jax.tree.map(lambda x: x[:, :60], game().steps)
    example = jax.tree.map(lambda x: x[0, 0], steps)

    @jax.jit
    def replay(steps, key):
        memory = tape.add(tape.init(example, 180, workers=3), steps)
        batch = tape.sample(memory, key, 120)
        return batch, net(net.init(), batch.steps.obs, batch.begin)[1]

    batch, q = jax.device_get(replay(steps, jax.random.key(2)))
    assert batch.mask.all() and batch.begin.sum() > 8
    obs = np.asarray(steps.obs).reshape(180, -1)
    alone = np.asarray(oracle.walk(net, steps.obs, steps.begin)[1]).reshape(180, -1)
    at = (batch.steps.obs[:, None] == obs[None]).all(axis=2).argmax(axis=1)
    np.testing.assert_allclose(q, alone[at], rtol=1e-5, atol=1e-6)
    # ΔQ divides by |max_a Q|: where that is next to nothing, it is of rounding alone.
    far = np.abs(alone[at].max(axis=1)) > 0.01
    assert far.mean() > 0.9
    assert np.asarray(delta_q(jnp.asarray(q), jnp.asarray(alone[at])))[far].max() < 1e-4
