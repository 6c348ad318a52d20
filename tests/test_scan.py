"""Every way to compute the prefixes computes the same prefixes, and their derivatives."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import mmrl.scan
from mmrl.monoid import EWMA, Affine, Decay, LogSumExp, MatrixAffine, Resettable, Sum
from mmrl.scan import METHODS, fold, scan, scan_and_last
from mmrl.schedules import count, schedule

WAYS = METHODS[:-1]
LENGTHS = (0, 1, 2, 3, 5, 16, 37, 100)
CHUNK = 7  # divides none of the lengths but 0
STEPS = 5
MAPS = Resettable(Affine())
MATRICES = Resettable(MatrixAffine(values=3, keys=2))


@pytest.fixture
def without_type_checks(monkeypatch: pytest.MonkeyPatch):
    """Calls as users make them, without the tests' type checker in front of our own errors."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def maps(length: int, seed: int = 0):
    """Affine maps of one number, which do not commute; one in eight of them is a reset."""
    rng = np.random.default_rng(seed)
    gains, sums = rng.uniform(-1, 1, (2, length)).astype("f4")
    return (jnp.asarray(gains), jnp.asarray(sums)), jnp.asarray(rng.random(length) < 1 / 8)


def matrices(length: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    transitions = jnp.asarray(rng.normal(size=(length, 2, 2)).astype("f4") / 2)
    sums = jnp.asarray(rng.normal(size=(length, 3, 2)).astype("f4"))
    return (transitions, sums), jnp.asarray(rng.random(length) < 1 / 8)


def one(xs, t: int):
    return jax.tree.map(lambda x: x[t], xs)


def stack(hs, reverse: bool):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(hs[::-1] if reverse else hs))


def map_loop(xs, init, reverse: bool):
    """The prefixes of `MAPS` in double precision, typed from the definition."""
    (gains, sums), begin = jax.tree.map(np.asarray, xs)
    (gain, total), flag = jax.tree.map(np.asarray, init)
    hs = []
    for t in range(len(begin))[:: -1 if reverse else 1]:
        past, so_far = (1.0, 0.0) if begin[t] else (float(gain), float(total))
        gain, total = float(gains[t]) * past, float(gains[t]) * so_far + float(sums[t])
        flag = bool(flag) or bool(begin[t])
        hs.append(((gain, total), flag))
    return stack(hs, reverse) if hs else xs


def matrix_loop(xs, reverse: bool):
    """The prefixes of `MATRICES`, from the identity."""
    (transitions, sums), begin = jax.tree.map(np.asarray, xs)
    hs, flag = [], False
    m, x = np.eye(2), np.zeros((3, 2))
    for t in range(len(begin))[:: -1 if reverse else 1]:
        if begin[t]:
            m, x, flag = np.eye(2), np.zeros((3, 2)), True
        m, x = m @ transitions[t], x @ transitions[t] + sums[t]
        hs.append(((m, x), flag))
    return stack(hs, reverse)


def assert_close(ours, theirs, tolerance=1e-5):
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert np.shape(x) == np.shape(y)
        np.testing.assert_allclose(
            x, y, rtol=0, atol=tolerance * (1 + np.max(np.abs(y), initial=0))
        )


# Values


# A tape is turned around before and after, whatever its length. A hundred steps, which the table
# and `fold` are asked for below, would be one level more, and take longest to compile.
@pytest.mark.parametrize(
    ("length", "reverse"), [*((n, False) for n in LENGTHS[:-1]), (0, True), (3, True), (37, True)]
)
def test_every_method_gives_the_prefixes_of_a_plain_loop(length, reverse):
    xs, init = maps(length), one(maps(1, seed=1), 0)

    @jax.jit
    def run(xs, init):
        return {
            way: scan_and_last(MAPS, xs, init, reverse=reverse, method=way, chunk=CHUNK)
            for way in METHODS
        }

    expected = map_loop(xs, init, reverse)
    end = one(expected, 0 if reverse else -1) if length else init
    for way, (hs, last) in run(xs, init).items():
        assert_close(hs, expected), way
        assert_close(last, end), way


@pytest.mark.slow
def test_matrices_do_not_commute_either():
    xs = matrices(37)

    @jax.jit
    def run(xs):
        return {way: scan(MATRICES, xs, reverse=True, method=way, chunk=CHUNK) for way in WAYS}

    expected = matrix_loop(xs, reverse=True)
    for way, hs in run(xs).items():
        assert_close(hs, expected), way


