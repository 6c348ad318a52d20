"""Every shipped program under combinations of passes: order, memory, and what it computes.

A toy game and toy networks, so that many combinations can be tried; the programs are the library's.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import PyTree

from mmrl.course import programs
from mmrl.course.programs import Environment, Memory, Network
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.clean.validate import needs
from mmrl.pdg.passes import fuse, lift_loops, recompute, tile, vectorize
from mmrl.pdg.plan.code import Event, generate, trace
from mmrl.pdg.plan.frees import order_violations, plan_memory
from mmrl.pdg.run import Compiled, compile
from mmrl.pdg.run.naive import check, execute
from mmrl.pdg.schedule import schedule

BATCH, HIDDEN = 3, 2


def walk() -> Environment:
    """A point on a line. Far out the game is over; on the far left it is merely cut."""

    def reset(key: Any) -> tuple:
        x = jax.random.uniform(key, (2,), minval=-0.5, maxval=0.5)
        return x, x

    def step(key: Any, x: Any, action: Any) -> tuple:
        x = 0.9 * x + 0.4 * (action - 0.5) + 0.3 * jax.random.normal(key, (2,))
        return x, x, x[1] - jnp.abs(x[0]), jnp.abs(x[0]) > 0.9, x[1] < -0.9

    return Environment(reset, step)


def init(key: Any) -> PyTree:
    a, b, c = (jax.random.normal(key, (2, 2)) for key in jax.random.split(key, 3))
    return {"A": a, "B": b, "v": c[0], "λ": c[1]}


def look(w: PyTree, obs: Any) -> Any:
    return jnp.tanh(obs @ w["A"]) @ w["B"]


def judge(w: PyTree, obs: Any) -> tuple:
    h = jnp.tanh(obs @ w["A"])
    return h @ w["B"], h @ w["v"]


def recall(w: PyTree, h: Any, obs: Any) -> tuple:
    """A linear recurrent unit of two real eigenvalues."""
    h = jax.nn.sigmoid(w["λ"]) * h + obs @ w["A"]
    return h, jnp.tanh(h) @ w["B"]


# Not Adam, whose first steps forget how large a gradient was.
OPTIMIZER = optax.sgd(0.3, momentum=0.5)
ARGS = (walk(), Network(init, look), OPTIMIZER)
CRITIC = (walk(), Network(init, judge), OPTIMIZER)
MEMORY = (walk(), Memory(init, lambda: jnp.zeros(HIDDEN), recall), OPTIMIZER)
PROGRAMS = {
    "Monte-Carlo": functools.partial(programs.reinforce, *ARGS),
    "2-step": functools.partial(programs.reinforce, *ARGS, n=2),
    "A2C": functools.partial(programs.a2c, *CRITIC),
    "PPO": functools.partial(programs.ppo, *CRITIC),
    "LRU": functools.partial(programs.remember, *MEMORY),
}
# How often each runs its network: while acting, on the last observation of all (A2C, PPO), and in
# every epoch (PPO).
FORWARD = {"2-step": 1, "A2C": 2, "PPO": 3, "LRU": 1}
PASSES = {
    "lift": lambda g: lift_loops(g, "t", when="always"),
    "vectorize": lambda g: vectorize(g, "t"),
    "tile": lambda g: tile(g, "t", 3),
    "fuse": fuse,
}
ALL = tuple(PASSES)
# Of each program, a set of passes and the other passes. Of any three passes every combination
# occurs in the first four programs, and every program is seen with and without each pass.
HALVES = {
    "Monte-Carlo": ("vectorize", "tile"),
    "2-step": ("tile", "fuse"),
    "A2C": ALL,
    "PPO": ("vectorize", "fuse"),
    "LRU": ("vectorize", "tile", "fuse"),
}


def others(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in PASSES if name not in names)


COMBINED = pytest.mark.parametrize(
    ("program", "names"),
    [
        pytest.param(program, names, id=f"{program}, {'+'.join(names) or 'as it is'}")
        for program, half in HALVES.items()
        for names in (half, others(half))
    ],
)


def test_of_any_three_passes_every_combination_occurs():
    rows = [half for name, half in HALVES.items() if name != "LRU"]
    rows += [others(half) for half in rows]
    for three in itertools.combinations(PASSES, 3):
        assert len({tuple(name in row for name in three) for row in rows}) == 8
    assert HALVES.keys() == PROGRAMS.keys()


@functools.cache
def graph(program: str) -> Graph:
    """With the batch moved into the arrays, which comes before all other passes."""
    return vectorize(PROGRAMS[program](), "b")[0]


@functools.cache
def compiled(program: str, names: tuple[str, ...]) -> Compiled:
    return compile(graph(program), {name: PASSES[name] for name in names})


def bounds(program: str, **other: int) -> dict[str, int]:
    """Two iterations, two epochs, and four steps: no multiple of a tile."""
    sizes = {"I": 2, "K": 2, "T": 4, "B": BATCH} | other
    return {name: sizes[name] for name in graph(program).bounds}


# What it computes


def values(made: Graph, sizes: dict[str, int], seed: int) -> tuple:
    """The last parameters and the score of each iteration, by one random legal order."""
    found = execute(made, sizes, seed=seed, jit=True)
    last, scores = (found[tensor].values() for tensor in made.results)
    return *last, np.stack(list(scores))


@functools.cache
def meaning(program: str, seed: int) -> tuple:
    """The values of a program as it is."""
    return values(graph(program), bounds(program), seed)


@pytest.mark.full
@pytest.mark.parametrize("program", ["2-step", "PPO", "LRU"])
def test_every_legal_order_gives_the_same_bits(program: str):
    jax.tree.map(np.testing.assert_array_equal, meaning(program, 1), meaning(program, 0))


@pytest.mark.full
@pytest.mark.parametrize("program", ["2-step", "A2C", "LRU"])
def test_a_batch_that_moves_is_one_environment_after_another(program: str):
    one_by_one = values(PROGRAMS[program](), bounds(program), 0)
    far = jax.tree.map(lambda a, b: np.abs(a - b).max(), one_by_one, meaning(program, 0))
    assert max(jax.tree.leaves(far)) < 1e-6, far


@pytest.mark.full
@COMBINED
def test_it_computes_what_the_program_means(program: str, names: tuple[str, ...]):
    """Half of what passes made in any order of execution, the other half by an executor."""
    made, sizes = compiled(program, names), bounds(program)
    if names != HALVES[program]:
        found = values(made.graph, sizes, 0)
    elif program == "2-step":
        found = made.interpret(sizes).results
    else:
        found = made.xla(sizes)()
    far = jax.tree.map(lambda a, b: np.abs(a - b).max(), tuple(found), meaning(program, 0))
    assert max(jax.tree.leaves(far)) < 1e-6, far


@pytest.mark.full
@pytest.mark.parametrize("program", ["2-step", "A2C", "PPO"])
def test_only_what_is_learned_from_has_a_gradient(program: str):
    """Loss and network, where the policy is learned from; and no result needs the loss itself."""
    made = PROGRAMS[program]()
    back = {op.params["of"] for op in made.ops.values() if op.kind == "vjp"}
    assert back == {"loss", "judged_network" if program == "PPO" else "network"}
    assert "loss" not in made.ops


@pytest.mark.full
@pytest.mark.parametrize(("program", "passes"), FORWARD.items())
def test_residuals_save_one_forward_pass(program: str, passes: int):
    """Every network has one tanh. The same is computed if its gradient computes it again."""
    texts = []
    for first in ({}, {"recompute": recompute}):
        made = compile(PROGRAMS[program](), {**first, "batch": lambda g: vectorize(g, "b")})
        texts.append(made.xla(bounds(program)).lower().as_text())
    assert [text.count("stablehlo.tanh") for text in texts] == [passes, passes + 1]
    far = jax.tree.map(
        lambda a, b: np.abs(a - b).max(), made.xla(bounds(program))(), meaning(program, 0)
    )
    assert max(jax.tree.leaves(far)) < 1e-6, far


# Order and memory


# One of everything, a bound that is a tile, one that is none, and several of each.
SMALL = [(1, 1), (2, 1), (1, 2), (3, 2), (2, 3), (2, 5), (1, 8)]


@pytest.mark.full_except(
    "Monte-Carlo, lift+fuse",
    "2-step, lift+vectorize",
    "LRU, lift",
    "PPO, lift+tile",
    "A2C, as it is",
)
@pytest.mark.slow
@COMBINED
def test_order_and_memory_are_right(program: str, names: tuple[str, ...]):
    made = compiled(program, names)
    assert order_violations(made.plan).is_empty()
    for few, T in SMALL:
        sizes = bounds(program, I=few, K=few, T=T)
        report = made.check(**sizes)
        assert report.ok, f"{sizes}:\n{report}"


# Planted mistakes


def uses(made: Graph, events: list[Event], sizes: dict[str, int]) -> dict[Any, list[int]]:
    """Of each instance of an operation: where in the run it is computed and read."""
    found: dict[Any, list[int]] = {}
    for place, (kind, op, point) in enumerate(events):
        if kind == "run":
            for instance in {(op, point), *(x for _, x in needs(made, str(op), point, sizes))}:
                found.setdefault(instance, []).append(place)
    return found


def missing(events: list[Event], place: int, used: dict) -> list[Event]:
    return events[:place] + events[place + 1 :]


def early(events: list[Event], place: int, used: dict) -> list[Event]:
    """A free before the last use."""
    _, (op, _), point = events[place]
    last = used[op, point][-1]
    return [*events[:last], events[place], *events[last:place], *events[place + 1 :]]


def twice(events: list[Event], place: int, used: dict) -> list[Event]:
    return [*events, events[place]]


def exchanged(events: list[Event], place: int, used: dict) -> list[Event]:
    """A computation and its first reader take each other's place."""
    first = used[events[place][1:]][1]
    swapped = list(events)
    swapped[place], swapped[first] = events[first], events[place]
    return swapped


