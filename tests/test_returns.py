"""Targets are what their definitions say, episode by episode, and rlax agrees."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrl import returns
from mmrl.losses import double_q_target

GAMMA, LAM, RHO_MAX, C_MAX = 0.97, 0.9, 1.3, 0.8
WINDOWS = (1, 2, 3, 5, 8, 13, 200)


@pytest.fixture
def without_type_checks(monkeypatch: pytest.MonkeyPatch):
    """Calls as users make them, without the tests' type checker in front of our own errors."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


class Tape(NamedTuple):
    """Everything a target may ask for, in double precision."""

    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    ratio: np.ndarray

    @property
    def last(self):
        return self.terminated | self.truncated

    @property
    def discount(self):
        return GAMMA * (1 - self.terminated)


def random_tape(steps: int, terminated=None, truncated=None, seed: int = 0) -> Tape:
    """`next_values` continue `values` within an episode, and are something else at its end."""
    rng = np.random.default_rng(seed)
    if terminated is None:
        terminated = rng.random(steps) < 0.06
    if truncated is None:  # now and then an episode ends in both ways at once
        truncated = rng.random(steps) < np.where(terminated, 0.5, 0.06)
    terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
    rewards, values, beyond = rng.normal(size=(3, steps))
    goes_on = ~(terminated | truncated) & (np.arange(steps) < steps - 1)
    next_values = np.where(goes_on, np.append(values[1:], 0.0), beyond)
    return Tape(
        rewards, values, next_values, terminated, truncated, np.exp(0.5 * rng.normal(size=steps))
    )


def episodes(last) -> list[slice]:
    ends = [*(np.flatnonzero(last) + 1), len(last)]
    return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False) if a < b]


# The definitions, typed as sums over one episode at a time


def bootstrapped_sum(tape: Tape, t: int, end: int) -> float:
    """r_t + γ r_{t+1} + … up to step `end` (excluded), then the value of what followed."""
    total, weight = 0.0, 1.0
    for k in range(t, end):
        total += weight * tape.rewards[k]
        weight *= tape.discount[k]
    return total + weight * tape.next_values[end - 1]


def defined_lambda_return(tape: Tape, t: int, end: int) -> float:
    """(1-λ) Σ_n λ^{n-1} G^{(n)} + λ^{N-1} G^{(N)}: the forward view."""
    last = end - t
    average = sum(LAM ** (n - 1) * bootstrapped_sum(tape, t, t + n) for n in range(1, last))
    return (1 - LAM) * average + LAM ** (last - 1) * bootstrapped_sum(tape, t, end)


def defined_sum(first: float, errors, factors, t: int, end: int) -> float:
    """first + Σ_{s ≥ t} (Π_{i=t}^{s-1} factor_i) error_s."""
    total, weight = first, 1.0
    for s in range(t, end):
        total += weight * errors[s]
        weight *= factors[s]
    return total


def by_definition(tape: Tape) -> dict[str, np.ndarray]:
    """Every target by its definition."""
    delta = tape.rewards + tape.discount * tape.next_values - tape.values
    rho, c = np.minimum(RHO_MAX, tape.ratio), LAM * np.minimum(C_MAX, tape.ratio)
    following = np.append(LAM * np.minimum(1, tape.ratio)[1:], 0.0)
    names = ["discounted", "lambda_return", "gae", "vtrace", "vtrace_advantage", "retrace"]
    out = {name: np.zeros(len(delta)) for name in names + [f"n_step {n}" for n in WINDOWS]}
    for episode in episodes(tape.last):
        end = episode.stop
        for t in range(episode.start, end):
            v = tape.values[t]
            out["discounted"][t] = bootstrapped_sum(tape, t, end)
            out["lambda_return"][t] = defined_lambda_return(tape, t, end)
            out["gae"][t] = defined_sum(0.0, delta, tape.discount * LAM, t, end)
            out["vtrace"][t] = defined_sum(v, rho * delta, tape.discount * c, t, end)
            out["retrace"][t] = defined_sum(v, delta, tape.discount * following, t, end)
            for n in WINDOWS:
                out[f"n_step {n}"][t] = bootstrapped_sum(tape, t, min(t + n, end))
        ahead = np.append(out["vtrace"][episode.start + 1 : end], tape.next_values[end - 1])
        q = tape.rewards[episode] + tape.discount[episode] * ahead
        out["vtrace_advantage"][episode] = rho[episode] * (q - tape.values[episode])
    return out


