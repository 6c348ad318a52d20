"""Schedules, frees, swaps, donations, and the programs they become.

Oracles: enumeration of whole runs (`check.py`, which knows no polyhedra), the table and the numbers
that the method promises (a window of n steps holds n observations), and Python itself, which
executes the printed program.
"""

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any

import islpy as isl
import pytest

from mmrl.course.ch16_graphs_and_schedules.joint import jointly
from mmrl.pdg.build.graph import Domain, Graph
from mmrl.pdg.build.sets import never
from mmrl.pdg.plan.code import Body, Event, Loop, generate, interleaves, leaves, text, trace
from mmrl.pdg.plan.frees import (
    MemoryPlan,
    Statement,
    donations,
    order_violations,
    plan_memory,
)
from mmrl.pdg.run.naive import check
from mmrl.pdg.schedule import Schedule, explain, schedule, with_distinct_times
from tests.helpers import pdg_graphs
from tests.helpers.pdg_graphs import (
    PROGRAMS,
    STEPS,
    graph,
    op,
    ppo,
    reads,
    reinforce,
    remainders,
    tile_graph,
)

i, t = pdg_graphs.i, pdg_graphs.t
OBSERVATION = ("o", 0)
SOME = ["3-step", "3-step, tiles of 4", "PPO"]


@functools.cache
def planned(name: str, swap: bool = False) -> MemoryPlan:
    return plan_memory(schedule(PROGRAMS[name]()), [OBSERVATION] if swap else [])


@functools.cache
def program(name: str, swap: bool = False) -> Body:
    return generate(planned(name, swap))


def bounds(graph: Graph, runs: int, steps: int) -> dict[str, int]:
    sizes = {"I": runs, "T": steps, "K": 3}
    return {name: sizes[name] for name in graph.bounds}


def run(made: Graph, swap: bool = False, steps: int = 32, proximity: str = "upper") -> Any:
    """The report on two iterations of a program."""
    tree = generate(plan_memory(schedule(made, proximity), [OBSERVATION] if swap else []))
    sizes = bounds(made, 2, steps)
    report = check(made, trace(tree, **sizes), **sizes)
    assert report.ok, str(report)
    return report


def test_loops_run_the_points_of_a_domain_whatever_its_condition():
    sizes = [{"I": 2, "T": 5}, {"I": 5, "T": 3}, {"I": 4, "T": 4}]
    for when in remainders(30):
        domain = Domain.of("i", "t", when=when)
        made = graph([op("x", domain, lambda env: (0.0,))], [], ("I", "T"), "x")
        if not never(when, domain):
            tree = generate(plan_memory(schedule(made)))
            for each in sizes:
                ran = [point for kind, _, point in trace(tree, **each) if kind == "run"]
                assert sorted(ran) == [*domain.points(each)], f"{when} at {each}: {tree}"


# --- how much is alive ---


@pytest.mark.parametrize(("n", "longest"), [(1, 8), (3, 40), (8, 40)])
def test_a_window_of_n_steps_keeps_n_observations(n: int, longest: int):
    tree = generate(plan_memory(schedule(reinforce(n))))
    for steps in {8, longest}:
        report = check(reinforce(n), trace(tree, I=2, T=steps), I=2, T=steps)
        assert report.ok
        assert {report.device[name] for name in [("o", 0), ("a", 0), ("e", 1)]} == {n}


@pytest.mark.parametrize("steps", [8, 40])
def test_monte_carlo_keeps_the_whole_episode(steps: int):
    sizes = {"I": 2, "T": steps}
    report = check(reinforce(), trace(program("Monte-Carlo"), **sizes), **sizes)
    assert report.ok
    assert report.device[OBSERVATION] == report.device["e", 1] == steps
    assert report.device["e", 0] == 1  # what the next observation is copied from does not wait


@pytest.mark.parametrize(
    ("n", "m", "peak"), [(3, 4, 6), (8, 8, 15), (3, 16, 18), (1, 4, 4), (None, 4, 33)]
)
def test_tiles_of_m_steps_keep_m_and_the_window_without_one(n: int | None, m: int, peak: int):
    report = run(tile_graph(n, m), steps=33)
    assert report.device[OBSERVATION] == peak
    assert n is None or peak == m + n - 1


