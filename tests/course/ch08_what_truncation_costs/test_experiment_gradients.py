"""Truncated gradients: where episodes are cut, and cosines of gradients with known angles."""

import jax.numpy as jnp
import numpy as np

from mmrl.course.ch08_what_truncation_costs import experiment_gradients as experiment
from mmrl.course.ch08_what_truncation_costs import figures
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


def test_the_figure_shows_ages_fractions_and_cosines_of_a_row():
    over_time = [[0.2, 0.4], [0.6, 0.8], [1.0, 1.0]]  # [time][seed]
    row = {"cell": "RepeatFirstEasy, s5", "memory": "s5", "measured_at": [10, 20, 30]}
    row |= {"gradient": [[1.0, 1.0, 2.0]] * 2, "outside": over_time, "oldest": over_time}
    row |= {"cosine": {"10": over_time, "50": over_time}, "resampled": over_time}
    by_age, shares, cosines = figures.truncated_gradients(row)
    np.testing.assert_allclose(by_age.lines[-1].get_ydata(), [0.25, 0.25, 0.5])
    for ax, count in ((shares, 2), (cosines, 3)):
        middles = [np.asarray(x.get_ydata()) for x in ax.lines]
        matches = [x for x in middles if x.shape == (3,) and np.allclose(x, [0.3, 0.7, 1.0])]
        assert len(matches) == count and ax.get_title("left")
        assert ax.get_yscale() == "linear"
    assert shares.get_xlim()[1] == 30