@jax.jit
def by_library(tape: Tape, gamma=GAMMA, lam=LAM, rho_max=RHO_MAX, c_max=C_MAX):
    """Every target by `mmrl.returns`, its scalars traced."""
    discount = returns.discounts(gamma, tape.terminated)
    last = tape.terminated | tape.truncated
    r, v, v_next = tape.rewards, tape.values, tape.next_values
    trace = returns.vtrace(
        r, discount, v, v_next, last, tape.ratio, lam=lam, rho_max=rho_max, c_max=c_max
    )
    return {
        "discounted": returns.discounted_return(r, discount, v_next, last),
        "lambda_return": returns.lambda_return(r, discount, v_next, last, lam),
        "gae": returns.gae(r, discount, v, v_next, last, lam),
        "vtrace": trace.values,
        "vtrace_advantage": trace.advantages,
        "retrace": returns.retrace(r, discount, v, v_next, last, tape.ratio, lam),
        **{f"n_step {n}": returns.n_step(r, discount, v_next, last, n) for n in WINDOWS},
    }


def arrays(tape: Tape, dtype) -> Tape:
    return Tape(*(jnp.asarray(x if x.dtype == bool else x.astype(dtype)) for x in tape))


def assert_same(ours, theirs, tolerance):
    assert ours.keys() == theirs.keys()
    for name in ours:
        scale = 1 + np.max(np.abs(theirs[name]), initial=0)
        np.testing.assert_allclose(
            ours[name], theirs[name], rtol=0, atol=tolerance * scale, err_msg=name
        )


def test_targets_are_their_definitions_in_double_precision(x64):
    tape = random_tape(200)
    ends = np.stack([tape.terminated, tape.truncated, tape.terminated & tape.truncated])
    assert np.all(ends.sum(1) > 0), "the tape shows every way to end"
    scalars = map(jnp.asarray, (GAMMA, LAM, RHO_MAX, C_MAX))
    assert_same(by_library(arrays(tape, "f8"), *scalars), by_definition(tape), 1e-12)


@pytest.mark.slow
def test_targets_are_their_definitions_in_single_precision():
    tape = random_tape(512, seed=1)
    assert_same(by_library(arrays(tape, "f4")), by_definition(tape), 1e-5)


flags = st.lists(st.booleans(), min_size=12, max_size=12)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(terminated=flags, truncated=flags)
def test_every_arrangement_of_episodes(terminated, truncated):
    tape = random_tape(12, terminated, truncated)
    assert_same(by_library(arrays(tape, "f4")), by_definition(tape), 1e-5)


@pytest.mark.slow
def test_each_episode_has_the_targets_it_has_alone():
    whole = random_tape(
        12, [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0]
    )
    together = by_library(arrays(whole, "f4"))
    assert [e.stop - e.start for e in episodes(whole.last)] == [3, 4, 1, 4]
    for episode in episodes(whole.last):
        alone = by_library(arrays(Tape(*(x[episode] for x in whole)), "f4"))
        assert_same({name: x[episode] for name, x in together.items()}, alone, 1e-6)


@pytest.mark.parametrize("poison", [100.0, np.nan, np.inf])
def test_the_next_episode_has_no_influence(poison):
    tape = random_tape(12, terminated=np.arange(12) == 3, truncated=np.arange(12) == 7)
    other = [np.where(np.arange(12) < 8, x, poison) if x.dtype == float else x for x in tape]
    before, after = by_library(arrays(tape, "f4")), by_library(arrays(Tape(*other), "f4"))
    for name in before:
        np.testing.assert_array_equal(before[name][:8], after[name][:8], err_msg=name)


