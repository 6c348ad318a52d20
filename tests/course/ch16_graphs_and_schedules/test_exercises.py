"""The exercises of chapter 16 against the library: what a check wants is what a schedule does."""

import jax.numpy as jnp
import pytest

from mmrl.course.ch16_graphs_and_schedules import exercises as check
from mmrl.course.exercises.answers import NotYet
from mmrl.pdg.build.expr import max_, min_
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.program import Program
from mmrl.pdg.run import Compiled, compile


def graph_of(n: int | None, k: int) -> Graph:
    """Gradients from k + 1 observations each, and from n rewards, or from all that follow."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    obs, so_far = p.tensor(t, name="obs"), p.tensor(t, name="so_far")
    obs[0] = 1.0
    obs[t + 1], reward = p.fn(lambda o: (0.9 * o, o), obs, name="step")
    ret = reward[t : T if n is None else min_(t + n, T)].discounted_sum(0.9)
    grad = p.fn(lambda o, g: o.sum() * g, obs[max_(0, t - k) : t + 1], ret, name="grad")
    so_far[0] = 0.0
    so_far[t + 1] = total = p.fn(jnp.add, so_far, grad, name="total")
    return p.graph(total[T - 1].read("last"))


def delay_and_peak(compiled: Compiled, T: int) -> tuple[int, int]:
    """Rounds that learning runs behind acting, and the most observations alive."""
    report = compiled.check(T=T)
    assert report.ok
    runs = [event[1:] for event in compiled.trace(T=T) if event[0] == "run"]
    before = sum(name == "step" for name, _ in runs[: runs.index(("grad", (0,)))])
    return before - 1, report.device["obs", 0]


@pytest.mark.parametrize("n", [1, 3, 6, None])
def test_windows_take_what_the_schedule_keeps(n: int | None):
    compiled = compile(graph_of(n, 0), {})
    for T in (4, 9, 20):
        assert check.behind.solution(n, T) == delay_and_peak(compiled, T)


@pytest.mark.parametrize(("n", "k"), [(3, 2), (1, 4), (4, 0), (5, 7)])
def test_stacks_keep_as_many_older_observations_as_the_chapter_says(n: int, k: int):
    compiled = compile(graph_of(n, k), {})
    for T in (max(4, n), 9, 20):
        assert delay_and_peak(compiled, T) == (n - 1, min(T, n + k))


def test_values_are_freed_after_their_last_reader():
    reads = {("x", 0): [], ("x", 1): [("x", 0)], ("y", 0): [("x", 0), ("x", 1)], ("y", 1): []}
    assert check.peak(list(reads), reads) == 3
    assert check.peak(list(reads), reads, "x") == 2
    assert check.peak([("y", 1), *list(reads)[:3]], reads) == 3  # y[1] is gone before x[0]


def test_an_order_that_learns_as_soon_as_it_can_is_right():
    """Not ours, and it keeps as little."""

    def learning_first(reads):
        return check._first(reads, lambda p: (p[0] in check.ACTOR_OPS, p[1]))

    check.orders(check.order_check(learning_first))


def test_other_right_times_are_right():
    names = ("delta", "adv", "grad")
    check.backward(
        check.timing_check(lambda x, t, T: [0, t, 0] if x == "step" else [1, -t, names.index(x)])
    )
    with pytest.raises(NotYet, match=r"learning reads .* reads: 4 \(for 1\)"):
        check.backward(check.timing_check(lambda x, t, T: (t,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda order: order[:5], r"points of the program are missing: 67 \(for 3-step, 12\)"),
        (lambda order: [*order, order[0]], "extra runs: 1 "),
        (lambda order: [*order, ("rest", 0)], "extra runs: 1 "),
        (lambda order: [order[1], order[0], *order[2:]], "before .* reads: 1 "),
        (lambda order: order[:1] * len(order), "are missing: 71 "),
    ],
)
def test_what_is_wrong_with_an_order_is_named(change, message: str):
    with pytest.raises(NotYet, match=message):
        check.orders(check.order_check(lambda reads: change(check.greedy(reads))))


def test_what_an_order_keeps_too_long_is_named():
    def learns_a_step_late(reads):
        order = check.greedy(reads)
        late = [p for p in order if p[0] not in check.ACTOR_OPS and p[1] == 0]
        rest = [p for p in order if p not in late]
        return [*rest[:12], *late, *rest[12:]]  # after four steps, where three are enough

    with pytest.raises(NotYet, match=r"legal, but more values .* extra values: \d"):
        check.orders(check.order_check(learns_a_step_late))


def test_answers_left_open_are_no_errors(capsys: pytest.CaptureFixture):
    check.backward(check.timing_check(lambda name, t, T: ...))
    check.orders(check.order_check(lambda reads: ...))
    assert capsys.readouterr().out.count("not answered yet") == 2
    with pytest.raises(NotYet, match="gives None"):
        check.orders(check.order_check(lambda reads: None))
