"""The effect of past observations on Q(s_n, a_n): Figures 3 and 7 of Morad et al. (2024).

Each row is a task, a memory and a batching method, trained on several seeds. It records how the
last step n of greedy episodes depends on an observation o_i, by its age n - i:

- `gradient`: ‖∂Q(s_n, a_n)/∂o_i‖ over the features of the card, Eq. 36.
- `ones`: |Σ_k ∂Q(s_n, a_n)/∂o_ik|, which is close to the quantity that the paper's code logs. It is
  the derivative in the direction (1, …, 1), in which a one-hot observation cannot change.
- `swap`: the mean of |ΔQ(s_n, a_n)| when the card is replaced by each of the other suits. Unlike
  the first two, this change can occur in an episode.
- `flips`: the fraction of these swaps that change the greedy action.

`untrained` is `gradient` before the first update. `example` is `gradient` at every step n of one
episode.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mmrl.agents import dqn
from mmrl.course import plain
from mmrl.course.experiments.grid import Grid, Row, one_by_one
from mmrl.course.instruments import sensitivity
from mmrl.nets import Net
from mmrl.rollout import collect, start
from mmrl.runs import Program, Run, Setup, interval

TASKS = ("RepeatPreviousPaper", "RepeatFirstEasy")
SUITS = 4  # the first features of an observation are the one-hot suit
SEEDS = (0, 1, 2, 3, 4)
EPISODES = 8  # greedy episodes per seed
EXAMPLE_STEPS = 44  # steps of the example, which has 990 pairs
LENGTH = 10  # L, steps in a segment, as in the paper
QUICK: dict[str, Any] = {"block": 1, "blocks": 1, "episodes": 4, "width": 8, "batch": 150}


@dataclasses.dataclass(frozen=True)
class Cell:
    """Agents that are trained and then examined."""

    task: str
    memory: str
    batching: str
    length: int = LENGTH  # L, steps in a segment

    @property
    def name(self) -> str:
        """Name that identifies the row in the results."""
        longer = f" of {self.length}" if self.length != LENGTH else ""
        return f"{self.task}, {self.memory}, {self.batching}{longer}"


def cells() -> list[Cell]:
    """Return all cells, the most informative first."""
    lag, first = TASKS
    order = [(lag, "lru"), (lag, "ffm"), (first, "lru"), (lag, "linear_attention")]
    order += [(first, "ffm"), (first, "linear_attention"), (lag, "gru"), (first, "gru")]
    grid = [Cell(t, m, batching) for t, m in order for batching in ("tape", "segments")]
    # Agents also learn the task from segments of 50 steps, so this cell allows a comparison at
    # equal returns.
    return [*grid[:6], Cell(lag, "lru", "segments", 50), *grid[6:]]


def summarize(row: Row) -> str:
    """Summarize a row: the return, and the fraction of the gradient on old observations."""
    middle, (low, high) = row["outside"], row["outside_95"]
    return (
        f"return {np.mean(row['returns']):.2f}; {middle:.0%} [{low:.0%}, {high:.0%}] of the "
        f"gradient is {LENGTH} steps old or older"
    )


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Train the agents of a cell and examine them."""
    start_time = time.process_time()
    changes = {"batching": cell.batching, "segment_length": cell.length}
    changes |= QUICK if quick else {}
    config = dataclasses.replace(plain.DQN, memory=cell.memory, **changes)
    run = Run(Setup(env=f"popgym-{cell.task}-v0", config=config, seeds=SEEDS))
    for _ in run:
        pass
    curves = examine(run.program, run.state.net)
    fresh = examine(run.program, run.begin().net, swap=False)
    shares = [outside(curve, LENGTH)[0] for curve in curves["gradient"]]
    middle, low, high = interval(np.array(shares))
    digits = {name: round_digits(values) for name, values in curves.items()}
    return {
        "cell": cell.name,
        "task": cell.task,
        "memory": cell.memory,
        "batching": cell.batching,
        "segment_length": cell.length if cell.batching == "segments" else 0,
        "seeds": list(SEEDS),
        "episodes": EPISODES,
        "returns": np.round(run.history[-1]["returns"], 4).tolist(),
        "outside": middle,
        "outside_95": [low, high],
        **{name: digits[name] for name in ("gradient", "swap")},
        **{name: round_digits(curves[name].mean(0)) for name in ("ones", "flips")},
        "untrained": round_digits(fresh["gradient"].mean(0)),
        "example": round_digits(example(run.program, run.state.net)),
        "cpu_seconds": round(time.process_time() - start_time, 1),
        "quick": quick,
    }


def examine(
    program: Program, nets: Net, swap: bool = True
) -> dict[str, Float[np.ndarray, "seed age"]]:
    """Return each measure by seed and age at the last step, averaged over episodes."""
    return examiner(program, swap)(nets)