def first_episodes(rewards, values, tape: Tape):
    targets = by_library(tape._replace(rewards=rewards, values=values))
    return sum(jnp.sum(x[:8]) for x in targets.values())


@pytest.mark.slow
def test_the_next_episode_has_no_gradient_not_even_nan():
    gradient = jax.jit(jax.grad(first_episodes, argnums=(0, 1)))
    tape = random_tape(12, terminated=np.arange(12) == 3, truncated=np.arange(12) == 7)
    other = [np.where(np.arange(12) < 8, x, np.nan) if x.dtype == float else x for x in tape]
    for x in (arrays(tape, "f4"), arrays(Tape(*other), "f4")):
        for g in gradient(x.rewards, x.values, x):
            assert np.all(np.isfinite(g[:8])) and np.any(g[:8] != 0)
    for g in gradient(tape.rewards, tape.values, arrays(tape, "f4")):
        assert np.all(g[8:] == 0)


def test_truncation_bootstraps_and_termination_does_not():
    one, last = jnp.ones(1), jnp.ones(1, bool)
    cut = returns.discounted_return(one, returns.discounts(0.5, ~last), 10 * one, last)
    end = returns.discounted_return(one, returns.discounts(0.5, last), 10 * one, last)
    assert cut == 6.0 and end == 1.0


def test_an_unfinished_tape_bootstraps_from_its_end():
    """Cutting a tape in two and bootstrapping with the right value changes nothing."""
    tape = random_tape(40, np.zeros(40), np.zeros(40))
    true_returns = by_definition(tape)["discounted"]
    head = Tape(*(x[:25] for x in tape))
    head.next_values[-1] = true_returns[25]
    result = by_library(arrays(head, "f4"))["discounted"]
    np.testing.assert_allclose(result, true_returns[:25], atol=1e-5)


def test_the_discounted_return_needs_no_values_and_no_flags():
    tape = random_tape(50, truncated=np.zeros(50))
    rewards, discount = jnp.asarray(tape.rewards), jnp.asarray(tape.discount)
    expected = [
        sum(GAMMA**k * r for k, r in enumerate(tape.rewards[t : e.stop]))
        for e in episodes(tape.terminated)
        for t in range(e.start, e.stop)
    ]
    np.testing.assert_allclose(returns.discounted_return(rewards, discount), expected, atol=1e-5)
    cut = returns.discounted_return(rewards, discount, last=jnp.ones(50, bool))
    np.testing.assert_array_equal(cut, rewards)


def test_a_forward_scan_sums_the_past_instead():
    """What Eq. 17 computes as printed: Σ_{i ≤ t} γ^i r_i, which is no target for step t > 0."""
    rewards = jnp.asarray(random_tape(30).rewards)
    weights = GAMMA ** np.arange(30)
    backward = returns.discounted_return(rewards, jnp.full(30, GAMMA))
    literal = np.cumsum(weights * rewards)
    np.testing.assert_allclose(backward[0], literal[-1], rtol=1e-5)
    assert np.max(np.abs(backward - literal)) > 1


# Special cases in closed form


@functools.cache
def special():
    tape = arrays(random_tape(100, seed=2), "f4")
    on_policy = tape._replace(ratio=jnp.ones(100))
    return tape, on_policy


def run(tape: Tape, lam=LAM, rho_max=1.0, c_max=1.0):
    return by_library(tape, GAMMA, lam, rho_max, c_max)


def test_lambda_one_is_the_return_and_lambda_zero_the_td_error():
    tape, _ = special()
    discount = returns.discounts(GAMMA, tape.terminated)
    td_target = tape.rewards + discount * tape.next_values
    one, zero = run(tape, lam=1.0), run(tape, lam=0.0)
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    close(one["lambda_return"], one["discounted"])
    close(one["gae"], one["discounted"] - tape.values)
    close(zero["lambda_return"], td_target)
    close(zero["gae"], td_target - tape.values)
    close(zero["retrace"], td_target)
    close(zero["n_step 1"], td_target)
    close(one["n_step 200"], one["discounted"])


