"""Explorer for loops that the compiler recognizes as scans and for loops that it rejects."""

import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import traitlets
from jax.nn import relu, sigmoid
from jax.numpy import exp, maximum, tanh, where
from traitlets import Enum, Int

from mmrl.course.widgets.base import Explorer, source, style
from mmrl.pdg.passes import Recurrence, Refusal, recognize

LENGTHS = (8, 16)


class Case(NamedTuple):
    """A step of a loop, with an explanation.

    If the loop is a scan, `a` and `b` are the coefficients of its monoid, as Python expressions in
    the inputs.
    """

    title: str
    step: Callable
    a: str = ""
    b: str = ""
    why: str = ""
    """The reason why the loop is not recognized as a scan."""
    reverse: bool = False
    x0: Any = 0.0


def _returns(x, r):
    return r + 0.9 * x


def _advantages(x, delta, last):
    return delta + where(last, 0, 0.9 * 0.95) * x


def _average(x, u):
    return x + 0.2 * (u - x)


def _lru(x, u):
    return 0.9 * exp(0.6j) * x + u


def _maximum(x, u):
    return maximum(x, u)


def _queue(x, u):
    return maximum(x + u, 0)


def _oscillator(x, u):
    now, before = x
    return 1.5 * now - 0.8 * before + u, now


def _gate(x, u):
    z = sigmoid(u)
    return (1 - z) * x + z * tanh(u)


def _tanh(x, u):
    return tanh(0.9 * x + u)


def _relu(x, u):
    return relu(0.9 * x + u)


def _gru(x, u):
    z = sigmoid(u + x)
    return (1 - z) * x + z * tanh(u)


def _square(x, u):
    return u + 0.1 * (x * x)


def _fraction(x, u):
    return u * u / (1 + x)


CASES = {
    "returns": Case("returns", _returns, "0.9", "r", reverse=True),
    "advantages": Case("GAE, resets", _advantages, "where(last, 0, 0.855)", "delta", reverse=True),
    "average": Case("moving average", _average, "0.8", "0.2 * u"),
    "lru": Case("LRU", _lru, "0.9 * exp(0.6j)", "u", x0=0j),
    "maximum": Case("running max", _maximum, "0", "u", x0=-1.0),
    "queue": Case("queue", _queue, "u", "0"),
    "oscillator": Case("two states", _oscillator, "[[1.5, -0.8], [1, 0]]", "[u, 0]", x0=(0.0, 0.0)),
    "gated": Case("gates of u", _gate, "1 - sigmoid(u)", "sigmoid(u) * tanh(u)"),
    "gru": Case(
        "gates of u and x",
        _gru,
        why="The gate reads x, so the factor a is not a number but a function of x.",
    ),
    "tanh": Case(
        "tanh RNN",
        _tanh,
        why="A tanh of a tanh is not a single tanh: the formula grows with every step.",
    ),
    "relu": Case(
        "relu RNN",
        _relu,
        why="The table contains max(x + a, b), which has no gain. With gains a ≥ 0, "
        "max(a·x + b, c) is also closed under composition, but it is not in the table. With gains "
        "of both signs, the number of kinks may double with every step.",
    ),
    "square": Case(
        "square",
        _square,
        why="The square of a square is a fourth power: the degree doubles with every step.",
    ),
    "fraction": Case(
        "fraction",
        _fraction,
        why="Two fractions (a·x + b) / (c·x + d) combine into one, so this could be a scan; "
        "but the table does not contain this form.",
    ),
}


class LiftInspector(Explorer):
    """Inspector of loops x_t = f(x_{t-1}, u_t) that may be scans.

    `recurrence` is one of `CASES`, with `T` steps. `moment` is the number of finished steps of the
    loop, or of finished levels of the tree. For each case, `examples` contains the result of
    `mmrl.pdg.passes.recognize`, and the states of the loop and of the scan in float32 for the
    longest T. Computing them takes a few seconds when the first inspector is created.
    """

    _esm = source("lift_inspector")
    _css = style()
    recurrence = Enum(tuple(CASES), "advantages").tag(sync=True)
    T = Enum(LENGTHS, 8).tag(sync=True)
    moment = Int(3, min=0, max=max(LENGTHS)).tag(sync=True)
    examples = traitlets.Dict().tag(sync=True)

    @traitlets.default("examples")
    def _examples(self) -> dict[str, Any]:
        return examples()


def inputs(case: Case, length: int) -> dict[str, np.ndarray]:
    """Return the inputs of a case, keyed by name.

    The inputs are rounded normal samples, and flags that mark the ends of episodes. The inputs of a
    shorter run are a prefix of those of a longer run (a suffix if the loop runs in reverse), so the
    states agree.
    """
    numbers = np.round(np.random.default_rng(0).normal(size=max(LENGTHS)), 1)
    by_name: dict[str, np.ndarray] = dict.fromkeys(("u", "r", "delta"), numbers.astype("f4"))
    by_name |= {"last": np.isin(np.arange(max(LENGTHS)), (4, 10))}
    part = slice(-length, None) if case.reverse else slice(length)
    return {name: by_name[name][part] for name in _names(case)}


@cache
def examples() -> dict[str, Any]:
    """Return the code, the form and the states of each case as JSON."""
    # Keys are sorted when a notebook is saved, so each entry contains its position.
    return {name: {"place": k, **_example(CASES[name])} for k, name in enumerate(CASES)}


def _example(case: Case) -> dict[str, Any]:
    code = textwrap.dedent(inspect.getsource(case.step)).split("\n", 1)[1]
    fields = {"title": case.title, "code": textwrap.dedent(code).strip(), "reverse": case.reverse}
    fields |= {"names": _names(case), "a": case.a, "b": case.b, "why": case.why}
    first = [x[0] for x in inputs(case, 1).values()]
    try:
        recurrence = recognize(case.step, _start(case), *first)
        fields |= {"form": recurrence.forms[0]}
    except Refusal as refusal:
        recurrence = None
        fields |= {"form": None, "primitive": refusal.primitive, "reason": refusal.reason}
    return fields | _states(case, recurrence)


def _states(case: Case, recurrence: Recurrence | None) -> dict[str, Any]:
    """Return the states of the loop, and of the scan if there is one."""

    def step(x, u):
        after = case.step(x, *u)
        return after, after

    @jax.jit
    def both(arrays: tuple) -> dict[str, Any]:
        states = {"loop": jax.lax.scan(step, _start(case), arrays, reverse=case.reverse)[1]}
        if recurrence is not None:
            way = {"reverse": case.reverse, "method": "hillis_steele"}
            states |= {"tree": recurrence(_start(case), arrays, **way)}
        return states

    arrays = inputs(case, max(LENGTHS))
    run = {way: _numbers(x) for way, x in both(tuple(map(jnp.asarray, arrays.values()))).items()}
    return run | {"inputs": [_numbers(u) for u in arrays.values()]}


def _start(case: Case) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, "c8" if isinstance(x, complex) else "f4"), case.x0)


def _names(case: Case) -> list[str]:
    return list(inspect.signature(case.step).parameters)[1:]


def _numbers(values: Any) -> list[float]:
    """Return the real part of the first array, with the shortest float32 representation."""
    leaf = np.real(np.asarray(jax.tree.leaves(values)[0])).astype(np.float32)
    return [float(str(x)) for x in leaf]
