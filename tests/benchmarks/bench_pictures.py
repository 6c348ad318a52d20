"""Networks of pictures against `jax.lax`, and the bytes of a stored step against float32.

    python tests/benchmarks/bench_pictures.py

Time: an iteration of PPO without memory in which `Conv` is replaced by the same network written
with `conv_general_dilated` and `reduce_window`, with the same weights. Everything else is equal:
the environment, the storage, the layers above, the minibatches. The other rows time only a gradient
of the network, on 64 pictures. With five seeds, each with its own filters, both are vmapped.
Rounds alternate, and CPU-seconds are compared, so that a busy machine slows both alike. Measured on
two cores, `Conv` takes 1.14 times as long as by hand for a gradient of the IMPALA stack with one
seed, and 0.53 times with five, whose filters by hand become a grouped convolution. For the small
stack, the factors are 0.91 and 0.94. An iteration of PPO takes at most 0.06 times as long, because
inside loops XLA does not use its fast convolution for gradients by hand.

Bytes: of a step in each storage, for pictures of 84 × 84 × 4 bytes and for the 10 × 10 × 4 flags of
MinAtar, against a storage that holds both pictures of a step as float32. The rest of a step is
equal on both sides.
"""

import dataclasses
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from rival import cpu_seconds

import mmrl  # noqa: F401 (sets the XLA flag before the backend starts)
from mmrl.agents import ppo
from mmrl.agents.policies import actor_critic
from mmrl.envs import make
from mmrl.envs._gymnax import spaces
from mmrl.envs.probes import Probe
from mmrl.nets.pictures import Conv, Filters, Picture
from mmrl.replay import reservoir, sequences, tape
from mmrl.rollout import Transition

MOST = 1.3  # times the CPU-seconds of the network by hand
BATCH = 64  # pictures of a gradient
SHAPES = {"small": (10, 10, 4), "impala": (84, 84, 4)}
SCREEN = (84, 84, 4)


class ByHand(eqx.Module):
    """The arithmetic of a `Conv` with its weights, by the operations of `jax.lax`."""

    filters: list[tuple[jax.Array, jax.Array]]
    linear: eqx.nn.Linear
    small: bool = eqx.field(static=True)
    unit: float = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(self, conv: Conv):
        layers = jax.tree.leaves(conv.blocks, is_leaf=lambda x: isinstance(x, Filters))
        self.filters = []
        for layer in layers:
            weight = layer.linear.weight
            shape = (3, 3, weight.shape[1] // 9, weight.shape[0])
            self.filters.append((weight.T.reshape(shape), layer.linear.bias))
        self.small, self.unit = len(layers) == 1, conv.unit
        self.linear, self.output_size = conv.linear, conv.output_size

    def __call__(self, picture: jax.Array) -> jax.Array:
        x = picture.astype(jnp.float32) / self.unit
        filters = iter(self.filters)
        if self.small:
            x = convolution(x, *next(filters), "VALID")
        else:
            for _ in range(3):
                x = convolution(x, *next(filters), "SAME")
                window = (3, 3, 1), (2, 2, 1)
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *window, "SAME")
                for _ in range(2):
                    y = convolution(jax.nn.relu(x), *next(filters), "SAME")
                    x = x + convolution(jax.nn.relu(y), *next(filters), "SAME")
        weight, bias = self.linear.weight, self.linear.bias
        assert bias is not None
        return jax.nn.relu(jax.nn.relu(x).ravel() @ weight.T + bias)


def convolution(x: jax.Array, weight: jax.Array, bias: jax.Array, padding: str) -> jax.Array:
    axes = ("NHWC", "HWIO", "NHWC")
    strides = (1, 1)
    y = jax.lax.conv_general_dilated(x[None], weight, strides, padding, dimension_numbers=axes)
    return y[0] + bias[None, None]


def by_hand(tree: Any) -> Any:
    """Return a tree in which every `Conv` is one by hand."""
    is_conv = lambda x: isinstance(x, Conv)  # noqa: E731
    return jax.tree.map(lambda x: ByHand(x) if is_conv(x) else x, tree, is_leaf=is_conv)