def test_gae_plus_value_is_the_lambda_return():
    tape, _ = special()
    result = run(tape)
    np.testing.assert_allclose(result["gae"] + tape.values, result["lambda_return"], atol=1e-5)


def test_on_policy_vtrace_and_retrace_are_lambda_returns():
    _, tape = special()
    result = run(tape)
    np.testing.assert_allclose(result["vtrace"], result["lambda_return"], atol=1e-5)
    one = run(tape, lam=1.0)
    np.testing.assert_allclose(one["vtrace_advantage"], one["gae"], atol=1e-5)
    np.testing.assert_allclose(one["retrace"], one["discounted"], atol=1e-5)


def test_unclipped_vtrace_is_importance_sampling():
    tape, _ = special()
    result = run(tape, lam=1.0, rho_max=jnp.inf, c_max=jnp.inf)
    plain = by_definition(Tape(*(np.asarray(x, bool if x.dtype == bool else float) for x in tape)))
    assert not np.allclose(result["vtrace"], plain["vtrace"], atol=1e-2)
    delta = np.asarray(tape.rewards) - tape.values
    delta = delta + returns.discounts(GAMMA, tape.terminated) * tape.next_values
    first = episodes(tape.terminated | tape.truncated)[0]
    weights = np.cumprod(np.asarray(tape.ratio, float)[first])
    powers = GAMMA ** np.arange(first.stop)
    expected = tape.values[0] + np.sum(powers * weights * np.asarray(delta)[first])
    np.testing.assert_allclose(result["vtrace"][0], expected, rtol=1e-4)


def test_a_policy_that_would_never_have_acted_so_learns_nothing():
    tape, _ = special()
    result = run(tape._replace(ratio=jnp.zeros(100)))
    np.testing.assert_array_equal(result["vtrace"], tape.values)
    np.testing.assert_array_equal(result["vtrace_advantage"], jnp.zeros(100))


# rlax, which takes one episode at a time


class Case(NamedTuple):
    r: jax.Array
    discount: jax.Array
    v: jax.Array  # one more than steps
    ratio: jax.Array
    lam: jax.Array


def rlax_case(steps: int = 60) -> Case:
    rng = np.random.default_rng(3)
    return Case(
        jnp.asarray(rng.normal(size=steps)),
        jnp.asarray(GAMMA * (rng.random(steps) > 0.1)),
        jnp.asarray(rng.normal(size=steps + 1)),
        jnp.asarray(np.exp(rng.normal(size=steps))),
        jnp.asarray(LAM),
    )


def by_us(x: Case) -> dict:
    last = jnp.zeros(x.r.shape, bool)
    v, v_next = x.v[:-1], x.v[1:]
    trace = returns.vtrace(x.r, x.discount, v, v_next, last, x.ratio, lam=x.lam, rho_max=2.0)
    full = returns.vtrace(x.r, x.discount, v, v_next, last, x.ratio)
    return {
        "discounted": returns.discounted_return(x.r, x.discount, v_next),
        "lambda": returns.lambda_return(x.r, x.discount, v_next, last, x.lam),
        "gae": returns.gae(x.r, x.discount, v, v_next, last, x.lam),
        "vtrace": trace.values - v,
        "advantage": full.advantages,
        "retrace": returns.retrace(x.r, x.discount, v, v_next * 0.7, last, x.ratio, x.lam),
        **{f"n={n}": returns.n_step(x.r, x.discount, v_next, last, n) for n in (1, 4, 7)},
    }


