"""Legal actions, intervals, and types that hold a space, against tables by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces

from mmrl._spaces import disorder, is_picture, limits, misfit, pixel_unit
from mmrl.rollout import legal

INF = np.inf
MOST = float(np.finfo(np.float32).max)


def box(low: Any, high: Any, dtype: Any = jnp.float32, size: int = 2) -> spaces.Box:
    return spaces.Box(low, high, (size,), dtype)


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (box(-0.1, 0.1), [-3.0, 0.05], [-0.1, 0.05]),
        (box(100, 200), [0.0, 300.0], [100.0, 200.0]),
        (box(np.array([-1.0, 5.0]), jnp.array([1.0, 6.0])), [2.0, 2.0], [1.0, 5.0]),
        (box([-1.0, 5.0], (1.0, 6.0)), [2.0, 2.0], [1.0, 5.0]),
        (box(0.0, INF), [-2.0, 1e30], [0.0, 1e30]),
        (box(-INF, np.array([1.0, INF])), [7.0, 7.0], [1.0, 7.0]),
        (box(-INF, INF), [-7.0, 7.0], [-7.0, 7.0]),
        (box(-MOST, MOST), [-7.0, 7.0], [-7.0, 7.0]),
        (box(0, 5, jnp.int32), [2.6, 9.0], [3, 5]),
        (box(-1, 1, jnp.float16), [0.5, 9.0], [0.5, 1.0]),
        (box(-1.0, 1.0), [np.nan, 9.0], [np.nan, 1.0]),
        (box(-1.0, 1.0, np.float64), [-2.0, 0.5], [-1.0, 0.5]),
        (spaces.Discrete(3), [7], [7]),
    ],
)
def test_the_nearest_action_in_a_space(space: Any, action: list[float], expected: list[float]):
    action = np.asarray(action, np.float32 if isinstance(space, spaces.Box) else np.int32)
    nearest = legal(space, action)
    assert nearest.dtype == jax.dtypes.canonicalize_dtype(space.dtype)
    np.testing.assert_array_equal(nearest, np.asarray(expected, space.dtype))
    np.testing.assert_array_equal(legal(space, nearest), nearest)


def test_the_end_of_float32_is_no_bound():
    low, high = limits(box(-MOST, np.array([1.0, MOST]))) or (0, 0)
    np.testing.assert_array_equal(low, [-INF, -INF])
    np.testing.assert_array_equal(high, [1, INF])


@pytest.mark.parametrize(
    ("low", "high", "interval", "open_interval"),
    [
        (0.0, 1.0, "", ""),
        (-INF, INF, "", ""),
        (1.0, 1.0, "", "must have low < high"),
        (np.array([0.0, 2.0]), np.array([1.0, 2.0]), "", "low=2 and high=2 at index 1"),
        (1.0, 0.0, "must have low <= high", "must have low < high"),
        (np.nan, 1.0, "low=nan", "low=nan"),
        (0.0, np.array([1.0, np.nan]), "high=nan at index 1", "high=nan at index 1"),
    ],
)
def test_bounds_are_intervals(low: Any, high: Any, interval: str, open_interval: str):
    for fault, expected in (
        (disorder(box(low, high)), interval),
        (disorder(box(low, high), open_interval=True), open_interval),
    ):
        assert (expected in fault) if expected else fault == ""


@pytest.mark.parametrize(
    ("space", "dtype", "fits"),
    [
        (box(0, 255, jnp.uint8), "uint8", True),
        (box(0, 255, jnp.uint8), "int8", False),
        (box(0, 255, jnp.uint8), "int32", False),
        (box(0, 255, jnp.int8), "int8", False),
        (box(0, 1000, jnp.uint8), "uint8", False),
        (box(-1, 1, jnp.uint8), "uint8", False),
        (box(0, 1), "int32", False),
        (box(0, 1), "float16", False),
        (box(0, 1), "bool", False),
        (box(0, 1, jnp.bool_), "bool", True),
        (box(0, 2, jnp.bool_), "bool", False),
        (box(0, 1), "float64", True),
        (box(0, 1, float), "float32", True),  # which is float64 for NumPy
        (box(0, 1, np.float64), "float32", True),
        (box(0, 9, int), "int32", True),
        (box(0, 1, float), "int32", False),
        (box(0, 1, jnp.int32), "int64", True),
        (box(-1e5, 1e5, jnp.float16), "float16", False),
        (box(-6e4, 6e4, jnp.float16), "float16", True),
        (box(-1e5, 1e5, jnp.bfloat16), "bfloat16", True),
        (box(-MOST, MOST), "float32", True),
        (box(-INF, INF, jnp.float16), "float16", True),
        (box(0, 2**31 - 1, jnp.int32), "int32", True),
        (box(jnp.float32(0), jnp.float32(2**31 - 1), jnp.int32), "int32", True),
        (box(np.array([0, 300]), 301, jnp.uint8), "uint8", False),
        (spaces.Discrete(300), "int32", True),
        (spaces.Discrete(300), "uint8", False),
        (spaces.Discrete(200), "uint8", True),
        (spaces.Discrete(2), "float32", False),
    ],
)
def test_types_hold_all_values_of_a_space(space: Any, dtype: str, fits: bool):
    assert (misfit(space, dtype) == "") == fits


@pytest.mark.parametrize(
    ("low", "high", "dtype", "unit"),
    [
        (0, 255, jnp.uint8, 255.0),
        (0, 255, jnp.float32, 255.0),
        (0, 1, jnp.bool_, 1.0),
        (0, 1, jnp.uint8, 1.0),
        (-1, 1, jnp.float32, 1.0),
        (0, 14, jnp.uint8, None),  # codes of objects
        (0, 20, jnp.int32, None),
        (-INF, INF, jnp.float32, None),
    ],
)
def test_pixels_are_flags_small_numbers_and_bytes(low: Any, high: Any, dtype: Any, unit: Any):
    space = spaces.Box(low, high, (5, 5, 2), dtype)
    assert pixel_unit(space) == unit
    assert is_picture(space) == (unit is not None)
    assert not is_picture(spaces.Box(low, high, (2, 5, 2), dtype))
