"""Two supervised tasks that measure what a memory can be trained to keep.

Each step of a tape shows one of `SYMBOLS` random symbols. Two marks, A and B, occur once each, at
different random steps among the first `TRAIN_STEPS` - 1 steps.

- *Recall*: report the symbols of 1, 2, 4, …, 64 steps ago, at every step.
- *Order*: report which mark came first, at every step from the second mark on.

Every tape has a twin with exchanged marks, so a memory that ignores order answers half of the order
task correctly. Training tapes have `TRAIN_STEPS` steps, and held-out tapes are `LONGER` times as
long.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mmrl.agents.common import adam, descend
from mmrl.memory import SequenceModel, make
from mmrl.memory.base import dense

SYMBOLS, MARKS = 4, 2
LAGS = (1, 2, 4, 8, 16, 32, 64)  # in steps
TRAIN_STEPS, LONGER = 128, 8  # steps of a training tape, and the factor for held-out tapes
SCORE_STEPS = 64  # steps on which recall is measured, at the end of tapes of either length
WIDTH = 32  # inputs and outputs of the memory
TASKS = ("recall", "order")

_along = jax.vmap(dense, in_axes=(None, 0))  # applies a layer to every step of a tape


class Tape(NamedTuple):
    """Symbols of a tape, the steps of both marks, and the correct answers."""

    symbols: Int[Array, " time"]
    places: Int[Array, "2"]  # steps of the marks A and B

    def inputs(self) -> Float[Array, "time channel"]:
        """Return the one-hot symbols, and a channel for each mark."""
        marks = jnp.arange(len(self.symbols))[:, None] == self.places[None]
        return jnp.concatenate([jax.nn.one_hot(self.symbols, SYMBOLS), marks], axis=1)

    def past(self) -> tuple[Int[Array, "time lag"], Bool[Array, "time lag"]]:
        """Return the symbol of each lag at each step, and True where the tape reaches so far."""
        steps = jnp.arange(len(self.symbols))[:, None] - jnp.array(LAGS)[None]
        return self.symbols[jnp.maximum(steps, 0)], steps >= 0

    def first(self) -> Bool[Array, ""]:
        """Return True if A came before B."""
        return self.places[0] < self.places[1]

    def decided(self) -> Bool[Array, " time"]:
        """Return True at the steps from the second mark on."""
        return jnp.arange(len(self.symbols)) >= jnp.max(self.places)


def tapes(random: np.random.Generator, pairs: int, length: int) -> Tape:
    """Sample `pairs` tapes, each followed by a twin whose marks are exchanged."""
    symbols = random.integers(SYMBOLS, size=(pairs, length))
    within = min(TRAIN_STEPS, length) - 1  # the last step never reveals a mark
    a, later = random.integers(within, size=pairs), random.integers(1, within, size=pairs)
    places = np.stack([a, (a + later) % within], axis=1)
    both = np.stack([places, places[:, ::-1]], axis=1).reshape(-1, MARKS)
    return Tape(jnp.array(np.repeat(symbols, 2, axis=0)), jnp.array(both))


class Reader(eqx.Module):
    """Network that consists of a linear layer, a memory and a linear layer for both answers."""

    read_in: eqx.nn.Linear
    memory: SequenceModel
    read_out: eqx.nn.Linear

    def __init__(self, name: str, width: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        outputs = len(LAGS) * SYMBOLS + 1
        self.read_in = eqx.nn.Linear(SYMBOLS + MARKS, width, key=keys[0])
        self.memory = make(name, width, width, key=keys[1])
        self.read_out = eqx.nn.Linear(width, outputs, key=keys[2])

    def __call__(
        self, xs: Float[Array, "time channel"]
    ) -> tuple[Float[Array, "time lag symbol"], Float[Array, " time"]]:
        """Return the logits of the symbols, and the logit that A came before B."""
        begin = jnp.zeros(len(xs), bool)
        _, ys = self.memory(self.memory.init(), _along(self.read_in, xs), begin)
        outputs = _along(self.read_out, ys)
        return outputs[:, :-1].reshape(len(xs), len(LAGS), SYMBOLS), outputs[:, -1]


class Clipping(NamedTuple):
    """Setting that `mmrl.agents.common.adam` reads."""

    max_grad_norm: float = 1.0


def loss(net: Any, batch: Tape, recall: Float[Array, ""] | float) -> Float[Array, ""]:
    """Return the cross-entropy of recall if `recall` is 1, and of order if it is 0."""

    def one(tape: Tape) -> tuple[Array, Array]:
        symbols, first = net(tape.inputs())
        answers, mask = tape.past()
        logs = jnp.take_along_axis(jax.nn.log_softmax(symbols), answers[..., None], -1)[..., 0]
        sign = jnp.where(tape.first(), 1.0, -1.0)
        order = jax.nn.log_sigmoid(sign * first)
        return _mean(logs, mask), _mean(order, tape.decided())

    both = jax.vmap(one)(batch)
    return -jnp.mean(recall * both[0] + (1 - recall) * both[1])


def train(
    net: Any, batches: Tape, rate: Float[Array, ""] | float, recall: Float[Array, ""] | float
) -> Any:
    """Train a network with an update per batch, while the rate decays linearly to 0; return it."""
    params, rest = eqx.partition(net, eqx.is_inexact_array)
    steps = len(batches.symbols)

    def update(learner, inputs):
        (params, state), (batch, step) = learner, inputs
        gradient = jax.grad(lambda p: loss(eqx.combine(p, rest), batch, recall))(params)
        return descend(adam(Clipping(), rate * (1 - step / steps)), params, state, gradient), None

    start = params, adam(Clipping(), 0.0).init(params)
    (params, _), _ = jax.lax.scan(update, start, (batches, jnp.arange(steps)))
    return eqx.combine(params, rest)


class Scores(NamedTuple):
    """Accuracies above chance, 0 for guessing and 1 for perfect, on held-out tapes."""

    recall: Float[Array, "*net lag"]  # in the last `SCORE_STEPS` steps of the trained length
    longer: Float[Array, "*net lag"]  # in the last `SCORE_STEPS` steps of the tape
    order: Float[Array, "*net"]  # at the end of the trained length
    longer_order: Float[Array, "*net"]  # at the end of the tape


def evaluate(net: Any, held_out: Tape, length: int = TRAIN_STEPS) -> Scores:
    """Measure recall and order on held-out tapes, after `length` steps and at their ends."""
    count = min(SCORE_STEPS, length // 2)

    def one(tape: Tape) -> Scores:
        symbols, first = net(tape.inputs())
        answers, mask = tape.past()
        right = (jnp.argmax(symbols, -1) == answers) & mask
        correct = (first > 0) == tape.first()
        ends = [slice(end - count, end) for end in (length, len(tape.symbols))]
        shares = [jnp.mean(right[end], 0) for end in ends]
        return Scores(shares[0], shares[1], correct[length - 1], correct[-1])

    # Eight tapes at a time, because a scan stores the states of all steps.
    each = jax.lax.map(one, held_out, batch_size=8)
    rates = jax.tree.map(lambda x: jnp.mean(x.astype(jnp.float32), 0), each)
    chances = (1 / SYMBOLS, 1 / SYMBOLS, 1 / 2, 1 / 2)
    above = [(x - chance) / (1 - chance) for x, chance in zip(rates, chances, strict=True)]
    return Scores(*above)


def _mean(values: Float[Array, "*shape"], use: Bool[Array, "*shape"]) -> Float[Array, ""]:
    """Return the mean of the values that are used, or 0 if there are none."""
    return jnp.sum(jnp.where(use, values, 0)) / jnp.maximum(jnp.sum(use), 1)