@pytest.mark.parametrize("name", ["3-step, tiles of 4", "Monte-Carlo, tiles of 4"])
def test_the_parts_of_a_tile_run_one_after_the_other(name: str):
    runs = [(what, at) for kind, what, at in trace(program(name), I=1, T=13) if kind == "run"]
    for first in (0, 4, 8, 12):
        where = {what: k for k, (what, at) in enumerate(runs) if at == (0, first)}
        assert where["G"] - min(where["p"], where["d"]) == 2


def test_swapping_keeps_one_observation_on_the_device():
    report = run(reinforce(), swap=True, steps=32)
    assert (report.device[OBSERVATION], report.host[OBSERVATION]) == (1, 32)
    report = run(reinforce(8), swap=True, steps=12)
    assert (report.device[OBSERVATION], report.host[OBSERVATION]) == (1, 8)


def test_values_used_in_one_iteration_only_are_not_swapped():
    made = reinforce(3)
    tree = generate(plan_memory(schedule(made), [("d", 0), ("p", 0)]))
    assert {kind for kind, *_ in trace(tree, I=2, T=8)} == {"run", "free"}


# --- proximity, not validity, makes acting and learning share a loop ---


@pytest.mark.parametrize(
    ("proximity", "interleaved", "others"),
    [("none", set(), {2, 3}), ("all", {2, 3}, {4, 8}), ("upper", {2, 3, 4, 8, 64}, set())],
)
def test_only_upper_bounds_interleave_every_window(
    proximity: str, interleaved: set[int], others: set[int]
):
    def together(n: int | None) -> bool:
        tree = generate(plan_memory(schedule(reinforce(n), proximity)), memory=False)
        return interleaves(tree, "e", "d")

    assert {n for n in interleaved | others if together(n)} == interleaved
    assert not together(None)


def test_a_window_that_is_not_interleaved_keeps_the_whole_episode():
    assert run(reinforce(4), proximity="all", steps=12).device[OBSERVATION] == 12
    assert run(reinforce(4), proximity="upper", steps=12).device[OBSERVATION] == 4


def test_the_certificate_says_why():
    assert str(explain(reinforce(), "d", "e")) == "d[i, t] -> e[i, T - 1]"
    window = explain(reinforce(3), "d", "e")
    assert window.exact
    assert {(str(w.index[1]), str(w.when)) for w in window.waits} == {
        ("t + 2", "T >= t + 3"),
        ("T - 1", "t + 2 >= T"),
    }
    assert str(explain(ppo(), "w", "d").waits[0].index[1]) in ("K - 1", "k - 1")
    assert str(explain(reinforce(3), "reset", "e")) == "reset[i] waits for no point of e"
    with pytest.raises(ValueError, match="`x` is not an operation"):
        explain(reinforce(), "x", "e")


def test_a_cycle_has_no_schedule():
    ops = [op("x", STEPS, lambda env, y: (y,)), op("y", STEPS, lambda env, x: (x,))]
    cycle = graph(ops, [*reads("x", ("y", i, t)), *reads("y", ("x", i, t))], ("I", "T"), "x")
    with pytest.raises(ValueError, match="cannot be scheduled"):
        schedule(cycle)


# --- proved for all bounds, and enumerated for small ones ---


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_order_is_proved_for_all_bounds(name: str):
    assert order_violations(planned(name)).is_empty()


def test_the_proof_fails_for_a_wrong_order():
    made = reinforce(3)
    lost = tuple(edge for edge in made.edges if (edge.sink, edge.source) != ("g", "e"))
    wrong = plan_memory(schedule(made.replace(edges=lost)))
    assert order_violations(wrong).is_empty()
    assert not order_violations(
        MemoryPlan(made, wrong.statements, wrong.times, wrong.depth)
    ).is_empty()


def test_the_proof_fails_for_operations_at_the_same_time():
    made = reinforce(3)
    one_time = isl.UnionMap.from_domain(schedule(made).times.domain())
    still = one_time.apply_range(isl.UnionMap("{ [] -> [0] }", context=one_time.get_ctx()))
    names = {name: Statement("run", name) for name in made.ops}
    assert not order_violations(MemoryPlan(made, names, still, 1)).is_empty()


