"""The costs on paper: the figures of one case by hand, and bytes as a compiled program has them."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from mmrl.course.ch18_many_devices.collectives import traffic
from mmrl.course.ch18_many_devices.scaling import ACROSS, Link, cost, leaf_bytes
from mmrl.memory import FFM, LRU, S5, LinearAttention
from tests.helpers.devices import call

KEY = jax.random.key(0)
MEMORIES = {
    "lru": functools.partial(LRU, 3, 2, state_size=64),
    "s5": functools.partial(S5, 3, 2, state_size=64),
    "ffm": functools.partial(FFM, 3, 2, trace_size=64),
    "linear attention": functools.partial(LinearAttention, 3, 2, key_size=64, value_size=64),
}


def message_sizes() -> dict[str, list[int]]:
    """What the all-gathers of three memories' scans leave on one of four devices."""
    mesh, here, result = Mesh(jax.devices(), ("time",)), P("time"), {}
    for name in ("lru", "ffm", "linear attention"):
        model = MEMORIES[name](key=KEY)
        read = functools.partial(model, model.init(), axis="time")
        split = jax.shard_map(
            read, mesh=mesh, in_specs=(here, here), out_specs=(P(), here), check_vma=False
        )
        tape = jnp.zeros((8, 3)), jnp.zeros(8, bool)
        messages = traffic(str(jax.jit(split).lower(*tape).compile().as_text()))
        assert {kind for kind, _ in messages} == {"all-gather"}
        result[name] = [size for _, size in messages]
    return result


@pytest.mark.full
@pytest.mark.slow
def test_a_compiled_program_sends_the_bytes_that_are_counted():
    for name, sizes_sent in call(message_sizes).items():
        sizes = leaf_bytes(MEMORIES[name](key=KEY))
        # Of what four totals take, three were received; on a CPU each leaf comes by itself.
        assert sizes_sent == [4 * size for size in sizes]
        assert cost(sizes, 2**20, 4).received_bytes == sum(sizes_sent) * 3 // 4


# A million steps of 64 complex units, or of 64 keys by 64 values: (devices, bytes, share of time).
FIGURES = [
    ("lru", 8, 7 * 1025, 0.082),
    ("lru", 64, 63 * 1025, 0.691),
    ("linear attention", 8, 7 * (64 * 65 * 4 + 1), 0.0056),
    ("linear attention", 64, 63 * (64 * 65 * 4 + 1), 0.183),
]


@pytest.mark.parametrize(("name", "devices", "bytes_in", "share"), FIGURES)
def test_a_million_steps(name: str, devices: int, bytes_in: int, share: float):
    sizes = leaf_bytes(MEMORIES[name](key=KEY))
    result = cost(sizes, 2**20, devices)
    assert result.received_bytes == bytes_in
    assert result.share == pytest.approx(share, rel=0.01)
    # By hand: four passes over its own elements, one latency, and then the bytes.
    latency, speed = (10e-6, 450e9) if devices == 8 else (30e-6, 50e9)
    passes = 4 * 2**20 / devices * sum(sizes) / 4.8e12
    assert result.seconds == pytest.approx(passes + latency + bytes_in / speed, rel=1e-9)


def test_one_device_has_nobody_to_talk_to():
    result = cost([400, 112], 1000, 1)
    assert (result.received_bytes, result.latency, result.transfer, result.share) == (0, 0, 0, 0)
    assert result.prefixes == 512_000 and result.limit == "memory"
    # Two devices read and write twice, half as much each: they are no quicker.
    assert cost([400, 112], 1000, 2).memory == result.memory == 2 * 512_000 / 4.8e12


def test_what_takes_longest_limits():
    small, large = leaf_bytes(MEMORIES["lru"](key=KEY)), [2**20]
    assert cost(small, 2**20, 8).limit == "memory"
    assert cost(small, 2**20, 64).limit == "latency"
    assert cost(large, 64, 64).limit == "transfer"


def test_leaves_that_travel_alone_wait_alone():
    together, alone = (cost([8, 8, 1], 64, 8, ACROSS, united=united) for united in (True, False))
    assert alone.latency == pytest.approx(3 * together.latency) == pytest.approx(90e-6)
    assert alone.received_bytes == together.received_bytes == 7 * 17
    slow = cost([8, 8, 1], 64, 8, Link(1.0, 17.0), bandwidth=68.0)
    assert (slow.memory, slow.latency, slow.transfer) == (8.0, 1.0, 7.0)


@pytest.mark.parametrize(("steps", "devices"), [(10, 4), (10, 0), (0, 1)])
def test_a_tape_that_cannot_be_split_is_refused(steps: int, devices: int):
    with pytest.raises(ValueError, match="`devices` must divide `steps`"):
        cost([4], steps, devices)