def by_rlax(x: Case) -> dict:
    v, v_next = x.v[:-1], x.v[1:]
    c = x.lam * jnp.minimum(1.0, x.ratio)
    no_stop = {"stop_target_gradients": False}
    full = rlax.vtrace_td_error_and_advantage(v, v_next, x.r, x.discount, x.ratio, **no_stop)
    n_step = functools.partial(rlax.n_step_bootstrapped_returns, x.r, x.discount, v_next)
    return {
        "discounted": rlax.discounted_returns(x.r, x.discount, v_next),
        "lambda": rlax.lambda_returns(x.r, x.discount, v_next, x.lam),
        "gae": rlax.truncated_generalized_advantage_estimation(x.r, x.discount, x.lam, x.v),
        "vtrace": rlax.vtrace(v, v_next, x.r, x.discount, x.ratio, x.lam, 2.0, **no_stop),
        "advantage": full.pg_advantage,
        "retrace": rlax.general_off_policy_returns_from_q_and_v(
            v[1:], v_next * 0.7, x.r, x.discount, c[1:]
        ),
        **{f"n={n}": n_step(n) for n in (1, 4, 7)},
    }


@jax.jit
def gradients(x: Case, weights):
    """Of a random combination of each target, by each library."""

    def of(targets):
        names, pull = jax.vjp(targets, x)
        each = jnp.eye(len(names))[:, :, None] * weights[None, None]  # [of this target, by each]
        results = jax.vmap(lambda w: pull(dict(zip(names, w, strict=True)))[0])(each)
        return {name: jax.tree.map(lambda g, i=i: g[i], results) for i, name in enumerate(names)}

    return of(by_us), of(by_rlax)


@pytest.mark.slow
def test_values_are_those_of_rlax(x64):
    x = rlax_case()
    assert_same(jax.jit(by_us)(x), jax.jit(by_rlax)(x), 1e-12)


@pytest.mark.slow
def test_gradients_are_those_of_rlax(x64):
    ours, theirs = gradients(rlax_case(), jnp.asarray(np.random.default_rng(4).normal(size=60)))
    for name in ours:
        for field, a, b in zip(Case._fields, ours[name], theirs[name], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10, err_msg=f"{name} by {field}")


@pytest.mark.slow
def test_scalars_may_be_traced_and_differentiated(x64):
    tape = arrays(random_tape(30, seed=5), "f8")

    def total(scalars):
        return sum(jnp.sum(x) for x in by_library(tape, *scalars).values())

    scalars, step = np.array([GAMMA, LAM, RHO_MAX, C_MAX]), 1e-6 * np.eye(4)
    program = jax.jit(lambda x, others: (jax.grad(total)(x), jax.vmap(total)(others)))
    gradient, totals = program(scalars, np.concatenate([scalars + step, scalars - step]))
    np.testing.assert_allclose(gradient, (totals[:4] - totals[4:]) / 2e-6, rtol=1e-6)


def test_many_tapes_by_vmap():
    tapes = [arrays(random_tape(12, seed=seed), "f4") for seed in range(3)]
    batch = jax.tree.map(lambda *x: jnp.stack(x), *tapes)
    together = jax.vmap(by_library, in_axes=(0, None))(batch, GAMMA)
    for row, tape in enumerate(tapes):
        assert_same({name: x[row] for name, x in together.items()}, by_library(tape), 1e-6)


@pytest.mark.parametrize("method", ["sequential", "associative"])
def test_long_tapes_keep_their_precision(method, monkeypatch):
    monkeypatch.setattr("mmrl.scan._auto", lambda: method)
    rng = np.random.default_rng(0)
    rewards, last = rng.normal(size=50_000).astype("f4"), rng.random(50_000) < 0.001
    results = jax.jit(lambda r, t: returns.discounted_return(r, returns.discounts(0.99, t)))(
        rewards, last
    )
    expected, g = np.zeros(50_000), 0.0
    for t in reversed(range(50_000)):
        expected[t] = g = float(rewards[t]) + (0.0 if last[t] else float(np.float32(0.99))) * g
    np.testing.assert_allclose(results, expected, atol=1e-4)


def test_an_empty_tape_has_no_targets():
    none = jnp.zeros(0)
    assert returns.discounted_return(none, none).shape == (0,)
    assert returns.n_step(none, none, none, none.astype(bool), 3).shape == (0,)


# Value rescaling


