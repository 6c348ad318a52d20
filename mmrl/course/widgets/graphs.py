"""Explorers of dependence graphs, their index expressions and their schedules."""

import dataclasses
from functools import cache
from typing import Any, get_args

import jax.numpy as jnp
import traitlets
from traitlets import Enum, Int

from mmrl.course.widgets.base import Explorer, source, style
from mmrl.pdg.build.expr import min_
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.sets import IN, maps, union
from mmrl.pdg.plan.code import Event, generate, text, trace
from mmrl.pdg.plan.frees import MemoryPlan, plan_memory
from mmrl.pdg.schedule import Proximity, Schedule, explain, schedule

PATTERNS = ("t", "t+3", "t-1", "0:T", "t:T", "0:t+1", "t:min(t+n,T)", "max(0,t-n):t+1")
PATTERNS += ("t//2", "t%8", "T-1-t")
WINDOWS = (1, 2, 4, 8, 16, None)
STEPS = 16
OBSERVATION = ("obs", 0)


class AccessPatternExplorer(Explorer):
    """Explorer for an access pattern φ, where y[t] reads x[φ(t)].

    The explorer shows a matrix of reads, the inverse φ⁻¹ and the required storage. `pattern` is φ,
    one of `PATTERNS`. x and y have length `T`, and `n` is the size of a window. `t` and `k` are the
    selected row and column. Both y and x are computed in order, with x as late as possible. The
    maximum number of live entries is the size of a ring buffer for x. The inverses equal the
    results of `mmrl.pdg.build.sets.invert`.
    """

    _esm = source("access_pattern_explorer")
    _css = style()
    pattern = Enum(PATTERNS, "t:min(t+n,T)").tag(sync=True)
    T = Int(12, min=4, max=24).tag(sync=True)
    n = Int(4, min=1, max=8).tag(sync=True)
    t = Int(3, min=0).tag(sync=True)
    k = Int(6, min=0).tag(sync=True)


class ScheduleExplorer(Explorer):
    """Explorer for the schedule of REINFORCE with returns r[t:min(t + n, T)] or r[t:T].

    `n` is the window, or None for Monte Carlo returns, and `proximity` is an option of
    `mmrl.pdg.schedule`. `moment` is the index of the selected operation. `schedules` contains the
    generated code and the events of one iteration of 16 steps, for all choices of these options.
    Computing it takes a few seconds when the first explorer is created.
    """

    _esm = source("schedule_explorer")
    _css = style()
    n = Enum(WINDOWS, 4).tag(sync=True)
    proximity = Enum(get_args(Proximity), "upper").tag(sync=True)
    moment = Int(60, min=0).tag(sync=True)
    schedules = traitlets.Dict().tag(sync=True)

    @traitlets.default("schedules")
    def _schedules(self) -> dict[str, Any]:
        return schedules()


class TileExplorer(Explorer):
    """Explorer for a learner that processes tiles of `m` steps.

    Learning from an episode of `T` steps takes T / m kernel launches. With "n_step" returns over
    `n` steps, at most min(T, m + n - 1) observations are live. With "monte_carlo" returns, no tile
    can be processed before the end of the episode. `m` = 1 interleaves acting and learning most
    finely, and `m` = `T` learns from the complete episode at once.
    """

    _esm = source("tile_explorer")
    _css = style()
    returns = Enum(("n_step", "monte_carlo"), "n_step").tag(sync=True)
    m = Int(4, min=1, max=64).tag(sync=True)
    n = Int(5, min=1, max=64).tag(sync=True)
    T = Int(32, min=8, max=64).tag(sync=True)


def reinforce(n: int | None) -> Graph:
    """Build a simplified REINFORCE with scalar tensors.

    The dependences are the same as in `mmrl.course.programs.policy_gradients`, but the functions
    are placeholders.
    """
    p = Program("i", "t")
    (i, t), (I, T) = p.symbols, p.bounds  # noqa: E741
    params, obs = p.tensor(i, name="params"), p.tensor(i, t, name="obs")
    params[0] = p.constant(1.0, "start")
    obs[i, 0] = p.fn(lambda w: 0 * w, params, name="reset")
    act = p.fn(jnp.multiply, params, obs, name="act")
    after, reward = p.fn(lambda o, a: (o + a, -o), obs, act, name="step")
    obs[i, t + 1] = after
    window = reward[i, t : T if n is None else min_(t + n, T)]
    ret = p.apply("discounted_sum", window, name="ret", gamma=0.9)
    grad = p.fn(lambda w, o, a, g: (a - w * o) * o * g, params, obs, act, ret, name="grad")
    so_far = p.tensor(i, t, name="so_far")
    so_far[i, 0] = p.constant(0.0, "zero")
    total = p.fn(jnp.add, so_far, grad, name="total")
    so_far[i, t + 1] = total
    update = p.fn(jnp.add, params, total[i, T - 1], name="update")
    params[i + 1] = update
    return p.graph(update[I - 1].read("last"))


@cache
def schedules() -> dict[str, Any]:
    """Return the code and events for every choice of options, as JSON values.

    `of` maps "n proximity" to an index in `programs`, because many choices give the same program.
    `waits` contains the last step that a gradient depends on, keyed by n.
    """
    programs_seen: dict[tuple[str, str], int] = {}
    of, waits = {}, {}
    for n in WINDOWS:
        graph = reinforce(n)
        waits[str(n)] = str(explain(graph, "grad", "step"))
        events_of: dict[str, tuple[str, str]] = {}
        for proximity in get_args(Proximity):
            order = schedule(graph, proximity)
            times = str(order.times)
            events_of[times] = events_of.get(times) or program(order, n)
            of[f"{n} {proximity}"] = programs_seen.setdefault(events_of[times], len(programs_seen))
    programs = [{"code": code, "events": events} for code, events in programs_seen]
    return {"steps": STEPS, "of": of, "programs": programs, "waits": waits}


def program(order: Schedule, n: int | None) -> tuple[str, str]:
    """Return the generated code and the events of a run, in which only observations are freed."""
    whole = plan_memory(order)
    # If T is at least as large as the window, the prologue, the steady loop and the epilogue are
    # separate loops.
    tree = generate(_only_observations(whole), readable=True, least=n or 2)
    events = trace(tree, I=1, T=STEPS)
    return text(tree), " ".join(_event(order.graph, event) for event in events)


def _only_observations(whole: MemoryPlan) -> MemoryPlan:
    """Return a memory plan that frees only observations, for which the code is short."""

    def is_observed(name: str) -> bool:
        statement = whole.statements[name]
        return statement.kind == "run" or (statement.op, statement.output) == OBSERVATION

    times = union(each for each in maps(whole.times) if is_observed(each.get_tuple_name(IN)))
    return dataclasses.replace(whole, times=times)


def _event(graph: Graph, event: Event) -> str:
    """Encode an event. `grad3` runs at t = 3, `-obs3` frees obs[3], and `update` has no t."""
    kind, what, point = event
    name = what if isinstance(what, str) else what[0]
    step = dict(zip(graph.ops[name].domain.names, point, strict=True)).get("t", "")
    return f"{'' if kind == 'run' else '-'}{name}{step}"
