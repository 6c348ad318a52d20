"""Environment steps per second of one agent with different memories and sizes.

A row contains the time of an iteration without evaluation, and the times of three programs of the
same size: the environment with random actions, acting, and the forward and backward passes of the
memory. The time of learning is the time of an iteration minus the time of acting. Each program is
timed separately, so the fractions may differ from those in a profile of the complete iteration.
"""

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from mmrl.agents import AGENTS
from mmrl.course.experiments.grid import Grid, Row, one_by_one
from mmrl.rollout import collect, start
from mmrl.runs import PRECISIONS, program

ENV = "popgym-RepeatPreviousEasy-v0"
MEMORIES = ("lru", "min_gru", "s5", "gru", "lstm")
ENVIRONMENTS, ROLLOUTS = (64, 512, 4096, 8192), (32, 128, 1024)
SECONDS = 2.0  # minimum time per program
TURNS = 3  # minimum repetitions per program


class Cell(NamedTuple):
    """An agent with its memory, sizes and precision."""

    agent: str = "ppo"
    memory: str = "lru"
    environments: int = 4096
    rollout: int = 128
    width: int = 64
    layers: int = 1
    precision: str = "float32"  # precision of matrix products; the memory's state is float32

    @property
    def name(self) -> str:
        """A description in words, which identifies the cell in the results."""
        sizes = f"{self.environments} × {self.rollout}, width {self.width}"
        layers = f", {self.layers} layers" if self.layers > 1 else ""
        return f"{self.agent}, {self.memory}, {sizes}{layers}, {self.precision}"


def cells() -> list[Cell]:
    """Return all cells, most informative first."""
    first = [Cell(), Cell(memory="gru"), Cell(rollout=1024, environments=512)]
    first += [Cell(memory="gru", rollout=1024, environments=512), Cell(precision="bfloat16")]
    first += [Cell(environments=8192), Cell(precision="tf32"), Cell(agent="clear")]
    products = [
        *(Cell(memory=m, environments=n) for n in ENVIRONMENTS for m in MEMORIES),
        *(Cell(memory=m, rollout=t, environments=512) for t in ROLLOUTS for m in MEMORIES),
        *(Cell(memory=m, width=256, precision=p) for p in list(PRECISIONS)[1:] for m in MEMORIES),
        *(Cell(memory=m, layers=3, width=w) for w in (64, 256) for m in MEMORIES),
        *(Cell(agent="clear", environments=n, rollout=t) for n in ENVIRONMENTS for t in ROLLOUTS),
        *(Cell(agent="clear", memory=m) for m in MEMORIES),
    ]
    return list(dict.fromkeys([*first, *products]))


