"""Exercise 15.3 executes programs: whatever way a reader writes the equations."""

import numpy as np
import pytest

from mmrl.course.ch15_recurrent_tensors import exercises as check
from mmrl.course.exercises import NotYet
from mmrl.pdg.build.expr import min_


def recurrence(p, r, v, next_v, gamma, lam):
    (t,), (T,) = p.symbols, p.bounds
    delta = r + gamma * next_v - v
    a = p.tensor(t, name="advantage")
    a[T - 1] = delta[T - 1]
    a[t] = delta + gamma * lam * a[t + 1]
    return a


def by_slice(p, r, v, next_v, gamma, lam):
    (t,), (T,) = p.symbols, p.bounds
    return (r + gamma * next_v - v)[t:T].discounted_sum(gamma * lam)


@pytest.mark.slow
@pytest.mark.parametrize("write", [recurrence, by_slice])
def test_a_recurrence_and_a_slice_are_both_right(write, capsys: pytest.CaptureFixture):
    check.advantages(check.executor(write))
    assert "✓ Exercise 15.3" in capsys.readouterr().out


@pytest.mark.slow
def test_a_window_is_not_enough():
    def window(p, r, v, next_v, gamma, lam):
        (t,), (T,) = p.symbols, p.bounds
        delta = r + gamma * next_v - v
        return delta[t : min_(t + 2, T)].discounted_sum(gamma * lam)

    with pytest.raises(NotYet, match="it gives"):
        check.advantages(check.executor(window))


def test_an_undefined_point_is_named():
    def open_end(p, r, v, next_v, gamma, lam):
        (t,) = p.symbols
        a = p.tensor(t, name="advantage")
        a[0] = r[0]
        a[t] = r + gamma * lam * a[t + 1]
        return a

    with pytest.raises(NotYet, match="not defined"):
        check.advantages(check.executor(open_end))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p, r, *rest: np.zeros(4), "value of type ndarray: return a tensor over t"),
        (lambda p, r, *rest: r[0], "does not change with t: return a tensor over t"),
        (lambda p, r, *rest: r + r[p.symbols[0] + 1], "no value at t = 3 of 4 steps"),
    ],
)
def test_what_is_no_tensor_over_t_is_named(write, message: str):
    with pytest.raises(NotYet, match=message):
        check.advantages(check.executor(write))


def test_an_answer_left_open_is_open(capsys: pytest.CaptureFixture):
    check.advantages(check.executor(lambda *args: ...))
    assert "not answered yet" in capsys.readouterr().out
    assert check.executor(lambda *args: None)(np.ones(4), np.ones(5), 0.9, 0.5) is None
