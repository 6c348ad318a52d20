"""PPO's loop against rejax's and PureJaxRL's, and with memories that scan against one that walks.

    REJAX_PYTHON=rejax/bin/python python tests/benchmarks/bench_ppo.py

rejax's dependencies are not ours, so it lives in an environment of its own, and plays its rounds in
a process of its own between ours:

    python3.11 -m venv rejax
    rejax/bin/pip install rejax==0.1.3 jax==0.10.2 jaxlib==0.10.2 flax==0.12.8 gymnax==1.0.1 \
        optax==0.2.8 distrax==0.1.9

Without REJAX_PYTHON, its row alone is left out.

Against rejax, equal on both sides: CartPole in 64 environments, 128 steps an iteration, two
networks of 64 × 64 tanh units, whose parameters are counted (ours have one output more, PPG's
auxiliary value), 4 epochs of 4 minibatches; no evaluations; XLA's scheduler. What rejax does less:
it takes a truncation for an end, so that it needs no values of final observations; it clips each
number of a gradient instead of the gradient's norm. What it does more: it normalizes advantages in
each minibatch, and clips the value loss.

Against PureJaxRL's recurrent PPO, which purejaxrl_ppo.py has in this process, equal on both sides:
its settings (CartPole in 4 environments, 128 steps an iteration, 4 epochs of 4 minibatches, each
one environment's tape, 128 units), one network for policy and value, whose parameters are counted.
What it does less: it takes a truncation for an end. What it does more: it normalizes advantages in
each minibatch, and clips the value loss. It has a GRU, of flax; ours has one too, or an LRU of as
many units.

With a memory, the cart pole again, at equal width, with the same minibatches of whole tapes: acting
alone, learning alone, and a whole iteration. A memory that scans has few advantages on a CPU:

- Acting is one step at a time for all of them, and costs all the same.
- Learning needs as many multiplications: per step, 20 thousand in the LRU's matrices, 29 thousand
  in the GRU's, and 13 thousand in encoder, trunk and head, which both have. With the LRU they are
  products of large matrices, at some 60 billion operations per CPU-second, about as many as the
  networks without memory reach: nothing is left to gain. The GRU's 25 thousand are products with
  one vector after the other, at a fraction of that rate; hence about twice the time, not twenty
  times.

What a scan saves is depth, log T instead of T, which takes a device that runs a tape's steps side
by side. There the same command would show it: learning on one long tape has most to gain. It has
been run on CPUs only, so those ratios have no target.
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import purejaxrl_ppo
from rival import Rival, Theirs, cpu_seconds

import mmrl  # noqa: F401 (sets the XLA flag before the backend starts)
from mmrl.agents import ppo
from mmrl.course import plain
from mmrl.envs import make

ENV = "CartPole-v1"
ITERATIONS = 6  # in a round
RIVAL = Rival(pathlib.Path(__file__).with_name("rejax_ppo.py"), "0.1.3")
BARE = dataclasses.replace(plain.PPO, memory="none", learning_rate=2.5e-4, max_grad_norm=0.5)
SHAPES = ((4, 512), (1, 2048), (16, 512))  # environments × steps of an iteration
# As PureJaxRL sets itself.
RECURRENT = dataclasses.replace(
    BARE,
    memory="gru",
    memory_sizes=(("state_size", 128),),
    width=128,
    shared=True,
    environments=4,
    adam_eps=1e-5,
)
OTHERS = ("min_gru", "linear_attention")  # only in the first shape, and only all together


class Ours:
    """Rounds of `iterations` iterations."""

    def __init__(self, config: Any, iterations: int, agent: Any = ppo, game: Any = None):
        env, params = make(ENV) if game is None else game

        def loop(state: Any) -> tuple[Any, Any]:
            return jax.lax.scan(
                lambda s, _: agent.iterate(config, env, params, s), state, None, iterations
            )

        self.state: Any = jax.jit(partial(agent.init, config, env, params))(jax.random.key(0))
        self.loop = jax.jit(loop, donate_argnums=0)
        self.parameters = count(self.state.net)
        self.round()  # compiles

    def round(self) -> float:
        """The CPU-seconds of one."""
        began = cpu_seconds()
        self.state, outcome = self.loop(self.state)
        jax.block_until_ready((self.state, outcome))
        return cpu_seconds() - began


class Parts:
    """One iteration with a memory, and its halves: every one a program that repeats itself."""

    def __init__(self, memory: str, environments: int, rollout: int, names: tuple[str, ...]):
        env, params = make(ENV)
        config = dataclasses.replace(
            BARE,
            memory=memory,
            environments=environments,
            rollout=rollout,
            minibatches=min(BARE.minibatches, environments),
        )
        key = jax.random.key(0)
        state = jax.jit(partial(ppo.init, config, env, params))(key)
        act = jax.jit(partial(ppo.act, config, env, params))
        programs: dict[str, Callable[[], Any]] = {"acting": lambda: act(state, key)}
        if "learning" in names:
            _, tapes = act(state, key)
            learn = jax.jit(partial(ppo.learn, config))
            programs["learning"] = lambda: learn(state, tapes, key)
        iterate = jax.jit(partial(ppo.iterate, config, env, params))
        programs["all"] = lambda: iterate(state)
        self.programs = {name: programs[name] for name in names}
        for program in self.programs.values():
            jax.block_until_ready(program())  # compiles

    def round(self, name: str) -> float:
        """The CPU-seconds of one."""
        began = cpu_seconds()
        jax.block_until_ready(self.programs[name]())
        return cpu_seconds() - began


def count(net: Any) -> int:
    """Of parameters."""
    return sum(x.size for x in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))


def interleaved_medians(programs: dict[Any, Callable[[], float]], rounds: int) -> dict[Any, float]:
    """The median of each program's CPU-seconds; a busy machine slows all alike."""
    seconds: dict[Any, list[float]] = {key: [] for key in programs}
    for _ in range(rounds):
        for key, program in programs.items():
            seconds[key].append(program())
    return {key: statistics.median(times) for key, times in seconds.items()}


