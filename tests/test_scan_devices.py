"""A tape whose stretches lie on several devices is scanned as if one device had all of it."""

import fcntl
import functools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from mmrl import memory
from mmrl.monoid import Affine
from mmrl.scan import METHODS, scan, scan_and_last
from tests.helpers.devices import call, collectives
from tests.helpers.memories import is_monoid, sizes
from tests.helpers.monoids import PLAIN, Draw, make, tape

DEVICES, T = 4, 16
EDGE = T // 2  # the first step of a stretch
NAMES = tuple(f"resettable {name}" for name in PLAIN)
ON_LANES = ("resettable complex", "resettable decay", "resettable max")
MEMORIES = (*filter(is_monoid, memory.NAMES), "none", "gtrxl", "ffm + lru")


# Three ways to run f(xs, init) = (split, whole): `split` has a row for each step, `whole` has not.


def over_devices(f: Callable) -> Callable:
    mesh, specs = Mesh(jax.devices()[:DEVICES], ("time",)), (P("time"), P())
    here = functools.partial(f, axis="time")
    return jax.shard_map(here, mesh=mesh, in_specs=specs, out_specs=specs, check_vma=False)


def over_lanes(f: Callable) -> Callable:
    def run(xs, init):
        xs = jax.tree.map(lambda x: x.reshape(DEVICES, -1, *x.shape[1:]), xs)
        here = functools.partial(f, axis="time")
        split, whole = jax.vmap(here, (0, None), axis_name="time")(xs, init)
        split = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), split)
        return split, jax.tree.map(lambda x: x[0], whole)

    return run


def alone(f: Callable) -> Callable:
    return functools.partial(f, axis=None)


