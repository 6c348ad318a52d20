"""Scans over devices and what they cost, by `mmrl.scan` on one device and chapter 18."""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.course.ch18_many_devices.scaling import ACROSS, WITHIN, cost, leaf_bytes
from mmrl.memory import FFM, LRU, S5, LinearAttention
from mmrl.monoid import Affine, Max, Resettable, Sum
from mmrl.scan import scan


def shard_prefixes() -> Iterator[dict[str, Any]]:
    """The prefixes of tapes with a reset or without, and the totals of their stretches."""
    steps, gain = 16, 0.7
    xs = np.random.default_rng(6).normal(size=steps)
    elements = {
        "sum": (Sum(xs[0]), xs),
        "affine": (Affine(), (np.full(steps, gain), xs)),
        "max": (Max(), (np.full(steps, np.log(gain)), xs)),
    }
    # At both sides of an edge that every number of devices has, inside a stretch, and at no step.
    for (name, (monoid, rows)), reverse in itertools.product(elements.items(), (False, True)):
        run = jax.jit(partial(scan, Resettable(monoid), reverse=reverse))
        last = 0 if reverse else -1
        for reset, devices in itertools.product((-1, 7, 8, 10), (1, 2, 4, 8)):
            tape = jax.tree.map(jnp.asarray, rows), jnp.arange(steps) == reset
            parts = jax.tree.map(lambda x, n=devices: x.reshape(n, -1), tape)
            totals = [run(jax.tree.map(lambda x, i=i: x[i], parts)) for i in range(devices)]
            settings = dict(monoid=name, gain=gain, reset=reset, devices=devices, reverse=reverse)
            yield settings | {
                "xs": xs,
                "states": np.asarray(jax.tree.leaves(run(tape)[0])[-1]),
                "totals": [[float(h[last]) for h in jax.tree.leaves(total)] for total in totals],
            }


def costs() -> Iterator[dict[str, Any]]:
    """What each memory's scan costs within a node and across."""
    with jax.enable_x64(False):  # as a reader's elements are
        elements = {d: sizes(d) for d in (8, 64)}
    for d, result in elements.items():
        for model, devices, united in itertools.product(result, (1, 2, 8, 64), (True, False)):
            for network, link in (("within", WITHIN), ("across", ACROSS)):
                price = cost(result[model], 2**20, devices, link, united=united)
                settings = dict(model=model, d=d, steps=2**20, devices=devices, united=united)
                expected = price._asdict() | {"seconds": price.seconds, "share": price.share}
                yield settings | {"network": network, "sizes": result[model], "wanted": expected}


def sizes(d: int) -> dict[str, list[int]]:
    """The bytes of the leaves of each memory's elements, by the memories themselves."""
    key = jax.random.key(0)
    memories = {
        "lru": LRU(3, 2, state_size=d, key=key),
        "s5": S5(3, 2, state_size=d, key=key),
        "ffm": FFM(3, 2, trace_size=d, key=key),
        "linear_attention": LinearAttention(3, 2, key_size=d, value_size=d, key=key),
    }
    return {model: leaf_bytes(memory) for model, memory in memories.items()}


VECTORS = {"sharded": shard_prefixes, "costs": costs}
