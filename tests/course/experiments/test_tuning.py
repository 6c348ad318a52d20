"""One rule chooses settings: ties, edges, ends, losses that diverge, what is known already."""

import numpy as np
import pytest

from mmrl.course.experiments import tuning
from mmrl.course.experiments.tuning import Trial, choose


class Trainer:
    """Curves with the score and the area that a table says, and a list of what was trained."""

    def __init__(self, scores, areas=None, default=-1.0):
        self.scores, self.areas, self.default = scores, areas or scores, default
        self.trained = []

    def __call__(self, settings):
        values = [setting["rate"] for setting in settings]
        self.trained += values
        last = np.array([self.scores.get(x, self.default) for x in values])
        area = np.array([self.areas.get(x, self.default) for x in values])
        early = (4 * area - last) / 3  # the last quarter of the evaluations has the score
        return np.stack([early] * 6 + [last] * 2, -1)[:, None].repeat(3, 1)


def rates(*values):
    return [{"rate": x} for x in values]


def choice(trainer, first=(1e-3, 3e-3, 1e-2), known=(), **kwargs):
    return choose(trainer, rates(*first), {"rate": tuning.GRID}, trials=known, **kwargs)


def names(results):
    return [one.setting["rate"] for one in results.trials]


def test_the_best_score_wins_and_a_winner_inside_costs_nothing_more():
    trainer = Trainer({1e-3: 0.2, 3e-3: 0.9, 1e-2: 0.5})
    result = choice(trainer)
    assert result.setting == {"rate": 3e-3} and result.at_edge == []
    assert trainer.trained == [1e-3, 3e-3, 1e-2] == names(result)
    np.testing.assert_allclose([one.score for one in result.trials], [0.2, 0.9, 0.5])
    np.testing.assert_allclose([one[2] or 0 for one in result.trials], [0.2, 0.9, 0.5])


def test_equal_scores_are_told_apart_by_area_and_not_by_order():
    scores = {1e-3: 1.0, 3e-3: 0.998, 1e-2: 0.8}
    result = choice(Trainer(scores, {1e-3: 0.6, 3e-3: 0.9, 1e-2: 0.79}))
    assert result.setting == {"rate": 3e-3}
    # Two thousandths are less than half a percent of 1, but not of a third.
    result = choice(Trainer(scores, {1e-3: 0.6, 3e-3: 0.9, 1e-2: 0.79}), span=0.3)
    assert result.setting == {"rate": 1e-3}


def test_a_winner_at_an_edge_is_given_neighbors():
    trainer = Trainer({1e-4: 0.3, 3e-4: 0.8, 1e-3: 0.7, 3e-3: 0.5, 1e-2: 0.1})
    result = choice(trainer)
    assert result.setting == {"rate": 3e-4} and result.at_edge == []
    assert trainer.trained == [1e-3, 3e-3, 1e-2, 3e-4, 1e-4]
    assert names(result) == sorted(names(result))
    trainer = Trainer({1e-3: 0.1, 3e-3: 0.5, 1e-2: 0.8, 3e-2: 0.7})
    assert choice(trainer).setting == {"rate": 1e-2} and trainer.trained[3:] == [3e-2]


def test_the_grid_has_ends_and_a_winner_there_is_said_to_lie_there():
    trainer = Trainer({x: -x for x in tuning.GRID})
    result = choice(trainer, span=1e-6)
    assert result.setting == {"rate": tuning.GRID[0]} and result.at_edge == ["rate"]
    assert sorted(trainer.trained) == list(tuning.GRID[:5])
    # A number without a grid is not at an end.
    result = choose(Trainer({1e-3: 1.0}), rates(1e-3, 3e-3), {})
    assert result.setting == {"rate": 1e-3} and result.at_edge == []


def test_a_loss_that_diverged_never_wins():
    trainer = Trainer({1e-3: -0.9, 3e-3: np.nan, 1e-2: np.nan, 3e-4: -0.95})
    result = choice(trainer)
    assert result.setting == {"rate": 1e-3}
    assert [one.score for one in result.trials][2:] == [-np.inf, -np.inf]
    curves = np.ones((1, 2, 8))
    curves[0, 1, -1] = np.nan  # one seed of two, at the end
    assert tuning.final(curves) == tuning.area(curves) == -np.inf
    nothing = choice(Trainer({}, default=np.nan))  # smaller rates may do
    assert nothing.setting == {"rate": tuning.GRID[0]} and nothing.at_edge == ["rate"]


def test_what_is_known_is_not_trained_again_unless_its_area_is_needed():
    tries = [Trial({"rate": x}, s, None) for x, s in ((1e-3, 0.2), (3e-3, 0.9), (1e-2, 0.5))]
    trainer = Trainer({})
    assert choice(trainer, known=tries).setting == {"rate": 3e-3} and not trainer.trained
    tries[2] = Trial({"rate": 1e-2}, 0.899, None)
    trainer = Trainer({3e-3: 0.9, 1e-2: 0.899, 3e-2: 0.0}, {3e-3: 0.5, 1e-2: 0.7, 3e-2: 0.0})
    result = choice(trainer, known=tries)
    assert result.setting == {"rate": 1e-2} and trainer.trained == [3e-3, 1e-2, 3e-2]
    assert [one.area is None for one in result.trials] == [True, False, False, False]


def test_rows_that_need_no_training_are_known_by_what_they_say():
    row = {"learning_rate": 3e-3, "tuning": {"0.001": 0.2, "0.003": 0.9, "0.01": 0.5}}
    assert tuning.stands(row) and not tuning.stands({**row, "learning_rate": 1e-3})
    assert not tuning.stands({**row, "tuning": {**row["tuning"], "0.01": 0.895}})
    assert not tuning.stands({"cell": "another"})


def test_the_score_may_be_the_area():
    trainer = Trainer({1e-3: 1.0, 3e-3: 0.5, 1e-2: 0.9}, {1e-3: 0.1, 3e-3: 0.4, 1e-2: 0.2})
    result = choice(trainer, score=tuning.area)
    assert result.setting == {"rate": 3e-3}
    assert all(one.score == one.area for one in result.trials)


def test_several_numbers_climb_to_a_setting_without_better_neighbors():
    grid = {"a": (1.0, 2.0, 3.0, 4.0, 5.0), "b": (1.0, 2.0, 3.0, 4.0, 5.0)}
    calls = []

    def train(settings):
        calls.extend(tuple(s.values()) for s in settings)
        height = [10.0 - (s["a"] - 4) ** 2 - (s["b"] - 1) ** 2 - s["c"] for s in settings]
        return np.array(height)[:, None, None] * np.ones((1, 2, 8))

    first = [{"a": a, "b": b, "c": c} for a in (2.0, 3.0) for b in (2.0, 3.0) for c in (0.0, 1.0)]
    result = choose(train, first, grid)
    assert result.setting == {"a": 4, "b": 1, "c": 0} and result.at_edge == ["b"]
    assert len(calls) == len(set(calls)) < 25
    assert {(5, 1, 0), (3, 1, 0), (4, 2, 0)} <= set(calls)


def test_a_value_off_its_grid_is_refused():
    with pytest.raises(ValueError, match="`rate` must be on its grid"):
        choice(Trainer({}), first=(2e-3,))