MUTANTS: dict[str, tuple[str, Callable]] = {
    "a run is missing": ("run", missing),
    "a run comes twice": ("run", twice),
    "two runs are exchanged": ("run", exchanged),
    "a free is missing": ("free", missing),
    "a free is too early": ("free", early),
    "a free comes twice": ("free", twice),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_planted_mistake_is_found_wherever_it_is(program: str, mutant: str):
    """At twenty places from the beginning to the end of a run."""
    kind, plant = MUTANTS[mutant]
    made, sizes = compiled(program, HALVES[program]), bounds(program, T=3)
    events = made.trace(**sizes)
    used = uses(made.graph, events, sizes)
    places = [
        place
        for place, (what, *instance) in enumerate(events)
        if what == kind and not (plant is exchanged and len(used[tuple(instance)]) == 1)
    ]
    assert len(places) > 10
    for place in {places[k] for k in np.linspace(0, len(places) - 1, 20, dtype=int)}:
        report = check(made.graph, plant(events, place, used), **sizes)
        assert not report.ok, f"{mutant}: {events[place]}"


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_dropped_dependence_is_found(program: str):
    """Of every twelfth operation the last one is kept from the scheduler. Some others imply.

    Whatever enumeration finds, the proof for all bounds finds too.
    """
    whole, sizes = graph(program), bounds(program, T=4)
    last = {edge.sink: edge for edge in whole.edges}
    found, tried = 0, list(last.values())[list(PROGRAMS).index(program) :: 12]
    for edge in tried:
        kept = whole.replace(edges=tuple(other for other in whole.edges if other is not edge))
        wrong = plan_memory(schedule(kept))
        if not check(whole, trace(generate(wrong), **sizes), **sizes).ok:
            found += 1
            assert not order_violations(dataclasses.replace(wrong, graph=whole)).is_empty(), str(
                edge
            )
    assert found