@pytest.mark.parametrize("auto", ["sequential", "associative"])
@pytest.mark.parametrize("length", LENGTHS)
def test_fold_is_the_last_prefix(length, auto, monkeypatch):
    monkeypatch.setattr(mmrl.scan, "_auto", lambda: auto)
    xs, init = maps(length), one(maps(1, seed=1), 0)
    run = jax.jit(lambda xs, init: (fold(MAPS, xs), fold(MAPS, xs, init)))
    for result, start in zip(run(xs, init), (MAPS.identity(), init), strict=True):
        assert_close(result, one(map_loop(xs, start, reverse=False), -1) if length else start)


@pytest.mark.parametrize(
    ("device", "method"), [("cpu", "sequential"), ("gpu", "associative"), ("tpu", "associative")]
)
def test_what_is_best_depends_on_the_device(device, method, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    assert mmrl.scan._auto() == method


@pytest.mark.parametrize("chunk", [1, 2, 16, 37, 1000])
def test_the_chunk_length_does_not_matter(chunk):
    xs = maps(37)
    run = jax.jit(lambda xs: scan(MAPS, xs, method="chunked", chunk=chunk))
    assert_close(run(xs), map_loop(xs, MAPS.identity(), reverse=False))


@pytest.mark.slow
def test_complex_elements_agree_with_a_loop_in_double_precision():
    rng = np.random.default_rng(0)
    turn = 0.99 * np.exp(1j * rng.uniform(0, 2 * np.pi, 4))
    x = rng.normal(size=(300, 4)) + 1j * rng.normal(size=(300, 4))
    gains = np.broadcast_to(turn, x.shape).astype("c8")
    xs = jnp.asarray(gains), jnp.asarray(x.astype("c8"))
    monoid = Affine((4,), jnp.complex64)
    results = jax.jit(lambda xs: {way: scan(monoid, xs, method=way)[1] for way in WAYS})(xs)
    h, hs = np.zeros(4, complex), []
    for t in range(300):
        h = gains[t].astype(complex) * h + x[t]
        hs.append(h)
    for way in WAYS:
        assert_close(results[way], np.array(hs))


def test_lists_of_numbers_are_arrays(without_type_checks):
    expected = scan(Affine(), (jnp.array([0.5, 0.5]), jnp.array([0.0, 1.0])))
    for xs in (([0.5, 0.5], [0, 1]), ((0.5, 0.5), (False, True))):
        jax.tree.map(np.testing.assert_array_equal, scan(Affine(), xs), expected)
        last = jax.tree.map(lambda h: h[-1], expected)
        jax.tree.map(np.testing.assert_array_equal, fold(Affine(), xs), last)
    xs = ([0.5, 0.5], [0, 1]), [False, True]
    assert scan(Resettable(Affine()), xs)[1].tolist() == [False, True]
    with pytest.raises(ValueError, match=r"`xs` must be a pair \(\*, \*\).*`Affine`"):
        scan(Affine(), np.ones(4))


@pytest.mark.parametrize("method", METHODS)
def test_products_of_another_type_are_refused_not_rounded(method, without_type_checks):
    xs = jnp.full(3, 0.9), jnp.array([0, 0, 1])
    with pytest.raises(ValueError, match=r"float32, float32; got float32, int32.*astype"):
        scan(Affine(), xs, reverse=True, method=method)


def test_integers_are_summed_exactly():
    xs = {"steps": jnp.arange(37), "score": jnp.ones((37, 2), jnp.int32)}
    monoid = Sum(one(xs, 0))
    results = jax.jit(lambda xs: {way: scan(monoid, xs, method=way) for way in WAYS})(xs)
    for hs in results.values():
        assert hs["steps"].dtype == jnp.int32
        np.testing.assert_array_equal(hs["steps"], np.cumsum(np.arange(37)))
        np.testing.assert_array_equal(hs["score"][:, 1], np.arange(1, 38))


def test_any_bracketing_gives_the_same_product():
    xs, rng = maps(37), np.random.default_rng(2)

    def bracket(xs, first: int, end: int):
        if end - first == 1:
            return one(xs, first)
        middle = int(rng.integers(first + 1, end))
        return MAPS(bracket(xs, first, middle), bracket(xs, middle, end))

    products = jax.jit(lambda xs: [bracket(xs, 0, 37) for _ in range(5)])(xs)
    last = one(map_loop(xs, MAPS.identity(), reverse=False), -1)
    for product in products:
        assert_close(product, last)


# Derivatives


def gradient_case(name: str):
    rng = np.random.default_rng(3)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def uniform(*shape):
        return jnp.asarray(rng.uniform(0.3, 0.9, shape), jnp.float32)

    flags = jnp.asarray(np.arange(STEPS) == 2)
    angles = uniform(STEPS, 2)
    return {
        "affine": (Affine(), (uniform(STEPS, 2), normal(STEPS, 2))),
        "complex": (
            Affine((2,), jnp.complex64),
            (uniform(STEPS, 2) * jnp.exp(1j * angles), normal(STEPS, 2) + 1j * normal(STEPS, 2)),
        ),
        "scalar": (Resettable(Affine()), ((uniform(STEPS), normal(STEPS)), flags)),
        "decay": (
            Resettable(Decay(uniform(2), uniform(3))),
            ((normal(STEPS, 2, 3) + 1j * normal(STEPS, 2, 3), jnp.ones(STEPS)), flags),
        ),
        "ewma": (EWMA((2,)), (uniform(STEPS, 2), uniform(STEPS, 2), normal(STEPS, 2))),
        "logsumexp": (Resettable(LogSumExp()), ((-uniform(STEPS, 2), normal(STEPS, 2)), flags)),
        "matrices": (MATRICES, matrices(STEPS)),
    }[name]


def score(monoid, xs, init, prefixes):
    """A random real number from all prefixes; also differentiates the monoid's own parameters."""
    hs = prefixes(monoid, xs, init)
    rng = np.random.default_rng(4)
    total = 0.0
    for leaf in jax.tree.leaves(eqx.filter(hs, eqx.is_inexact_array)):
        weights = rng.normal(size=(2, *leaf.shape)).astype("f4")
        total += jnp.sum(weights[0] * leaf.real + weights[1] * leaf.imag)
    return total


def by_loop(monoid, xs, init, reverse: bool = False):
    h, hs = init, []
    for t in range(STEPS)[:: -1 if reverse else 1]:
        h = monoid(h, one(xs, t))
        hs.append(h)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(hs[::-1] if reverse else hs))


