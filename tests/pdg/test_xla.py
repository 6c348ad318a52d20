"""One XLA program per schedule: the numbers of the naive order, in rings as small as claimed."""

import dataclasses
import math
import re
import sys
from collections import Counter
from typing import Any

import islpy as isl
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mmrl.course import programs
from mmrl.course.ch17_compiling.rivals import equations
from mmrl.course.programs import Environment, Network
from mmrl.pdg.build.expr import min_
from mmrl.pdg.build.graph import Graph, Op
from mmrl.pdg.build.program import Program
from mmrl.pdg.passes.tile import tile, vectorize
from mmrl.pdg.plan import layout
from mmrl.pdg.plan.account import ReadTable
from mmrl.pdg.run import compile
from mmrl.pdg.run.interpreter import Interpreter
from mmrl.pdg.run.naive import execute
from mmrl.pdg.run.rolling import regroup
from mmrl.pdg.run.xla import XlaProgram, xla
from tests.helpers.pdg_graphs import PROGRAMS, compiled, reinforce
from tests.pdg import layout_oracle as oracle


def naive(graph: Graph, bounds: dict[str, int]) -> list[Any]:
    values = execute(graph, bounds, jit=True)
    return [jnp.stack(list(values[tensor].values())).squeeze() for tensor in graph.results]


SOME = ["Monte-Carlo", "3-step", "3-step, tiles of 4", "PPO", "PPO, returns by slices"]


@pytest.mark.parametrize("name", SOME)
def test_it_computes_what_the_graph_means(name: str):
    graph = compiled(name).graph
    bounds = {bound: 9 if bound == "T" else 3 for bound in graph.bounds}
    np.testing.assert_allclose(xla(compiled(name), bounds)(), naive(graph, bounds), rtol=1e-6)


@pytest.mark.parametrize("T", [1, 2])
def test_it_is_right_where_episodes_are_shorter_than_windows(T: int):
    made, bounds = compiled("3-step"), {"I": 1, "T": T}
    np.testing.assert_allclose(xla(made, bounds)(), naive(made.graph, bounds), rtol=1e-6)


@pytest.mark.parametrize("name", ["Monte-Carlo, tiles of 4", "3-step, tiles of 4"])
def test_it_is_right_where_a_case_never_happens(name: str):
    made, bounds = compiled(name), {"I": 2, "T": 3}
    np.testing.assert_allclose(xla(made, bounds)(), naive(made.graph, bounds), rtol=1e-6)