class Screen(Probe):
    """Bytes of noise in which the cue is a bright or a dark row; one step, +1 for its name."""

    num_steps, obs_size = 1, 1

    def look(self, state: Any, params: Any) -> Any:
        height, width, channels = SCREEN
        pixels = jnp.arange(height * width * channels, dtype=jnp.int32) * 40_503 % 256
        return (pixels.reshape(SCREEN) // 2 + 127 * state.cue).astype(jnp.uint8)

    def observation_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(0, 255, SCREEN, jnp.uint8)

    def reward(self, state: Any, action: Any) -> Any:
        return jnp.where(jnp.asarray(action) == state.cue, 1.0, -1.0)

    def optimal_q(self, obs: Any, begin: Any, gamma: Any) -> Any:
        raise NotImplementedError  # a probe must define it; only time is measured here


Program = Callable[[], Any]


def gradients(stack: str, seeds: int) -> dict[str, Program]:
    """Return programs of a gradient of both networks on `BATCH` pictures."""
    picture = Picture(SHAPES[stack], unit=255.0, stack=stack)
    nets = eqx.filter_vmap(lambda key: Conv(picture, key=key))(keys(seeds))
    x = jax.random.randint(jax.random.key(1), (BATCH, *SHAPES[stack]), 0, 256).astype(jnp.uint8)

    def loss(net: Any, x: Any) -> Any:
        return jnp.mean(jax.vmap(net)(x) ** 2)

    both = {"ours": nets, "peer": eqx.filter_vmap(by_hand)(nets)}
    if seeds == 1:
        both = {name: jax.tree.map(lambda x: x[0], net) for name, net in both.items()}
    gradient = eqx.filter_grad(loss)
    one = gradient if seeds == 1 else eqx.filter_vmap(gradient, in_axes=(0, None))
    program = jax.jit(lambda net, x: one(net, x))
    return {name: partial(program, net, x) for name, net in both.items()}


def iterations(stack: str, seeds: int) -> dict[str, Program]:
    """Return programs of an iteration of PPO with both networks."""
    env, params = make("Breakout-MinAtar")
    if stack == "impala":
        env = Screen()
        params = env.default_params
    sizes = {"small": (64, 128), "impala": (8, 16)}[stack]
    config = ppo.Config(memory="none", environments=sizes[0], rollout=sizes[1], encoder=stack)
    config = dataclasses.replace(config, epochs=2, minibatches=4)
    programs = {}
    for name, change in (("ours", lambda net: net), ("peer", by_hand)):

        def build(*args: Any, change: Any = change) -> Any:
            return change(actor_critic(*args))

        init = partial(ppo.init, config, env, params, make=build)
        state = jax.jit(jax.vmap(init))(keys(seeds))
        step = partial(ppo.iterate, config, env, params)
        if seeds == 1:
            state = jax.tree.map(lambda x: x[0], state)
        programs[name] = partial(jax.jit(step if seeds == 1 else jax.vmap(step)), state)
    return programs


def keys(seeds: int) -> jax.Array:
    return jax.random.split(jax.random.key(0), seeds)


def median_seconds(programs: dict[str, Program], rounds: int) -> dict[str, float]:
    """Return the median CPU-seconds of a call of each, in alternating rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(rounds + 1):  # the first one compiles
        for name, program in programs.items():
            began = cpu_seconds()
            jax.block_until_ready(program())
            if turn > 0:
                seconds[name].append(cpu_seconds() - began)
    return {name: statistics.median(each) for name, each in seconds.items()}


def bytes_per_step(kind: str, shape: tuple[int, ...], dtype: Any) -> float:
    """Return the bytes of a step in a storage, of which one picture and the next are a part."""
    flag, number, picture = jnp.zeros((), bool), jnp.zeros(()), jnp.zeros(shape, dtype)
    one = Transition(picture, jnp.int32(0), number, picture, flag, flag, flag)
    steps, memory = 64_000, jnp.zeros(64)

    def init() -> Any:
        if kind == "tape":
            return tape.init(one, steps, workers=16)
        if kind == "sequences":
            return sequences.init(one, memory, steps, workers=16)
        return reservoir.init(one, memory, steps, workers=16, length=64)

    leaves = jax.tree.leaves(jax.eval_shape(init))
    return sum(x.size * x.dtype.itemsize for x in leaves) / steps


def run(quick: bool = False) -> Iterator[dict]:
    """Rows of bytes, then of time."""
    for kind in ("tape", "sequences", "reservoir"):
        for shape in (SCREEN, (10, 10, 4)):
            flat = (shape[0] * shape[1] * shape[2],)  # vectors are stored with every step, twice
            ours, peer = (
                bytes_per_step(kind, shape, jnp.uint8),
                bytes_per_step(kind, flat, jnp.float32),
            )
            yield {
                "name": f"{kind}, pictures of {' × '.join(map(str, shape))}",
                "ours": ours,
                "peer": peer,
                "ratio": peer / ours,
                "peer_name": "both pictures as float32",
                "unit": "bytes per step",
                "target": 4.0,
            }
    for stack in SHAPES:
        for seeds in (1, 5):
            for what, programs in (("gradient", gradients), ("iteration of PPO", iterations)):
                if stack == "impala" and (quick or (seeds == 5 and what != "gradient")):
                    continue
                seconds = median_seconds(programs(stack, seeds), 1 if quick else 7)
                yield {
                    "name": f"{stack}, {what}, {seeds} seed{'s' * (seeds > 1)}",
                    **seconds,
                    "ratio": seconds["peer"] / seconds["ours"],
                    "peer_name": "by jax.lax",
                    "unit": "CPU-seconds",
                    "target": 1 / MOST,
                }


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['name']:36} {row['ours']:10.3f} / {row['peer']:12.3f} {row['unit']}"
            f" = {row['ratio']:6.2f} × {row['peer_name']}  (target {row['target']:.2f})",
            flush=True,
        )