def gradients(arguments, prefixes):
    return eqx.filter_grad(lambda a: score(*a, prefixes))(arguments)


@pytest.mark.slow
def test_gradients_agree_between_methods():
    monoid, xs = gradient_case("scalar")

    @jax.jit
    def run(arguments):
        ways = {
            way: gradients(arguments, functools.partial(scan, reverse=True, method=way, chunk=2))
            for way in WAYS
        }
        return ways, gradients(arguments, functools.partial(by_loop, reverse=True))

    ways, expected = run((monoid, xs, one(xs, 2)))
    for way in WAYS:
        assert_close(ways[way], expected), way


# The rule knows no monoid and no type, so a few are asked in both directions.
@pytest.mark.parametrize(
    ("name", "reverse"),
    [
        *(("affine", False), ("affine", True), ("matrices", False), ("matrices", True)),
        *(("complex", False), ("decay", True), ("ewma", False), ("logsumexp", True)),
    ],
)
def test_gradients_of_the_loop_are_those_of_plain_code(name, reverse):
    """The loop has a rule of its own, for elements, start and the monoid's parameters."""
    monoid, xs = gradient_case(name)

    @eqx.filter_jit
    def run(arguments):
        ways = functools.partial(scan, method="sequential"), by_loop
        return [gradients(arguments, functools.partial(way, reverse=reverse)) for way in ways]

    ours, expected = run((monoid, xs, one(xs, 2)))
    assert_close(ours, expected)


@pytest.mark.slow
def test_forward_mode_and_second_derivatives_of_the_loop():
    monoid, xs = gradient_case("decay")
    floats, rest = eqx.partition((monoid, xs, one(xs, 2)), eqx.is_inexact_array)
    rng = np.random.default_rng(5)
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), floats)

    @jax.jit
    def derivatives(floats):
        def of(prefixes):
            def f(x):
                return score(*eqx.combine(x, rest), prefixes)

            slope = jax.jvp(f, (floats,), (direction,))[1]
            return slope, jax.jvp(jax.grad(f), (floats,), (direction,))[1]

        return of(functools.partial(scan, method="sequential")), of(by_loop)

    ours, expected = derivatives(floats)
    assert_close(ours, expected, tolerance=1e-4)