def test_two_points_never_share_a_time():
    ops = [op("x", STEPS, lambda env: (1.0,)), op("y", STEPS, lambda env: (1.0,))]
    made = graph(ops, [], ("I", "T"), "x")
    found = schedule(made)
    assert found.times.is_injective()
    text = "[I, T] -> { x[i, t] -> [i, t]; y[i, t] -> [i, t] }"
    same = isl.UnionMap(text, context=found.times.get_ctx())
    parted = with_distinct_times(Schedule(made, same.intersect_domain(found.times.domain()), 2))
    assert parted.depth == 3
    assert parted.times.is_injective()


@pytest.mark.parametrize(
    ("name", "swap"), [*((name, False) for name in PROGRAMS), *((name, True) for name in SOME)]
)
def test_trees_are_right_for_small_bounds(name: str, swap: bool):
    made = PROGRAMS[name]()
    for runs, steps in [(1, 1), (1, 2), (2, 3), (3, 1), (2, 5), (1, 8), (2, 9)]:
        sizes = bounds(made, runs, steps) | ({"K": runs} if "K" in made.bounds else {})
        report = check(made, trace(program(name, swap), **sizes), **sizes)
        assert report.ok, f"{sizes}: {report}"


@pytest.mark.parametrize("name", SOME)
def test_readable_trees_and_trees_without_memory_run_in_the_same_order(name: str):
    least = 5 if name == "PPO" else 12
    sizes = dict.fromkeys(PROGRAMS[name]().bounds, least + 1)
    events = trace(program(name), **sizes)
    bare = trace(generate(planned(name), memory=False), **sizes)
    assert bare == [event for event in events if event[0] == "run"]
    readable = trace(generate(planned(name), readable=True, least=least), **sizes)
    assert _rounds(readable) == _rounds(events)


def _rounds(events: list[Event]) -> list[Any]:
    """The runs in order; of the frees between two runs, which may be in any order, a set."""
    rounds: list[Any] = [set()]
    for event in events:
        if event[0] == "run":
            rounds += [event, set()]
        else:
            rounds[-1].add(event)
    return rounds


# --- frees ---


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_free_follows_the_last_use_before_anything_else_runs(name: str):
    made = PROGRAMS[name]()
    sizes = bounds(made, 2, 9)
    users: dict[Any, Any] = {}  # of each value, the last run that made or read it
    before = None
    for kind, what, point in trace(program(name), **sizes):
        if kind == "run":
            before = (what, point)
            domain = made.ops[what].domain
            users |= {((what, k), point): before for k in range(len(made.ops[what].outputs))}
            for edge in made.inputs(what):
                env = domain.env(point, sizes)
                if edge.when.evaluate(env):
                    found = pdg_graphs.where(edge, env)
                    users |= {((edge.source, edge.output), q): before for q in found}
        else:
            assert users[what, point] == before


@pytest.mark.parametrize("name", ["Monte-Carlo", *SOME])
def test_exact_frees_keep_no_more_than_the_joint_search(name: str):
    made = PROGRAMS[name]()
    joint = jointly(made)
    assert order_violations(joint).is_empty()
    sizes = bounds(made, 2, 10)
    theirs = check(made, trace(generate(joint), **sizes), **sizes)
    ours = check(made, trace(program(name), **sizes), **sizes)
    assert theirs.ok and ours.ok
    assert all(ours.device[tensor] <= theirs.device[tensor] for tensor in made.tensors)
    assert max(ours.timeline) <= max(theirs.timeline)


def test_results_are_never_freed():
    made = reinforce(2).replace(results=(("u", 0), ("last", 0)))
    report = run(made, steps=8)
    assert report.device["u", 0] == 2


# --- donations ---


@pytest.mark.parametrize("name", ["Monte-Carlo", *SOME])
def test_a_value_is_donated_to_its_last_user_and_to_no_other(name: str):
    made = PROGRAMS[name]()
    sizes = bounds(made, 3, 9)
    events = trace(program(name), **sizes)
    when = {(what, point): k for k, (kind, what, point) in enumerate(events) if kind == "run"}
    readers: dict[Any, list[Any]] = {}
    for (what, point), k in when.items():
        env = made.ops[what].domain.env(point, sizes)
        for edge in made.inputs(what):
            if edge.when.evaluate(env):
                for q in pdg_graphs.where(edge, env):
                    readers.setdefault((edge.source, edge.output, q), []).append((k, edge))

    def donated(edge: Any) -> bool:
        own = [(key, reads) for key, reads in readers.items() if edge in [e for _, e in reads]]
        return not edge.slices and all(
            [e for k, e in reads if k == max(k for k, _ in reads)] == [edge]
            and reads.count
            and sum(e is edge for _, e in reads) == 1
            for _, reads in own
        )

    expected = {str(edge) for edge in made.edges if donated(edge)} - {"last <- u[I - 1]"}
    found = {str(edge) for edge in donations(schedule(made))}
    assert found - {"last <- u[I - 1]"} == expected
    assert {"G <- d[i, t]", "w <- u[i - 1] if i >= 1"} <= found or name == "PPO"