def magnitudes(dtype):
    size = np.logspace(-8, 7, 500)
    return jnp.asarray(np.concatenate([-size[::-1], [0.0], size]).astype(dtype))


def test_rescale_is_its_definition_and_unrescale_undoes_it(x64):
    x = magnitudes("f8")
    expected = np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * np.asarray(x)
    np.testing.assert_allclose(returns.rescale(x), expected, rtol=1e-6)
    np.testing.assert_allclose(returns.unrescale(returns.rescale(x)), x, rtol=1e-13)
    for eps in (0.0, 1e-3, 1.0):
        back = returns.unrescale(returns.rescale(x, eps), eps)
        np.testing.assert_allclose(back, x, rtol=1e-12)


def test_the_round_trip_keeps_single_precision():
    x = magnitudes("f4")
    back = returns.unrescale(returns.rescale(x))
    np.testing.assert_allclose(back, x, rtol=1e-6)
    y = jnp.linspace(-1, 1, 1001)
    a = np.abs(np.linspace(-1, 1, 1001))
    textbook = ((np.sqrt(1 + 4e-3 * (a + 1 + 1e-3)) - 1) / 2e-3) ** 2 - 1
    np.testing.assert_allclose(returns.unrescale(y), np.sign(y) * textbook, atol=1e-6)
    theirs = rlax.signed_parabolic(rlax.signed_hyperbolic(x))
    assert np.max(np.abs(theirs - x)[x != 0] / np.abs(x)[x != 0]) > 1e-2


@pytest.mark.slow
def test_rescaling_has_a_gradient_at_zero():
    np.testing.assert_allclose(jax.grad(returns.rescale)(0.0), 0.5 + 1e-3)
    np.testing.assert_allclose(jax.grad(returns.unrescale)(0.0), 1 / (0.5 + 1e-3), rtol=1e-6)
    slope = jax.vmap(jax.grad(returns.rescale))(magnitudes("f4"))
    assert np.all(slope > 0), "h rises everywhere"


@pytest.mark.slow
def test_r2d2_target_is_the_n_step_return_between_h_and_its_inverse(x64):
    x = rlax_case()
    ours = returns.rescale(
        returns.n_step(x.r, x.discount, returns.unrescale(x.v[1:]), jnp.zeros(60, bool), 5)
    )
    theirs = rlax.transformed_n_step_returns(
        rlax.SIGNED_HYPERBOLIC_PAIR, x.r, x.discount, x.v[1:], 5
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-10)


# Errors


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        *(
            ("n", lambda x, last, n=n: returns.n_step(x, x, x, last, n))
            for n in (0, -1, 2.5, np.float64(2), True, "2", None)
        ),
        ("n", lambda x, last: jax.jit(lambda n: returns.n_step(x, x, x, last, n))(2)),
        ("gamma", lambda x, last: returns.discounts(1.5, last)),
        ("gamma", lambda x, last: returns.discounts(np.float32(-0.1), last)),
        ("gamma", lambda x, last: returns.discounts(np.nan, last)),
        ("gamma", lambda x, last: returns.discounts("0.9", last)),
        ("lam", lambda x, last: returns.gae(x, x, x, x, last, 2)),
        ("lam", lambda x, last: returns.lambda_return(x, x, x, last, -1.0)),
        ("lam", lambda x, last: returns.retrace(x, x, x, x, last, x, lam=None)),
        ("lam", lambda x, last: returns.vtrace(x, x, x, x, last, x, lam=jnp.array(1.5))),
        ("rho_max", lambda x, last: returns.vtrace(x, x, x, x, last, x, rho_max=-1)),
        ("c_max", lambda x, last: returns.vtrace(x, x, x, x, last, x, c_max=np.nan)),
        ("eps", lambda x, last: returns.rescale(x, -1e-3)),
        ("eps", lambda x, last: returns.unrescale(x, -1e-3)),
        ("discount", lambda x, last: returns.discounted_return(x, x[1:])),
        ("discount", lambda x, last: returns.discounted_return(x, 0.9)),
        ("next_values", lambda x, last: returns.gae(x, x, x, x[:-1], last, 0.9)),
        ("ratio", lambda x, last: returns.vtrace(x, x, x, x, last, x[None])),
        ("last", lambda x, last: returns.lambda_return(x, x, x, x, 0.9)),
        ("last", lambda x, last: returns.lambda_return(x, x, x, last[None], 0.9)),
    ],
)
def test_errors_name_the_argument(argument, call, without_type_checks):
    with pytest.raises(ValueError, match=f"`{argument}` must"):
        call(jnp.ones(4), jnp.zeros(4, bool))