@pytest.mark.slow
def test_what_is_not_differentiated_costs_nothing_and_breaks_nothing():
    gains, sums = jnp.full(STEPS, 0.9), jnp.arange(1.0 * STEPS)

    def total(x):
        return jnp.sum(scan(Affine(), (gains, x), (jnp.ones(()), jnp.zeros(())))[1])

    np.testing.assert_allclose(jax.grad(total)(sums)[-1], 1.0)

    def of_start(h):
        return scan(Affine(), (gains, sums), (jnp.ones(()), h))[1][-1]

    np.testing.assert_allclose(jax.grad(of_start)(jnp.zeros(())), 0.9**STEPS, rtol=1e-5)


def test_scan_under_vmap_is_a_scan_per_row():
    rows = [maps(STEPS, seed) for seed in range(3)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)

    @jax.jit
    def run(batch):
        return {way: jax.vmap(lambda x, w=way: scan(MAPS, x, method=w))(batch) for way in WAYS}

    for way, hs in run(batch).items():
        for row, x in enumerate(rows):
            assert_close(one(hs, row), map_loop(x, MAPS.identity(), False)), way


# The schedule


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_schedule_turns_letters_into_prefixes(way, length):
    """Strings under concatenation: the free monoid, where nothing commutes and nothing cancels."""
    letters = [chr(0x4E00 + t) for t in range(length)]
    tape = list(letters)
    for left, right in schedule(length, way, CHUNK):
        assert len(set(right.tolist())) == right.size, "one combine per place and level"
        new = [tape[i] + tape[j] for i, j in zip(left, right, strict=True)]
        for j, product in zip(right, new, strict=True):
            tape[j] = product
    assert tape == ["".join(letters[: t + 1]) for t in range(length)]


@pytest.mark.parametrize("length", [1, 2, 16, 64, 1024])
def test_work_and_depth_at_powers_of_two(length):
    doublings = length.bit_length() - 1
    assert count(length, "sequential") == (length - 1, length - 1)
    assert count(length, "hillis_steele") == (length * doublings - length + 1, doublings)
    for way in ("blelloch", "associative"):
        work, depth = count(length, way)
        assert work == 2 * length - 2 - doublings
        assert depth == max(2 * doublings - 1, 0)


@pytest.mark.parametrize("length", [3, 37, 100, 1000])
def test_work_is_linear_but_for_hillis_and_steele(length):
    for way in ("sequential", "blelloch", "associative", "chunked"):
        assert count(length, way, chunk=16)[0] < 2 * length
    assert count(length, "blelloch")[1] <= 2 * np.ceil(np.log2(length))
    assert count(length, "chunked", chunk=16)[1] <= 16 + length / 16 + 1
    assert count(length, "hillis_steele")[1] == np.ceil(np.log2(length))


# Errors


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("method", lambda xs: scan(Affine(), xs, method="parallel")),
        ("method", lambda xs: schedule(4, "auto")),
        ("chunk", lambda xs: scan(Affine(), xs, method="chunked", chunk=0)),
        ("chunk", lambda xs: schedule(4, "chunked", chunk=0)),
        ("xs", lambda xs: scan(Affine(), (xs[0], xs[1][1:]))),
        ("xs", lambda xs: scan(Affine(), (xs[0], jnp.zeros(())))),
        ("xs", lambda xs: scan(Sum({}), {})),
        ("xs", lambda xs: scan(Affine(), xs[0])),
        ("xs", lambda xs: fold(Affine(), (xs[0], xs[1][1:]))),
        ("init", lambda xs: scan(Affine(), xs, xs)),
        ("init", lambda xs: scan(Affine(), xs, (jnp.ones(()), 1j * jnp.ones(())))),
        ("init", lambda xs: scan(Affine(), xs, {"gain": jnp.ones(()), "sum": jnp.ones(())})),
        ("identity", lambda xs: scan(Affine((3,)), xs)),
        *(("chunk", lambda xs, n=n: scan(Affine(), xs, chunk=n)) for n in (2.5, True, "2", None)),
        ("xs", lambda xs: scan(Affine(), xs[0])),
        ("xs", lambda xs: scan(Affine(), list(xs))),
        ("xs", lambda xs: scan(Affine(), ([0.9, 0.9], [1.0]))),
        ("xs", lambda xs: scan(Affine(), None)),
        ("xs", lambda xs: scan(Affine(), (xs[0] > 0, xs[1] > 0))),
        ("xs", lambda xs: fold(Affine(), (xs[0], xs[1] > 0))),
        ("xs", lambda xs: fold(Affine(), (xs[0], 1.0))),
    ],
)
def test_errors_name_the_argument(argument, call, without_type_checks):
    with pytest.raises(ValueError, match=f"`[^`]*{argument}[^`]*`"):
        call((jnp.ones(4), jnp.ones(4)))
