"""Index expressions: their values, their normal form, their text for isl, and their inverses."""

import itertools
import operator
from typing import Any

import islpy as isl
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmrl.pdg.build.expr import FALSE, TRUE, Const, Expr, Slice, Sym, as_expr, max_, min_, structure
from mmrl.pdg.build.graph import Dim, Domain, Edge, array_type, reads
from mmrl.pdg.build.sets import always, invert, simplify
from mmrl.pdg.passes.access import Block
from tests.helpers.branches import BRANCHES
from tests.helpers.pdg_graphs import remainders

i, t, T = Sym("i"), Sym("t"), Sym("T")

numbers = st.integers(-9, 9)
# Plain tuples: within a strategy, beartype's random checks would upset Hypothesis.
TREES = st.recursive(
    st.one_of(st.sampled_from(["i", "t", "T"]), numbers),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "sub", "min", "max"]), inner, inner),
        st.tuples(st.just("mul"), numbers, inner),
        st.tuples(st.sampled_from(["div", "mod"]), inner, st.integers(1, 5)),
    ),
    max_leaves=6,
)
BUILD: dict[str, Any] = {"min": min_, "max": max_, "add": operator.add, "sub": operator.sub}
BUILD |= {"mul": operator.mul, "div": operator.floordiv, "mod": operator.mod}


def build(tree: Any) -> Any:
    if not isinstance(tree, tuple):
        return Sym(tree) if isinstance(tree, str) else Const(tree)
    last = tree[2] if tree[0] in ("div", "mod") else build(tree[2])
    return BUILD[tree[0]](build(tree[1]), last)


@settings(max_examples=50, deadline=None)
@given(TREES, st.fixed_dictionaries({"i": numbers, "t": numbers, "T": numbers}))
def test_text_python_and_isl_agree(tree: Any, env: dict[str, int]):
    expr = build(tree)
    value = expr.evaluate(env)
    assert eval(str(expr), {"min": min, "max": max}, env) == value
    fixed = " and ".join(f"{name} = {number}" for name, number in env.items())
    text = f"[i, t, T] -> {{ [x] : x = {expr.isl()} and {fixed} }}"
    found = isl.Set(text).sample_point().get_coordinate_val(isl.dim_type.set, 0)
    assert found.to_python() == value
    assert expr.substitute(env).same(Const(value))


@settings(max_examples=25, deadline=None)
@given(TREES, st.integers(0, 3), st.integers(1, 3))
@example(("mod", "i", 2), 0, 3)
@example(("div", "t", 2), 3, 3)
@example(("mul", -2, "i"), 0, 3)
def test_intervals_hold_every_value(tree: Any, below: int, above: int):
    expr = build(tree)
    low, high = expr.interval({"i": (0, above), "t": (-below, above), "T": (above, above)})
    for x in range(-below, above + 1):
        for y in range(above + 1):
            assert low <= expr.evaluate({"i": y, "t": x, "T": above}) <= high


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (T - (T - t), "t"),
        (t + 1 - 1, "t"),
        (5 - t, "5 - t"),
        (T - 1 - t, "T - t - 1"),
        (2 * t + t, "3 * t"),
        ((t + 3) // 2 * 4, "4 * ((t + 3) // 2)"),
        (min_(t + 4, t + 2), "t + 2"),
        (max_(0, t - 4), "max(0, t - 4)"),
        ((t >= 3) & (t < T) | ~(t == 0), "t >= 3 and t < T or t != 0"),
        (~((t < 3) & (i < 1)), "t >= 3 or i >= 1"),
        (Slice(t, min_(t + 4, T)), "t:min(t + 4, T)"),
        (Slice(t, min_(t + 4, T)).width(), "min(4, T - t)"),
        (Slice(max_(0, t - 4), t + 1).width(), "min(t + 1, 5)"),
        (Slice(t, min_(t + 4, T)).upper(), "t + 3"),
        (Slice(as_expr(0), T).upper(), "T - 1"),
        ((t < t + 1) & TRUE, "True"),
        ((t == t + 1) | FALSE, "False"),
    ],
)
def test_expressions_are_kept_in_one_form(expr: Expr, text: str):
    assert str(expr) == text