def against_rejax(python: str, quick: bool) -> dict[str, Any]:
    """A row: mmrl's PPO against rejax's."""
    iterations, rounds = (1, 1) if quick else (ITERATIONS, 15)
    settings = {**dataclasses.asdict(BARE), "env": ENV, "iterations": iterations}
    own, theirs = Ours(BARE, iterations), Theirs(RIVAL, python, settings)
    try:
        more = own.parameters - theirs.parameters
        if more != BARE.width + 1:  # one output more
            raise RuntimeError(f"The networks differ by {more} parameters.")
        result = interleaved_medians({"ours": own.round, "theirs": theirs.round}, rounds)
    finally:
        theirs.close()
    steps = iterations * BARE.environments * BARE.rollout
    return _row("PPO without memory", steps, result["ours"], result["theirs"], "rejax", 1.0)


class PureJaxRL:
    """Rounds of `iterations` iterations."""

    def __init__(self, config: Any, iterations: int):
        agent = purejaxrl_ppo.PPO(config, ENV)

        def loop(state: Any) -> Any:
            return jax.lax.fori_loop(0, iterations, lambda _, s: agent.iterate(s), state)

        self.state: Any = jax.jit(agent.init)(jax.random.key(0))
        self.loop = jax.jit(loop, donate_argnums=0)
        self.parameters = sum(x.size for x in jax.tree.leaves(self.state.learner.params))
        self.round()  # compiles

    def round(self) -> float:
        """The CPU-seconds of one."""
        began = cpu_seconds()
        self.state = jax.block_until_ready(self.loop(self.state))
        return cpu_seconds() - began


def against_purejaxrl(quick: bool) -> Iterator[dict[str, Any]]:
    """Rows: mmrl's PPO with a GRU and with an LRU against PureJaxRL's with a GRU."""
    iterations, rounds = (1, 1) if quick else (4 * ITERATIONS, 15)
    theirs = PureJaxRL(RECURRENT, iterations)
    own = {m: Ours(dataclasses.replace(RECURRENT, memory=m), iterations) for m in ("gru", "lru")}
    if own["gru"].parameters != theirs.parameters:
        more = own["gru"].parameters - theirs.parameters
        raise RuntimeError(f"The networks differ by {more} parameters.")
    programs = {"theirs": theirs.round, **{m: program.round for m, program in own.items()}}
    result = interleaved_medians(programs, rounds)
    steps = iterations * RECURRENT.environments * RECURRENT.rollout
    for memory in own:
        name = f"PPO, {memory}, 4 × 128"
        yield _row(name, steps, result[memory], result["theirs"], "PureJaxRL with a GRU", 1.0)


def against_gru(quick: bool) -> Iterator[dict[str, Any]]:
    """Rows: memories that scan against the GRU, which walks."""
    shapes, others, rounds = ((2, 16),), (), 1
    if not quick:
        shapes, others, rounds = SHAPES, OTHERS, 7
    for environments, length in shapes:
        everything = ("acting", "learning", "all")
        entrants = {m: Parts(m, environments, length, everything) for m in ("gru", "lru")}
        if (environments, length) == SHAPES[0]:
            entrants |= {m: Parts(m, environments, length, ("all",)) for m in others}
        programs = {
            (memory, part): partial(parts.round, part)
            for memory, parts in entrants.items()
            for part in parts.programs
        }
        result = interleaved_medians(programs, rounds)
        for (memory, part), seconds in result.items():
            if memory != "gru":
                name = f"PPO, {memory}, {environments} × {length}, {part}"
                steps = environments * length
                yield _row(name, steps, seconds, result["gru", part], "a GRU", None)


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """All comparisons, one by one."""
    python = RIVAL.python("PPO", __file__)
    if python is not None:
        yield against_rejax(python, quick)
    yield from against_purejaxrl(quick)
    yield from against_gru(quick)


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    """A row per comparison; of several rounds, the median counts."""
    return rows(quick)


def _row(
    name: str, steps: int, ours: float, theirs: float, peer_name: str, target: float | None
) -> dict[str, Any]:
    """Both took these CPU-seconds for as many steps."""
    return {
        "name": name,
        "ours": steps / ours,
        "peer": steps / theirs,
        "ratio": theirs / ours,
        "peer_name": peer_name,
        "unit": "env steps per CPU-second",
        "target": target,
    }


if __name__ == "__main__":
    for line in rows(quick=False):
        print(
            f"{line['name']:40} {line['ours']:8.0f} / {line['peer']:8.0f} {line['unit']} = "
            f"{line['ratio']:5.2f} × the rate of {line['peer_name']}  (target {line['target']})",
            flush=True,
        )
