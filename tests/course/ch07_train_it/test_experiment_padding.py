"""Errors of normalization statistics that are due to padding, on batches with known statistics."""

import numpy as np
import pytest

from mmrl.course.ch07_train_it.experiment_padding import ERRORS, errors

FEATURES = np.array([[1.0], [3.0], [1.0], [3.0], [1.0], [0.0]])  # five real steps, one padded


def test_statistics_without_padding_have_no_error():
    result = errors(FEATURES, np.ones(6, bool), 3)
    assert result == dict.fromkeys(ERRORS, 0.0)


def test_errors_are_relative_to_the_deviation_over_real_steps():
    real = np.arange(6) < 5
    result, own = errors(FEATURES, real, 3), FEATURES[real]
    size = float(own.std())
    assert result["mean_error"] == pytest.approx(abs(FEATURES.mean() - own.mean()) / size)
    assert result["deviation_error"] == pytest.approx(abs(FEATURES.std() - size) / size)
    # The first segment has no padding, so only the second one, 3, 1 and padding, counts.
    assert result["instance_mean_error"] == pytest.approx((2 - 4 / 3) / size)
    deviation = np.std([3.0, 1.0, 0.0]) - 1.0
    assert result["instance_deviation_error"] == pytest.approx(abs(deviation) / size)