def test_equality_builds_a_comparison_and_still_serves_python():
    assert str(t == 0) == "t == 0"
    assert (t == 0).evaluate({"t": 0}) is True
    assert t.same(Sym("t")) and not t.same(T)
    assert (t, T + 1) == (Sym("t"), Sym("T") + 1)
    assert len(set(map(structure, (t, T, Sym("t"), t + 0)))) == 2
    assert structure((t, (T,))) == structure((Sym("t"), (T,))) != structure((T, (t,)))
    with pytest.raises(TypeError, match=r"`T < t` has no truth value .* write `min_`, `max_`"):
        min(t, T)


@pytest.mark.parametrize("use", BRANCHES)
def test_no_branch_is_taken_by_a_comparison_of_symbols(use: str):
    for symbol in (t, t + 1, t % 2, T - t):
        with pytest.raises(TypeError, match="has no truth value"):
            BRANCHES[use](symbol, 0)


LOOKUPS = ("in set", "in dict", "not in frozenset")  # which raise whatever they hold


@pytest.mark.parametrize("use", [use for use in BRANCHES if use not in ("match", *LOOKUPS)])
def test_a_comparison_that_is_decided_has_a_truth_value(use: str):
    """The branch is the one that integers take."""
    for symbol, other, like in ((t + 1, t, 1), (t - 1, t, -1), (T - T, 0, 0), (t, t + 0, 0)):

        def found(a: Any, b: Any, use: str = use) -> Any:
            try:
                return BRANCHES[use](a, b)
            except (AssertionError, ValueError) as error:
                return type(error)

        result, wanted = found(symbol, other), found(like, 0)
        numbers = (type(wanted) is list and use != "stored") or use in ("max", "min")
        assert numbers or bool(result) == bool(wanted)


def test_conditions_are_compared_as_conditions():
    one, other = t > 0, t < 3
    for op, same in ((operator.eq, True), (operator.ne, False)):
        both = op(one, other)
        for k in (-1, 1, 5):
            assert both.evaluate({"t": k}) == ((one.evaluate({"t": k}) == (k < 3)) == same)
        with pytest.raises(TypeError, match="has no truth value"):
            bool(both)
        assert bool(op(one, t > 0)) == same and op(one, np.True_).same(one if same else ~one)
        with pytest.raises(ValueError, match="which is not a condition"):
            op(one, 1)


def test_what_holds_expressions_is_compared_by_structure():
    def each(start: Any) -> list[Any]:
        line = Domain.of("t", when=t >= start)
        index = (slice(start, T),)
        edge = Edge("y", "x", tuple(map(as_expr, index)), t >= start)
        kinds = [array_type((T - start, 2), "float32"), Dim(t, T - start)]
        return [line, edge, *kinds, invert(line, line.box(), edge.index), Block("t", T - start)]

    for a, again, b in zip(each(i), each(i), each(t), strict=True):
        assert a == again and hash(a) == hash(again) and a in [b, again] and len({a, again}) == 1
        assert a != b and not a == b and a != "a" and b not in [a, again]  # noqa: SIM201


def test_traced_values_stay_arrays():
    env = {"t": jnp.arange(6), "T": 4}
    assert min_(t + 1, T).evaluate(env).tolist() == [1, 2, 3, 4, 4, 4]
    assert (~((t % 2 == 0) & (t < T))).evaluate(env).tolist() == [False, True] * 2 + [True] * 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: t * T, "is not linear"),
        (lambda: t // T, "divided by a positive number"),
        (lambda: t % 0, "divided by a positive number"),
        (lambda: as_expr(1.5), "is not an index"),
        (
            lambda: t + 1.5,
            r"`t` cannot be combined with `1.5` in an index.*`p.value\(t\)` is a tensor",
        ),
        (lambda: 2 * t / 2, r"`2 \* t` cannot be combined with `2`"),
        (lambda: 0.9**t, r"`t` cannot be combined with `0.9`"),
        (lambda: t & 1, r"`\(t\) & \(1\)` joins `t`, which is not a condition.* `t % 2 == 1`"),
        (
            lambda: (t > 1) | i,
            r"joins `i`, which is not a condition: put .* in parentheses",
        ),
        (lambda: as_expr(slice(0, 8, 2)), "no step"),
        (lambda: t == jnp.array(0), r"`t` has no numeric value .*`p.fn\(jnp.tanh, x\)`"),
        (lambda: np.zeros(1, int) != t + 1, r"`t \+ 1` has no numeric value"),
        (lambda: t.evaluate({"T": 3}), "`t` has no value"),
        (lambda: Slice(t, T).isl(), "isl cannot express"),
    ],
)
def test_what_no_index_can_say_is_refused(build, message: str):
    with pytest.raises(ValueError, match=message):
        build()