@pytest.mark.slow
def test_traced_scalars_and_whole_numbers_of_numpy_are_accepted(without_type_checks):
    x, last = jnp.ones(4), jnp.zeros(4, bool)
    result = jax.vmap(lambda lam: returns.gae(x, x, x, x, last, lam))(jnp.array([0.5, 2.0]))
    assert np.isfinite(result).all()
    two = returns.n_step(x, x, x, last, 2)
    for n in (np.int64(2), np.uint8(2), jnp.int32(2)):
        np.testing.assert_array_equal(returns.n_step(x, x, x, last, n), two)


# Values behind an end


@pytest.mark.slow
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_read_may_be_anything(poison: float):
    tape = arrays(random_tape(12, terminated=np.arange(12) % 4 == 3, seed=3), np.float32)
    other = tape._replace(next_values=jnp.where(tape.terminated, poison, tape.next_values))
    assert_same(by_library(other), by_library(tape), 0)
    nothing = tape._replace(next_values=jnp.full(12, poison))
    assert_same(by_library(nothing, gamma=0.0), by_library(tape, gamma=0.0), 0)


@pytest.mark.slow
def test_a_value_behind_an_end_has_no_gradient():
    ends = jnp.array([False, True])

    def total(v_next, gamma):
        discount, r, v = returns.discounts(gamma, ends), jnp.array([1.0, 2.0]), jnp.array([0, 0.25])
        targets = [
            returns.discounted_return(r, discount, v_next, ends),
            returns.lambda_return(r, discount, v_next, ends, 1.0),
            returns.gae(r, discount, v, v_next, ends, 1.0) + v,
            returns.n_step(r, discount, v_next, ends, 3),
            double_q_target(r, discount, v_next[:, None], v_next[:, None]),
        ]
        return jnp.sum(jnp.stack(targets)), targets

    (_, targets), gradients = jax.value_and_grad(total, (0, 1), has_aux=True)(
        jnp.array([0.25, jnp.nan]), 0.9
    )
    np.testing.assert_allclose(targets[:4], np.tile([2.8, 2.0], (4, 1)), rtol=1e-6)
    np.testing.assert_allclose(targets[4], [1.225, 2], rtol=1e-6)
    assert gradients[0][1] == 0 and np.isfinite(gradients[1]) and gradients[1] > 0


KINDS = [list, bool, np.int32, np.float16, jnp.bfloat16, np.float64, np.float32]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_all_targets_accept_numbers_of_every_type(kind: Any):
    flags, numbers = [False, True, False, False], [1, 0, 1, 1]
    x: Any = numbers if kind is list else np.asarray(numbers, kind)
    half, one = [0.5] * 4, jnp.ones(4)
    exact = jnp.asarray(numbers, jnp.float32)
    targets: tuple[Any, ...] = (
        lambda r, last: returns.discounted_return(r, half),
        lambda r, last: returns.discounted_return(r, half, r, last),
        lambda r, last: returns.n_step(r, half, r, last, 2),
        lambda r, last: returns.lambda_return(r, half, r, last, np.float64(0.5)),
        lambda r, last: returns.gae(r, half, r, r, last, 0.5),
        lambda r, last: returns.vtrace(r, half, r, r, last, one).values,
        lambda r, last: returns.retrace(r, half, r, r, last, one, 0.5),
    )
    for target in targets:
        result = target(x, flags)
        assert result.dtype == jnp.float32
        np.testing.assert_array_equal(result, target(exact, jnp.array(flags)))