@pytest.mark.parametrize("T", [2, 9])
@pytest.mark.parametrize("name", PROGRAMS)
def test_integer_sets_find_the_slots_that_following_a_run_finds(name: str, T: int):
    made = compiled(name)
    bounds = {bound: T if bound == "T" else 3 for bound in made.graph.bounds}
    accesses = ReadTable(made.graph, bounds)
    found = layout.layout(accesses, made.schedule)
    lives = oracle.lifetimes(made.trace(bounds), found.places, accesses)
    assert lives.keys() == {place.root for place in found.places.values()}
    for root, each in lives.items():
        ring, least = found.rings[root], oracle.slots(each, accesses.extents[root[0]])
        kept = {p: life for p, life in each.items() if all(p[k] < end for k, end in ring.ends)}
        assert oracle.fits(kept, ring.slots), root
        # Where slices begin at multiples of 4, rings are wider, so that none of them wraps.
        wide = tuple(-(-n // 4) * 4 if n > 4 and "tiles" in name else n for n in least)
        assert ring.slots in (least, wide), root


@pytest.mark.slow
def test_a_run_of_any_length_is_laid_out_without_running_it():
    """The parameters of two iterations ago count, and every iteration has a result."""
    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    w, x = p.tensor(i, name="w"), p.tensor(i, t, name="x")
    w[0], w[1] = 1.0, 0.5
    x[i, 0] = w + 1.0
    step = 0.9 * x + w
    x[i, t + 1] = step
    last = step[i, T - 1] / 20.0
    w[i + 2] = last
    made = compile(p.graph(last), {})
    few, many = ({"I": number, "T": 5} for number in (40, 10**5))
    program = xla(made, few)
    np.testing.assert_allclose(program()[0], naive(made.graph, few)[0], rtol=1e-5)
    rings = layout.layout(ReadTable(made.graph, many), made.schedule).rings
    for root, slots in program.slots().items():
        assert rings[root].slots == tuple(10**5 if n == 40 else n for n in slots)
    assert "tree" not in vars(made)  # nor was a word said on frees


def agrees(graph: Graph, bounds: dict[str, int]) -> None:
    np.testing.assert_allclose(xla(compile(graph, {}), bounds)(), naive(graph, bounds), rtol=1e-6)


def test_two_results_of_one_operation_have_two_slots():
    p = Program("i", "k")
    (i, k), (last, K) = p.symbols, p.bounds
    x, total = p.tensor(i, k, name="x"), p.tensor(i, name="total")
    x[i, 0], x[i, k] = p.fn(lambda i: (i + 1.0, 2.0 * i), p.value(i))
    total[0] = 0.0
    total[i + 1] = 0.5 * total + x[i, 0:K].sum()
    agrees(p.graph(total[last - 1]), {"I": 4, "K": 2})


def test_a_merge_of_some_of_a_tensor_leaves_the_rest_alone():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x, y = p.tensor(t, name="x"), p.fn(lambda t: t + 1.0, p.value(t))
    x[0] = 5.0
    x[t] = y
    agrees(p.graph(x[0:T].sum() + 10.0 * y[0:T].sum()), {"T": 4})


def slots(name: str, T: int) -> dict[str, tuple[int, ...]]:
    sizes = {bound: T if bound == "T" else 3 for bound in compiled(name).graph.bounds}
    program = xla(compiled(name), sizes)
    return {name: size for (name, _), size in program.slots().items()}


def test_rings_have_the_slots_of_the_window():
    T = 40
    found = slots("3-step", T)
    # One more observation: the next one is there before the oldest is learned from.
    assert (found["e"], found["a"], found["o"]) == ((1, 3), (1, 3), (1, 4))
    # Computed and read in one iteration: no ring at all.
    assert not {"g", "d", "u"} & set(found)
    whole = slots("Monte-Carlo", T)
    # What acting leaves behind at the end, o[T], is never read.
    assert (whole["e"], whole["a"], whole["o"]) == ((1, T), (1, T), (1, T))


@pytest.mark.slow
def test_distances_of_values_alive_at_once_give_the_fewest_slots_or_a_few_more():
    """Values of two dimensions, written one after another, each read for some events more."""
    rng, gap = np.random.default_rng(0), Counter()
    for _ in range(100):
        points = [(int(k // 3), int(k % 3)) for k in rng.permutation(9)]
        ends = [begin + int(rng.integers(0, 4)) for begin in range(9)]
        first, last = (
            isl.Map("{ " + "; ".join(f"[{p[0]}, {p[1]}] -> [{c}]" for p, c in pairs) + " }")
            for pairs in (zip(points, range(9), strict=True), zip(points, ends, strict=True))
        )
        lives = dict(zip(points, zip(range(9), ends, strict=True), strict=True))
        slots = layout.fewest(layout.conflicts(first, last))
        assert oracle.fits(lives, slots)
        late = {p: (b, e + 1) for p, (b, e) in lives.items()}
        assert oracle.fits(late, layout.fewest(layout.conflicts(first, last, late=True)))
        gap[math.prod(slots) - math.prod(oracle.slots(lives, (3, 3)))] += 1
    assert min(gap) >= 0 and gap[0] >= 50, gap


def test_what_a_merge_takes_is_stored_where_the_merge_is():
    bounds = {"I": 2, "T": 6}
    one, other = (XlaProgram(compiled("3-step"), bounds, alias=alias) for alias in (True, False))
    np.testing.assert_allclose(one(), other(), rtol=1e-6)
    assert not {("e", 0), ("u", 0), ("reset", 0)} & set(one.slots())
    assert other.slots()["e", 0] == (1, 1)
    assert other.slots()["u", 0] == (1,)
    # o holds one more, as e did, and nothing is copied from ring to ring.
    assert one.slots()["o", 0] == (1, 4)
    assert other.slots()["o", 0] == (1, 3)


@pytest.mark.parametrize("case", ["x ends in y", "x is read later", "x is of another type"])
def test_a_value_is_written_over_what_it_is_computed_from(case: str):
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.fn(lambda t: t + 1 if "type" in case else jnp.sin(t + 1.0), p.value(t), name="x")
    seen, following = x[0:T].max(), p.tensor(t, name="following")
    following[T - 1] = seen * 1.0  # y runs backward, once all of x is there
    y = p.fn(lambda x, y: x + 0.5 * y, x, following, name="y")
    following[t] = y[t + 1]
    again = p.fn(lambda x, y: x @ y, x[0:T], y[0:T]) if "later" in case else 1.0
    graph, bounds = p.graph(y[0:T].discounted_sum(0.5) + again), {"T": 5}
    program = xla(compile(graph, {}), bounds)
    np.testing.assert_allclose(program(), naive(graph, bounds), rtol=1e-6)
    whole = [root for root, slots in program.slots().items() if slots == (5,)]
    assert len(whole) == (1 if case == "x ends in y" else 2), program.slots()


def test_tiles_take_a_slot_only_where_they_are():
    found = slots("3-step, tiles of 4", 16)
    # Live are 4 + 3 - 1 and the next one; the blocks of 4 that are read lie side by side in 8.
    assert found["o"] == (1, 8)
    assert found["p"] == (1, 1)


def test_rings_go_through_no_condition():
    program = xla(compiled("3-step"), {"I": 2, "T": 8})
    text = str(jax.make_jaxpr(program)())
    assert "while" in text
    assert " cond[" not in text


def test_swapped_rings_are_in_the_memory_of_the_host(monkeypatch: pytest.MonkeyPatch):
    graph, bounds = reinforce(), {"I": 2, "T": 4}
    made = compile(graph, {}, swap=(("o", 0), graph.results[0]))
    if jax.devices()[0].platform == "cpu":  # where XLA takes the wish and ignores it
        with pytest.raises(ValueError, match="`swap` must be empty"):
            made.xla(bounds)
        monkeypatch.setattr(sys.modules[XlaProgram.__module__], "has_host_memory", lambda: True)
    program = made.xla(bounds)
    jaxpr, rings = jax.make_jaxpr(program._empty, return_shape=True)()
    places = [aval.memory_space for aval in jaxpr.out_avals]
    home = jax.tree.unflatten(jax.tree.structure(rings), places)
    assert {("o", 0)} < program._swapped < {*home}
    for root, place in home.items():
        assert (place == jax.memory.Space.Host) == (root in program._swapped)
    plain = compile(graph, {}).xla(bounds)
    jax.tree.map(np.testing.assert_array_equal, program(), plain())
    found = {aval.memory_space for aval in jax.make_jaxpr(program._run)({}).out_avals}
    assert found == {jax.memory.Space.Device}


def walk(n: int | None, size: int) -> Graph:
    """A random walk of vectors, and the sum of what its windows hold."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x, total = p.tensor(t, name="x"), p.tensor(t, name="total")
    x[0] = jnp.zeros(size)
    step = p.sample(lambda key, x: 0.5 * x + jax.random.normal(key, x.shape), x, name="step")
    x[t + 1] = step
    far = x[t : T if n is None else min_(t + n, T)]
    seen = p.fn(lambda window: jnp.tanh(window).sum(), far, name="seen")
    total[0] = 0.0
    following = total + seen
    total[t + 1] = following
    return p.graph(following[T - 1])


@pytest.mark.full
def test_a_loop_that_writes_a_ring_does_not_copy_it():
    """Count copies of rings in the loops of a recurrent learner."""
    program = compile(equations("recurrent", 5), I=2, T=50, B=3).xla()
    text = program.lower(key=jax.random.key(0)).compile().as_text()
    computations = [part for part in text.split("\n\n") if not part.startswith(("%fused", "ENTRY"))]
    rings = r"f32\[5[01],3(,\d+)?\]"
    copies = re.findall(rf"= {rings}\S* copy\(.*", "\n".join(computations))
    assert len(re.findall(rings, text)) > 4 and not copies


@pytest.mark.slow
def test_inputs_are_arguments_and_may_be_batched():
    made, bounds = compile(walk(3, 2), {}), {"T": 6}
    program, keys = xla(made, bounds), jax.random.split(jax.random.key(0), 3)
    other = Interpreter(made, bounds)
    (many,) = jax.vmap(lambda key: program(key=key))(keys)
    for key, one in zip(keys, many, strict=True):
        np.testing.assert_allclose(program(key=key)[0], one, rtol=1e-6)
        np.testing.assert_allclose(other(key=key).results[0], one, rtol=1e-6)
    assert len(set(many.tolist())) == 3


@pytest.mark.slow
def test_xla_takes_the_memory_that_the_rings_have():
    def program(n: int | None) -> XlaProgram:
        return xla(compile(walk(n, 1000), {}), {"T": 128})

    key = jax.random.key(0)
    window, whole = (program(n) for n in (4, None))
    rings = sum(window.ring_bytes().values())
    assert 4 * 4000 <= rings <= 6 * 4000
    taken = [
        p.lower(key=key).compile().memory_analysis().temp_size_in_bytes for p in (window, whole)
    ]
    assert rings <= taken[0] < 4 * rings
    assert taken[1] > 8 * taken[0]


def wide(n: int | None) -> Graph:
    """REINFORCE on observations of 256 numbers, of a policy with few parameters."""

    def begin(key: Any) -> tuple:
        obs = jax.random.normal(key, (256,))
        return obs, obs

    def step(key: Any, state: Any, action: Any) -> tuple:
        state = 0.9 * state + action
        return state, state, state.mean(), False, False

    network = Network(lambda key: jax.random.normal(key, (256, 2)), lambda w, obs: obs @ w)
    graph = programs.reinforce(Environment(begin, step), network, optax.sgd(1e-2), n=n)
    return vectorize(graph, "b")[0]


@pytest.mark.full
@pytest.mark.parametrize(("n", "m"), [(8, 16), (None, 1), (None, 64)])
def test_beside_the_rings_stands_what_one_block_takes(n: int | None, m: int):
    graph, key, T = wide(n), jax.random.key(0), 64
    program = xla(
        compile(graph if m == 1 else tile(graph, "t", m)[0], {}), {"I": 2, "T": T, "B": 8}
    )
    taken = program.lower(key=key).compile().memory_analysis().temp_size_in_bytes
    rings, step, gradient = sum(program.ring_bytes().values()), 8 * 256 * 4, 256 * 2 * 4
    # A window that is all of its ring is no copy. The first gradient of all is added apart.
    window = 0 if m == T else m * step
    assert rings <= taken <= rings + window + 2 * m * gradient + 6 * step
    alive = T if n is None else m + n
    assert program.slots()["seen", 0][1] == -(-alive // m) * m
    # What learning computes in a round and adds up in the same round is in no ring.
    assert not {"grad_params", "returns"} & {name for name, _ in program.slots()}


def expanded(rounds: Any) -> list[tuple[int, int]]:
    return [
        (rounds.order[j], int(rounds.starts[k, j] + turn * rounds.steps[k, j]))
        for k, counts in enumerate(rounds.counts)
        for j, count in enumerate(counts)
        for turn in range(count)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_rounds_are_the_same_sequence(seed: int):
    generator = np.random.default_rng(seed)
    active = generator.random((3, 8)) < generator.random((3, 1))
    active[:, generator.integers(8)] = True
    sequence = [(g, t) for t in range(8) for g in range(3) if active[g, t]]
    assert expanded(regroup(sequence, 3)) == sequence


def test_rounds_of_the_programs_vary_little():
    T, n, m = 16, 3, 4

    def counts(learns: Any, steps: int) -> list[list[int]]:
        order = [(g, c) for c in range(steps) for g in (0, 1) if ((c < T), learns(c))[g]]
        return regroup(order, 2).counts.tolist()

    stepwise = counts(lambda c: c >= n - 1, T + n - 1)
    assert stepwise == [[n, 1]] + [[1, 1]] * (T - n) + [[0, 1]] * (n - 1)
    ready = n + m - 2
    blocks = counts(lambda c: c >= ready and (c - ready) % m == 0, T + ready)
    assert blocks == [[m + n - 1, 1], [m, 1], [m, 1], [T - 3 * m - n + 1, 1]]
    assert counts(lambda c: c >= T, 2 * T) == [[T, T]]


def test_every_operation_is_compiled_once():
    graph, bounds, calls = reinforce(3), {"I": 2, "T": 9}, Counter()

    def counted(op: Op) -> Op:
        def run(env: Any, *inputs: Any) -> Any:
            calls[op.name] += 1
            assert op.run is not None
            return op.run(env, *inputs)

        return dataclasses.replace(op, run=run if op.run else None)

    ops = {name: counted(op) for name, op in graph.ops.items()}
    program = xla(compile(graph.replace(ops=ops), {}), bounds)
    jax.eval_shape(program._run, {})
    # Prologue and epilogue are no copies.
    assert calls == {name: 1 for name, op in ops.items() if op.run}


def test_parameters_of_epochs_share_one_slot():
    assert slots("PPO", 6)["w"] == (1, 1)
