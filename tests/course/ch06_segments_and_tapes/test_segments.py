"""Segments of an episode are the equations, whatever its leaves."""

import numpy as np
import pytest

from mmrl.course.ch06_segments_and_tapes import segments


@pytest.mark.parametrize("steps", [1, 6, 7])
@pytest.mark.parametrize("length", [1, 3, 9])
def test_split_and_pad_are_the_equations(steps, length):
    episode = {"o": np.arange(1.0, 1 + 2 * steps).reshape(steps, 2), "r": np.arange(1, 1 + steps)}
    ids = list(range(1, 1 + steps))
    expected = [ids[i : i + length] for i in range(0, steps, length)]
    fragments = segments.split(episode, length)
    # Every step once and in order: with the index 2(L - 1) of the printed Eq. 23 this fails.
    assert [f["r"].tolist() for f in fragments] == expected
    np.testing.assert_array_equal(np.concatenate([f["o"] for f in fragments]), episode["o"])
    result, masks = segments.rows(episode, length)
    assert result["o"].shape == (len(expected), length, 2)
    for row, fragment, r, o, mask in zip(
        expected, fragments, result["r"], result["o"], masks, strict=True
    ):
        real = len(row)
        assert r.tolist() == row + [0] * (length - real)
        assert mask.tolist() == [True] * real + [False] * (length - real)
        np.testing.assert_array_equal(o[:real], fragment["o"])
        assert not o[real:].any()


def test_pad_keeps_types_and_shapes():
    fragment = {"image": np.ones((2, 4, 3), np.uint8), "flag": np.ones(2, bool)}
    segment, mask = segments.pad(fragment, 5)
    assert segment["image"].shape == (5, 4, 3) and segment["image"].dtype == np.uint8
    assert segment["flag"].tolist() == mask.tolist() == [True, True, False, False, False]
    assert segments.mask(2, 5).tolist() == mask.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: segments.split(e, 0), "`length` must be at least 1 step .* got 0"),
        (
            lambda e: segments.split({"o": e["o"][:0]}, 2),
            "`episode` must have leaves .* at least 1, got",
        ),
        (lambda e: segments.pad(e, 2), "`fragment` must have at most `length` = 2 steps, got 3"),
        (lambda e: segments.pad(e, -1), "`length` must be at least 1"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call({"o": np.ones((3, 2))})
