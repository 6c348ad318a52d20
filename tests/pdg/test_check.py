"""The checker catches every planted mistake, in the run or in the graph that was scheduled."""

import dataclasses
import functools
from collections.abc import Callable

import pytest

from mmrl.pdg.build.graph import Graph
from mmrl.pdg.plan.code import Event, generate, trace
from mmrl.pdg.plan.frees import MemoryPlan, order_violations, plan_memory
from mmrl.pdg.run.naive import Report, check
from mmrl.pdg.schedule import schedule
from tests.helpers.pdg_graphs import reinforce, tile_graph

SIZES = {"I": 2, "T": 5}
Events = list[Event]


@functools.cache
def events(swap: bool = False) -> tuple[Event, ...]:
    swapped = [("o", 0)] if swap else []
    return tuple(trace(generate(plan_memory(schedule(reinforce(2)), swapped)), **SIZES))


def report(run: Events) -> Report:
    return check(reinforce(2), run, **SIZES)


def without(event: Event, swap: bool = False) -> Events:
    run = list(events(swap))
    run.remove(event)
    return run


def moved(event: Event, after: Event, swap: bool = False) -> Events:
    run = without(event, swap)
    run.insert(run.index(after) + 1, event)
    return run


def test_the_run_itself_is_right():
    for swap in (False, True):
        found = report(list(events(swap)))
        assert found.ok, str(found)
        assert found.device["o", 0] == (1 if swap else 2)
        assert str(found).startswith("correct; at most alive: ")


MUTANTS: dict[str, tuple[Callable[[], Events], str]] = {
    "a run is missing": (lambda: without(("run", "g", (0, 1))), "g[0, 1] never runs"),
    "a run is missing that is read": (
        lambda: without(("run", "g", (0, 1))),
        "d[0, 1] reads g[0, 1] before it is computed",
    ),
    "a run comes twice": (
        lambda: [*events(), ("run", "last", ()), ("free", ("u", 0), (1,))],
        "last[] runs twice",
    ),
    "a run is none of the graph": (
        lambda: [("run", "o", (0, 5)), *events()],
        "o[0, 5] runs but is not a point of o",
    ),
    "a run is too late": (
        lambda: moved(("run", "e", (0, 1)), ("run", "g", (0, 0))),
        "g[0, 0] reads e[0, 1] before it is computed",
    ),
    "two runs are swapped": (
        lambda: moved(("run", "o", (0, 3)), ("run", "a", (0, 3))),
        "a[0, 3] reads o[0, 3] before it is computed",
    ),
    "a free is missing": (
        lambda: without(("free", ("e", 1), (1, 2))),
        "e[1, 2] is never freed (output 1)",
    ),
    "a free is too early": (
        lambda: moved(("free", ("o", 0), (0, 2)), ("run", "a", (0, 2))),
        "d[0, 2] reads o[0, 2] while it is freed",
    ),
    "a free comes twice": (
        lambda: [*events(), ("free", ("G", 0), (0, 1))],
        "free of G[0, 1] while it is freed",
    ),
    "a free comes before the value": (
        lambda: [("free", ("w", 0), (0,)), *without(("free", ("w", 0), (0,)))],
        "free of w[0] while it is nowhere",
    ),
    "a result is freed": (
        lambda: [*events(), ("free", ("last", 0), ())],
        "free of last[], which is a result",
    ),
    "an offload is missing": (
        lambda: without(("offload", ("o", 0), (1, 1)), swap=True),
        "fetch of o[1, 1] while it is on the device",
    ),
    "an offload is too early": (
        lambda: moved(("offload", ("o", 0), (1, 1)), ("run", "o", (1, 1)), swap=True),
        "a[1, 1] reads o[1, 1] while it is on the host",
    ),
    "a fetch is missing": (
        lambda: without(("fetch", ("o", 0), (1, 1)), swap=True),
        "d[1, 1] reads o[1, 1] while it is on the host",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_found(name: str):
    mutant, complaint = MUTANTS[name]
    found = report(mutant())
    assert not found.ok
    assert complaint in found.violations


def dropped(made: Graph, sink: str, source: str) -> Graph:
    kept = tuple(edge for edge in made.edges if (edge.sink, edge.source) != (sink, source))
    assert kept != made.edges
    return made.replace(edges=kept)


@pytest.mark.parametrize("edge", [("o", "e"), ("g", "e"), ("d", "g"), ("G", "p"), ("u", "G")])
def test_a_schedule_without_one_dependence_is_found(edge: tuple[str, str]):
    wrong = plan_memory(schedule(dropped(reinforce(2), *edge)))
    assert not report(trace(generate(wrong), **SIZES)).ok
    assert order_violations(wrong).is_empty()
    assert not order_violations(dataclasses.replace(wrong, graph=reinforce(2))).is_empty()


def test_frees_from_the_dense_dependences_of_a_strided_graph_are_found():
    """The trap of tiles: without strides, G[t] seems to be read last at t + 1, not at t + m."""
    made = tile_graph(3, 4)
    dense = {
        name: dataclasses.replace(op, domain=op.domain.dense()) for name, op in made.ops.items()
    }
    unit = tuple(
        dataclasses.replace(edge, index=(edge.index[0], edge.index[1] + 3))
        if (edge.sink, edge.source) == ("p", "G")
        else edge
        for edge in made.edges
    )
    times = schedule(made)
    frees = plan_memory(dataclasses.replace(times, graph=made.replace(ops=dense, edges=unit)))
    wrong = generate(MemoryPlan(made, frees.statements, frees.times, frees.depth))
    found = check(made, trace(wrong, I=1, T=12), I=1, T=12)
    assert any("p[0, 4] reads G[0, 0] while it is freed" in line for line in found.violations)


def test_a_late_free_raises_the_peak():
    frees = [event for event in events() if event[:2] == ("free", ("o", 0))]
    late = list(events())
    for event in frees:
        late.remove(event)
    for event in reversed(frees):
        i, t = event[2]
        after = ("run", "o", (i, t + 2)) if t + 2 < SIZES["T"] else ("run", "u", (i,))
        late.insert(late.index(after) + 1, event)
    found = report(late)
    assert found.ok
    assert found.device["o", 0] == 3 == 1 + report(list(events())).device["o", 0]
    assert sum(found.timeline) > sum(report(list(events())).timeline)


def test_peaks_and_timeline_count_what_is_alive():
    run: Events = [("run", "init", ()), ("run", "w", (0,)), ("free", ("init", 0), ())]
    found = report(run)
    assert found.timeline == (1, 2, 1)
    assert found.device == {("init", 0): 1, ("w", 0): 1}
    assert found.host == {}
    assert "u[0] never runs" in found.violations