def cost(cell: Cell) -> float:
    """Estimate the number of multiplications in an iteration, up to a constant factor."""
    return float(cell.environments * cell.rollout * cell.width**2 * cell.layers)


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Time the programs of a cell and return the row."""
    with jax.default_matmul_precision(PRECISIONS[cell.precision]):
        return _measure_cell(cell, 0.0 if quick else SECONDS, quick)


def _measure_cell(cell: Cell, seconds: float, quick: bool) -> Row:
    agent: Any = AGENTS[cell.agent]
    config = _config(cell)
    setup = program(cell.agent, ENV)
    env, params = setup.env, setup.params
    start_time = time.perf_counter()
    state = jax.jit(partial(agent.init, config, env, params))(jax.random.key(0))
    iterate = jax.jit(partial(agent.iterate, config, env, params), donate_argnums=0)
    compiled = iterate.lower(state).compile()
    compiling = time.perf_counter() - start_time
    size, parameters = _bytes(state), _count(state.net)
    parts = {
        "environment": _shortest_time(_environment(env, params, config), seconds),
        "acting": _shortest_time(_act_call(agent, env, params, config, state), seconds),
        "memory": _shortest_time(_memory(config, state.net), seconds),
    }
    holder = [state]

    def iteration() -> Any:
        holder[0], outcome = compiled(holder[0])
        return outcome

    whole = _shortest_time(iteration, seconds)
    steps = cell.environments * cell.rollout
    return {
        **cell._asdict(),
        "cell": cell.name,
        "env": ENV,
        "parameters": parameters,
        "env_steps": steps,
        "seconds": whole,
        "env_steps_per_s": round(steps / whole),
        "seconds_of": {**parts, "learning": whole - parts["acting"]},
        "compile_s": round(compiling, 2),
        "state_bytes": size,
        "seeds": [0],
        "quick": quick,
    }


def _config(cell: Cell) -> Any:
    layers = (("layers", cell.layers),) if cell.layers > 1 else ()
    sizes = {"environments": cell.environments, "rollout": cell.rollout, "width": cell.width}
    if cell.agent == "clear":
        sizes["capacity"] = 4 * cell.environments * cell.rollout
    return AGENTS[cell.agent].Config(memory=cell.memory, memory_sizes=layers, **sizes)


def _environment(env: Any, params: Any, config: Any) -> Callable[[], Any]:
    """Return a function that runs a rollout with random actions, without a network."""
    space = env.action_space(params)

    def policy(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
        return state, space.sample(key)

    keys = jax.random.split(jax.random.key(1), config.environments)
    carries = jax.jit(jax.vmap(partial(start, env, params, ())))(keys)
    act = partial(collect, policy, env, params, steps=config.rollout)
    return partial(jax.jit(jax.vmap(act)), carries, keys)


def _act_call(agent: Any, env: Any, params: Any, config: Any, state: Any) -> Callable[[], Any]:
    act, key = jax.jit(partial(agent.act, config, env, params)), jax.random.key(2)
    own = jax.tree.map(jnp.copy, state)  # the iterations donate the storage of `state`
    return lambda: act(own, key)


def _memory(config: Any, net: Any) -> Callable[[], Any]:
    """Return a function that runs the memories' forward and backward passes of an iteration."""
    memories = [x.memory for x in (net.policy, net.critic) if x is not None]
    minibatches, epochs = getattr(config, "minibatches", 1), getattr(config, "epochs", 1)
    rows = max(config.environments // minibatches, 1)
    begin = jnp.zeros((rows, config.rollout), bool).at[:, 0].set(True)
    xs = jax.random.normal(jax.random.key(3), (rows, config.rollout, config.width))

    def loss(arrays: Any, rest: Any, xs: Any) -> Any:
        models = eqx.combine(arrays, rest)
        outs = [jax.vmap(partial(m, m.init()))(xs, begin)[1] for m in models]
        return sum(jnp.sum(y * y) for y in outs)

    arrays, static = eqx.partition(memories, eqx.is_inexact_array)
    gradient = jax.grad(lambda arrays, xs: loss(arrays, static, xs), argnums=(0, 1))

    @jax.jit
    def passes(arrays: Any, xs: Any) -> Any:
        def once(xs: Any, _: Any) -> tuple[Any, Any]:
            of_weights, of_xs = gradient(arrays, xs)
            return xs - 1e-3 * of_xs, of_weights

        return jax.lax.scan(once, xs, length=minibatches * epochs)[0]

    return partial(passes, arrays, xs)


def _shortest_time(call: Callable[[], Any], seconds: float) -> float:
    """Return the minimum time of a call in seconds, without the first call, which compiles."""
    jax.block_until_ready(call())
    times: list[float] = []
    while len(times) < TURNS or sum(times) < seconds:
        start_time = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start_time)
    return min(times)


def _count(net: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))


def _bytes(state: Any) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(state) if eqx.is_array(x))


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    shares = {k: v / row["seconds"] for k, v in row["seconds_of"].items()}
    text = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return f"{row['env_steps_per_s']:,} steps/s ({text})"


SMALL = [
    Cell(agent, memory, 8, 16, 8)
    for agent, memory in itertools.product(("ppo", "clear"), ("lru", "gru"))
]
GRID = Grid(
    "speed",
    cells(),
    one_by_one(measure),
    summarize,
    cost=cost,
    small=SMALL,
    about="Environment steps per second of one agent, and the share of each part.",
    decides="how fast one agent is with thousands of environments, and what takes the time",
    turn=1,
)
