"""Truncated gradients: where episodes are cut, and cosines of gradients with known angles."""

import jax.numpy as jnp
import numpy as np

from mmrl.course.ch08_what_truncation_costs import experiment_gradients as experiment
from mmrl.replay.tape import Sample


def test_episodes_are_cut_every_few_steps_after_their_own_start():
    begin = jnp.arange(9) % 5 == 0  # episodes of 5 and of 4 steps
    nothing = jnp.zeros(9, jnp.int32)
    batch = Sample(nothing, begin, jnp.ones(9, bool), nothing, nothing)
    assert np.flatnonzero(experiment.cut(batch, 2).begin).tolist() == [0, 2, 4, 5, 7]
    assert np.array_equal(experiment.cut(batch, 5).begin, begin)
    assert np.asarray(experiment.ages(begin)).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]


def test_cosines_of_known_angles():
    a = jnp.array([3.0, 0.0])
    assert np.allclose(experiment.cosine(a, 2 * a), 1.0)
    np.testing.assert_allclose(experiment.cosine(a, jnp.array([1.0, np.sqrt(3)])), 0.5, rtol=1e-6)
    vector = jnp.array([1 + 2j])
    assert experiment.cosine(*(experiment.real_vector([x]) for x in (vector, 1j * vector))) == 0.0


def test_agents_differ_only_in_task_memory_and_batching():
    cells = experiment.cells()
    assert len({cell.name for cell in cells}) == len(cells) == 16
    assert {cell.config.batching for cell in cells} == {"tape", "segments"}