def examiner(
    program: Program, swap: bool = True
) -> Callable[[Net], dict[str, Float[np.ndarray, "seed age"]]]:
    """Return the function of networks that `examine` calls, to examine them repeatedly."""
    keys = jax.random.split(jax.random.key(1), (len(SEEDS), EPISODES))

    @jax.jit
    @jax.vmap
    def seeds(net, keys):
        return jax.lax.map(lambda key: _at_the_end(net, *episode(program, net, key), swap), keys)

    def curves(nets: Net) -> dict[str, Float[np.ndarray, "seed age"]]:
        return {name: values.mean(1) for name, values in jax.device_get(seeds(nets, keys)).items()}

    return curves


def episode(
    program: Program, net: Net, key: PRNGKeyArray
) -> tuple[Float[Array, "time obs"], Int[Array, " time"], Bool[Array, " time"]]:
    """Return the observations, actions and begin flags of a greedy episode of maximum length."""
    start_key, key = jax.random.split(key)
    env, params = program.env, program.params
    carry = start(env, params, net.init(), start_key)
    steps = params.max_steps_in_episode
    _, steps_of_play = collect(dqn.greedy(net), env, params, carry, key, steps)
    return (
        jnp.asarray(steps_of_play.obs),
        jnp.asarray(steps_of_play.action),
        jnp.asarray(steps_of_play.begin),
    )


def _at_the_end(net: Net, obs, actions, begin, swap: bool) -> dict[str, Float[Array, " age"]]:
    slopes = sensitivity(net, obs, actions, begin, jnp.array([len(obs) - 1]))[0, :, :SUITS]
    by_step = {"gradient": jnp.linalg.norm(slopes, axis=-1), "ones": jnp.abs(jnp.sum(slopes, -1))}
    if swap:
        q_swap, q = swaps(net, obs, begin), net(net.init(), obs, begin)[1][-1]
        change = jnp.abs(q_swap[..., actions[-1]] - q[actions[-1]])
        flips = jnp.argmax(q_swap, -1) != actions[-1]
        # Replacing a suit with itself has no effect, so divide by the number of other suits.
        by_step["swap"] = jnp.sum(change, -1) / (SUITS - 1)
        by_step["flips"] = jnp.sum(flips, -1) / (SUITS - 1)
    return {name: values[::-1] for name, values in by_step.items()}


def example(program: Program, nets: Net) -> Float[np.ndarray, " pairs"]:
    """Return ‖∂Q(s_n, a_n)/∂o_i‖ for all i ≤ n < `EXAMPLE_STEPS` of the first seed's episode."""

    @jax.jit
    def sizes(net, key):
        obs, actions, begin = (x[:EXAMPLE_STEPS] for x in episode(program, net, key))
        return jnp.linalg.norm(sensitivity(net, obs, actions, begin)[..., :SUITS], axis=-1)

    first = jax.tree.map(lambda x: x[0], nets)
    return lower(np.asarray(sizes(first, jax.random.key(2))))


def swaps(
    net: Net, obs: Float[Array, "time obs"], begin: Array
) -> Float[Array, "time suit action"]:
    """Return Q(s_n, ·) at the last step n with card i replaced by each suit, for every i."""

    def swap(i: Int[Array, ""], suit: Int[Array, ""]):
        card = jax.nn.one_hot(suit, SUITS, dtype=obs.dtype)
        return net(net.init(), obs.at[i, :SUITS].set(card), begin)[1][-1]

    each_suit = jax.vmap(swap, (None, 0))
    return jax.lax.map(lambda i: each_suit(i, jnp.arange(SUITS)), jnp.arange(len(obs)))


def outside(sizes: Float[np.ndarray, " age"], length: int) -> tuple[float, float]:
    """Return the fraction of Σ sizes outside a segment, at its last step and on average.

    `sizes` are indexed by age, and a segment has L = `length` steps. A step at position p in the
    segment, 0 ≤ p < L, depends on observations of age 0 to p.
    """
    inside = np.cumsum(sizes)[: min(length, len(sizes))] / np.sum(sizes)
    inside = np.pad(inside, (0, length - len(inside)), constant_values=1.0)
    return float(1 - inside[-1]), float(1 - inside.mean())


def lower(matrix: Float[np.ndarray, "time time"]) -> Float[np.ndarray, " pairs"]:
    """Return the lower triangle of a matrix, row by row."""
    return matrix[np.tril_indices(len(matrix))]


def round_digits(values: np.ndarray) -> list:
    """Round to four significant digits, to keep files small."""
    return [round_digits(x) if np.ndim(x) else float(f"{x:.4g}") for x in values]


GRID = Grid(
    "sensitivity",
    cells(),
    one_by_one(measure),
    summarize,
    agents=lambda row: 1,  # `cpu_seconds` is the time of all agents
    about="How much each past observation matters to Q (Figures 3 and 7 of the paper).",
    decides="how far back observations matter to Q",
    turn=12,
)