def error(result: Any, want: Any) -> float:
    """The largest difference of two trees, relative to 1 or to what is wanted, if that is more."""
    worst = 0.0
    for x, y in zip(jax.tree.leaves(result), jax.tree.leaves(want), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape and x.dtype == y.dtype
        with np.errstate(invalid="ignore"):
            apart = np.where(x == y, 0, np.abs(1.0 * x - y) / np.maximum(1, np.abs(y)))
        worst = max(worst, float(np.max(apart, initial=0)))
    return worst


# Every monoid


def is_float(x: Any) -> bool:
    return x.dtype.kind in "fc"


def at(steps: Any, x: Any) -> Any:
    """Which of the numbers of x [time, ...] belong to these steps."""
    return np.reshape(steps, (-1, *[1] * (x.ndim - 1)))


def spoil(xs: Any, steps: Any, value: float) -> Any:
    """`xs`, whose floats have a value at these steps."""
    return jax.tree.map(
        lambda x: np.where(at(steps, x), np.asarray(value, x.dtype), x) if is_float(x) else x, xs
    )


def elements(name: str, seed: int) -> Any:
    """Random elements, without the flags."""
    xs = jax.tree.map(np.asarray, tape(make(name, Draw(seed))[1][0], T))
    # At β = 0 there is no derivative: on one device, too, every method has another.
    return (np.maximum(xs[0], 0.1), *xs[1:]) if name == "resettable ewma" else xs


def weights(name: str, xs: Any, steps: Any) -> Any:
    """A random number for each float of the prefixes and of the last; 0 but at these steps."""
    rng = np.random.default_rng(2)

    def draw(x):
        real, imaginary = rng.normal(size=(2, *x.shape))
        w = real + 1j * imaginary if x.dtype.kind == "c" else real
        return np.where(at(steps, x), w, 0).astype(x.dtype) if is_float(x) else None

    numbers = jax.tree.map(draw, xs)
    if name == "resettable window":  # nor has a count at its limit
        numbers = numbers[0], 0 * numbers[1]
    if (
        name == "resettable long_moments"
    ):  # a number is the sum of two, and where it is split is rounding
        numbers = (*numbers[:3], *numbers[:3])
    numbers = numbers, None  # nor a flag
    return numbers, jax.tree.map(lambda x: x[-1], numbers)


def cases(name: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """(label, (xs, begin), init, weights) of tapes, in the order in which they are read."""
    xs, time = elements(name, 0), np.arange(T)
    init = jax.tree.map(lambda x: x[0], elements(name, 1)), np.array(False)
    yield "whole", (xs, np.isin(time, (6, 13))), init, weights(name, xs, time >= 0)
    begin, later = time == EDGE, weights(name, xs, time >= EDGE)
    yield "clean", (xs, begin), init, later
    yield "NaN at the edge", (spoil(xs, time == EDGE - 1, np.nan), begin), init, later
    yield "∞ at the edge", (spoil(xs, time == EDGE - 1, np.inf), begin), init, later
    yield "NaN on the first device", (spoil(xs, time == 1, np.nan), begin), init, later
    bad = jax.tree.map(lambda x: np.full_like(x, np.nan) if is_float(x) else x, init)
    yield "NaN before the tape", (xs, begin), bad, later


def pullback(where: Callable, reverse: bool, monoid: Any, xs: Any, init: Any, weights: Any) -> Any:
    """((prefixes, last), the weights' gradient in monoid, xs and init), all in reading order."""
    moving, static = eqx.partition((monoid, xs, init), eqx.is_inexact_array)

    def turn(tree):
        return jax.tree.map(lambda x: x[::-1], tree) if reverse else tree

    def f(moving):
        monoid, xs, init = eqx.combine(moving, static)
        run = where(functools.partial(scan_and_last, monoid, reverse=reverse))
        hs, last = run(turn(xs), init)
        result = turn(hs), last
        return eqx.filter(result, eqx.is_inexact_array), result

    _, pull, results = jax.vjp(f, moving, has_aux=True)
    return results, pull(weights)[0]


@eqx.filter_jit
def answers(where: Callable, reverse: bool, monoid: Any, xs: Any, init: Any, weights: Any) -> Any:
    """`pullback` of many tapes."""
    pull = functools.partial(pullback, where, reverse, monoid)
    return jax.vmap(pull)(xs, init, weights)


def ask(name: str, reverse: bool) -> dict[str, float]:
    """How far devices are from one, and whether (1 or 0) a poisoned past changes what follows."""
    monoid = make(name, Draw(0))[0]
    labels, *columns = zip(*cases(name), strict=True)
    many = [jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *column) for column in columns]
    first = jax.tree.map(lambda x: x[:1], many)
    split = jax.device_get(answers(over_devices, reverse, monoid, *many))
    rows = [jax.tree.map(lambda x, i=i: x[i], split) for i in range(len(labels))]

    def apart(where):
        one = jax.tree.map(lambda x: x[0], answers(where, reverse, monoid, *first))
        return [error(*pair) for pair in zip(rows[0], one, strict=True)]

    def later(row):
        (hs, last), (_, of_xs, _) = row
        return last, jax.tree.map(lambda x: x[EDGE:], (hs, of_xs))

    result = dict(zip(("values", "gradients"), apart(alone), strict=True))
    result |= {"lanes": max(apart(over_lanes))} if name in ON_LANES and not reverse else {}
    clean = later(rows[1])
    leaks = [0.0 if eqx.tree_equal(later(row), clean) else 1.0 for row in rows[2:]]
    return result | dict(zip(labels[2:], leaks, strict=True))


# Memories


def build(name: str) -> memory.SequenceModel:
    key = jax.random.key(0)
    if " + " in name:
        parts = [memory.make(part, 4, 4, key=key) for part in name.split(" + ")]
        return memory.Residual(3, 2, parts, key=key)
    return memory.make(name, 3, 2, key=key, **dict.fromkeys(sizes(name), 4))


def read(model: memory.SequenceModel, xs: Any, state: Any, *, axis: str | None) -> Any:
    """((outputs and those of looking ahead), the states after both)."""
    end, ys = model(state, *xs[:2], axis=axis)
    before, *others = model.lookahead(state, *xs, axis=axis)
    return (ys, *others), (end, before)


def ask_memory(name: str) -> float:
    """How far a memory whose tape lies on devices is from one on one device."""
    model, rng = build(name), np.random.default_rng(0)
    past, xs, next_xs = jnp.asarray(rng.normal(size=(3, T, 3)), jnp.float32)
    state = model(model.init(), past, jnp.zeros(T, bool))[0]
    xs = xs, jnp.isin(jnp.arange(T), jnp.array([6, 13])), next_xs

    @eqx.filter_jit
    def run(model, xs, state):
        f = functools.partial(read, model)
        return over_devices(f)(xs, state), alone(f)(xs, state)

    return error(*jax.device_get(run(model, xs, state)))


def ask_training(name: str) -> float:
    """How far the gradients of a memory's parameters are from those on one device."""
    model, rng = build(name), np.random.default_rng(1)
    xs, next_xs, weights = jnp.asarray(rng.normal(size=(3, T, 3)), jnp.float32)
    xs = xs, jnp.isin(jnp.arange(T), jnp.array([6, 13])), next_xs

    @eqx.filter_jit
    def run(model):
        def loss(model, where):
            outputs, _ = where(functools.partial(read, model))(xs, model.init())
            return sum(jnp.vdot(weights[:, :2], ys) for ys in outputs)

        return [eqx.filter_grad(loss)(model, where) for where in (over_devices, alone)]

    return error(*jax.device_get(run(model)))


# Traffic


def ask_traffic(name: str, length: int) -> dict[str, Any]:
    """Collectives and bytes of a scan and of its gradient; leaves and bytes of one element."""
    monoid, xs = make(name, Draw(0))
    xs = tape(xs, length)
    init = monoid.identity()
    moving, static = eqx.partition(xs, eqx.is_inexact_array)

    def forward(xs):
        return over_devices(functools.partial(scan_and_last, monoid))(xs, init)

    def loss(moving):
        result = eqx.filter(forward(eqx.combine(moving, static)), eqx.is_inexact_array)
        return sum(jnp.sum(jnp.abs(x)) for x in jax.tree.leaves(result))

    leaves = jax.tree.leaves(jax.tree.map(lambda x: x[0], xs))
    return {
        "forward": collectives(forward, xs),
        "gradient": collectives(jax.grad(loss), moving),
        "element": (len(leaves), sum(x.nbytes for x in leaves)),
    }


def ask_bytes() -> list[int]:
    """What linear attention's prefixes take on one device and, of four, on each."""
    model = memory.make("linear_attention", 3, 2, key_size=16, value_size=16, key=jax.random.key(0))
    xs = jnp.zeros((1024, 3)), jnp.zeros(1024, bool), jnp.zeros((1024, 3))

    def run(where):
        f = where(functools.partial(read, model))
        analysis = jax.jit(lambda xs: f(xs, model.init())).lower(xs).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    return [run(alone), run(over_devices)]


# What four devices find, in one process


TRAFFIC = ("resettable complex", "resettable sum")


def on_devices() -> dict[str, Any]:
    return {
        **{f"{name}, {reverse}": ask(name, reverse) for name in NAMES for reverse in (False, True)},
        **{name: ask_memory(name) for name in MEMORIES},
        "training": ask_training("ffm + lru"),
        **{f"{name}, {n}": ask_traffic(name, n) for name in TRAFFIC for n in (16, 256)},
        "bytes": ask_bytes(),
    }


@pytest.fixture(scope="module")
def device_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answers, asked for once: workers that share these tests share them too."""
    folder = tmp_path_factory.getbasetemp()
    answers = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "scans.json"
    with open(answers.with_suffix(".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not answers.exists():
            answers.write_text(json.dumps(call(on_devices, devices=DEVICES)))
    return json.loads(answers.read_text())


@pytest.mark.full
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_tape_on_four_devices_is_scanned_as_on_one(name, reverse, device_results):
    """Values, gradients, and a past that is no number: nothing of it crosses a reset."""
    answers = device_results[f"{name}, {reverse}"]
    assert max(answers.values()) <= 1e-5, answers


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", ON_LANES)
def test_lanes_of_vmap_give_the_numbers_of_devices(name, device_results):
    assert device_results[f"{name}, False"]["lanes"] <= 1e-6


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_reads_a_tape_on_four_devices_as_on_one(name, device_results):
    assert device_results[name] <= 1e-5


@pytest.mark.full
@pytest.mark.slow
def test_a_memory_learns_from_a_tape_on_four_devices_as_on_one(device_results):
    assert device_results["training"] <= 1e-5


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", TRAFFIC)
def test_devices_exchange_one_element_each_however_long_the_tape(name, device_results):
    short, long = (device_results[f"{name}, {n}"] for n in (16, 256))
    assert short == long
    kinds, size = long["forward"]
    leaves, bytes_of_one = long["element"]
    assert kinds.keys() == {"all-gather"} and kinds["all-gather"] <= leaves
    assert size == DEVICES * bytes_of_one


@pytest.mark.full
@pytest.mark.slow
def test_a_device_keeps_a_quarter_of_the_prefixes(device_results):
    one, each = device_results["bytes"]
    assert one >= 4 * 1024 * 16 * 16  # every prefix, of 16 by 16 numbers
    assert 0.2 * one <= each <= 0.3 * one


# What lanes find, in this process


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_every_method_scans_the_stretches(steps, reverse):
    rng = np.random.default_rng(0)
    xs = tuple(jnp.asarray(rng.uniform(-1, 1, (2, DEVICES * steps)), jnp.float32))
    init = jnp.float32(0.5), jnp.float32(2)

    @jax.jit
    def run(xs):
        ways = {
            way: functools.partial(scan_and_last, Affine(), reverse=reverse, method=way, chunk=2)
            for way in METHODS
        }
        return alone(ways["auto"])(xs, init), {w: over_lanes(f)(xs, init) for w, f in ways.items()}

    want, ways = run(xs)
    for way, result in ways.items():
        assert error(result, want) <= 1e-6, way


@pytest.mark.slow
def test_a_scan_over_lanes_without_a_start_begins_at_the_identity():
    xs = jnp.full((4, 3), 0.9), jnp.ones((4, 3))
    run = jax.vmap(lambda xs: scan(Affine(), xs, axis="time"), axis_name="time")
    hs = jax.tree.map(lambda x: x.ravel(), run(xs))
    assert error(hs, scan(Affine(), jax.tree.map(jnp.ravel, xs))) <= 1e-6


@pytest.fixture
def without_type_checks(monkeypatch: pytest.MonkeyPatch):
    """Calls as users make them, without the tests' type checker in front of our own errors."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def test_an_axis_that_is_not_mapped_is_refused(without_type_checks):
    xs = jnp.ones(4), jnp.ones(4)
    with pytest.raises(ValueError, match=r"`axis` must be the name of a mapped axis.*got 'time'"):
        scan(Affine(), xs, axis="time")
    with pytest.raises(ValueError, match=r"`axis` .*got 'time'.*`jax.shard_map`"):
        jax.vmap(lambda x: scan(Affine(), (x, x), axis="time"), axis_name="t")(jnp.ones((2, 3)))


@pytest.mark.parametrize("name", sorted({*memory.NAMES} - {*MEMORIES}))
def test_a_memory_that_is_no_monoid_refuses_to_be_split(name, without_type_checks):
    model, xs, begin = build(name), jnp.zeros((4, 3)), jnp.zeros(4, bool)
    expected = r"`axis` must be None for \w+.*got 'time'.*`Memory`"
    with pytest.raises(ValueError, match=expected):
        model(model.init(), xs, begin, axis="time")
    with pytest.raises(ValueError, match=expected):
        model.lookahead(model.init(), xs, begin, xs, axis="time")