INVERSES = {
    "t": (t, "t", "True"),
    "t+3": (t + 3, "t - 3", "t >= 3"),
    "t-1": (t - 1, "t + 1", "T >= t + 2"),
    "0:T": (slice(0, T), "0:T", "True"),
    "t:T": (slice(t, T), "0:t + 1", "True"),
    "0:t+1": (slice(0, t + 1), "t:T", "True"),
    "t:min(t+4,T)": (slice(t, min_(t + 4, T)), "max(0, t - 3):t + 1", "True"),
    "max(0,t-4):t+1": (slice(max_(0, t - 4), t + 1), "t:min(T, t + 5)", "True"),
    "max(t-3,0):t+1": (slice(max_(t - 3, 0), t + 1), "t:min(T, t + 4)", "True"),
    "max(t-1,0):min(t+2,T)": (
        slice(max_(t - 1, 0), min_(t + 2, T)),
        "max(0, t - 1):min(T, t + 2)",
        "True",
    ),
    "t//2": (t // 2, "2 * t:min(T, 2 * t + 2)", "T >= 2 * t + 1"),
    "T-1-t": (T - 1 - t, "T - t - 1", "True"),
    "2:5": (slice(2, 5), "0:T", "t >= 2 and t <= 4"),
    "2*t": (2 * t, "t // 2", "t % 2 == 0"),
}


@pytest.mark.parametrize("pattern", INVERSES)
def test_reads_have_the_inverses_of_the_paper(pattern: str):
    phi, inverse, when = INVERSES[pattern]
    line = Domain.of("t")
    found = invert(line, line, [as_expr(phi)])
    assert (str(found.index[0]), str(found.when), found.exact) == (inverse, when, True)


@pytest.mark.parametrize(
    "phi",
    [*(phi for phi, *_ in INVERSES.values()), t % 8, max_(t - 1, 0), slice(t % 3, t % 3 + 2)],
    ids=str,
)
def test_an_inverse_holds_every_reader_and_no_other_if_exact(phi):
    line, size = Domain.of("t"), 11
    found = invert(line, line, [as_expr(phi)])
    for k in range(size):
        env = {"t": k, "T": size}
        readers = {x for x in range(size) if (k,) in reads([as_expr(phi)], {"t": x, "T": size})}
        box = {x for (x,) in reads(found.index, env)} if found.when.evaluate(env) else set()
        assert readers == box if found.exact else readers <= box <= set(range(size))
        assert bool(readers) == bool(found.when.evaluate(env))


def test_conditions_are_decided_for_all_bounds():
    line = Domain.of("t")
    assert always(t < T, line) and not always(t < T - 1, line)
    assert str(simplify((t >= 0) & (t < T - 1), line)) == "T >= t + 2"
    assert simplify((t >= -1) | (t == T), line).same(TRUE)


def test_a_condition_is_simplified_to_one_that_says_the_same():
    line, numbers = Domain.of("t"), itertools.product(range(3), range(1, 4), range(4), (2, 4))
    at = [dict(zip("iItT", each, strict=True)) for each in numbers if each[2] < each[3]]
    for when in remainders(30):
        found = simplify(when, line)
        assert all(found.evaluate(env) == when.evaluate(env) for env in at), f"{when}: {found}"


def test_domains_know_their_points():
    plane = Domain.of("i", "t", when=t % 2 == 0)
    assert list(plane.points({"I": 1, "T": 4})) == [(0, 0), (0, 2)]
    assert list(plane.dense().points({"I": 1, "T": 2})) == [(0, 0), (0, 1)]
    assert Domain.of("i", "t").union().names == ("i", "t")
    assert str(plane) == "[i, t: t % 2 == 0]"
    assert plane.largest(min_(3, T - t), {"I": 1, "T": 9}) == 3