def test_nothing_is_donated_twice_or_while_it_is_a_result():
    ops = [op("x", STEPS, lambda env: (1.0,)), op("y", STEPS, lambda env, a, b: (a + b,))]
    twice = graph(ops, reads("y", ("x", i, t), ("x", i, t)), ("I", "T"), "y")
    assert donations(schedule(twice)) == ()
    once = graph(ops, reads("y", ("x", i, t)), ("I", "T"), "y")
    assert [str(edge) for edge in donations(schedule(once))] == ["y <- x[i, t]"]
    assert donations(schedule(once.replace(results=(("x", 0),)))) == ()


# --- the program as text ---


class Recorder:
    """What the printed program calls: `o(i, t)`, `del o[i, t]`, `offload(o[i, t])`."""

    def __init__(self, name: str, events: list[Event], several: bool):
        self.name, self.events, self.several = name, events, several

    def __call__(self, *point: int) -> None:
        self.events.append(("run", self.name, point))

    def __getitem__(self, point: Any) -> "Recorder.Value":
        return Recorder.Value(self, point if isinstance(point, tuple) else (point,))

    def __delitem__(self, point: Any) -> None:
        del self[point][0]

    class Value:
        def __init__(self, op: "Recorder", point: tuple[int, ...]):
            self.op, self.point = op, point

        def __delitem__(self, output: int) -> None:
            self.do("free", output)

        def do(self, kind: str, output: int = 0) -> None:
            self.op.events.append((kind, (self.op.name, output), self.point))


@pytest.mark.parametrize("readable", [False, True])
@pytest.mark.parametrize("name", SOME)
def test_the_text_is_python_that_does_the_same(name: str, readable: bool):
    made = PROGRAMS[name]()
    tree = (
        generate(planned(name, True), readable=readable, least=12)
        if readable
        else program(name, True)
    )
    sizes = dict.fromkeys(made.bounds, 13)
    events: list[Event] = []
    names: dict[str, Any] = {each: Recorder(each, events, each == "e") for each in made.ops}
    moves: dict[str, Callable] = {
        kind: lambda value, kind=kind: value.do(kind) for kind in ("offload", "fetch")
    }
    exec(text(tree, {"e"}), names | moves | sizes)
    assert events == trace(tree, **sizes)


def test_advantages_run_backward_in_time():
    tree = generate(planned("PPO"), readable=True, memory=False, least=4)
    assert "for t in range(T - 1, -1, -1):\n        n(i, t)\n        g(i, t)" in text(tree)
    order = [point[1] for kind, what, point in trace(tree, I=4, T=5, K=4) if what == "g"]
    assert order == 4 * [4, 3, 2, 1, 0]


def test_counters_have_the_names_of_what_they_count():
    loops = [node for node in _loops(generate(planned("3-step"), memory=False))]
    assert {loop.counter for loop in loops} == {"i", "t"}
    assert all(loop.step == 1 for loop in loops)
    point = {leaf.op: leaf.point for leaf in leaves(loops[-1].body)}["g"]
    assert [str(part) for part in point] == ["i", "t - 2"]


def _loops(node: Any) -> list[Loop]:
    if isinstance(node, Body):
        return [loop for child in node.body for loop in _loops(child)]
    return [node, *_loops(node.body)] if isinstance(node, Loop) else []


@pytest.mark.skipif(
    importlib.metadata.version("islpy") != "2026.2.2", reason="isl's choices are those of a version"
)
@pytest.mark.parametrize("name", pdg_graphs.GOLDEN)
def test_golden_texts(name: str):
    memory = name in ("Monte-Carlo", "2-step")
    tree = generate(planned(name), memory=memory, readable=not memory, least=1 if memory else 12)
    assert text(tree, {"e"}) == pdg_graphs.GOLDEN[name].strip()
