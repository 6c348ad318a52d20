"""Collectives are found in compiled programs, with the bytes of what they leave on a device."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from mmrl.course.ch18_many_devices.collectives import traffic
from tests.helpers.devices import call, run


def talk() -> list:
    """What four devices say in a sum, a gathering, a share of a sum and a turn in a ring."""
    mesh = Mesh(jax.devices(), ("device",))

    def f(x):
        ring = [(i, (i + 1) % 4) for i in range(4)]
        return (
            jax.lax.psum(x[0], "device"),
            jax.lax.all_gather(x.astype(jnp.complex64), "device"),
            jax.lax.psum_scatter(x, "device", tiled=True),
            jax.lax.ppermute(x > 0, "device", ring),
        )

    specs = P(), P(), P("device"), P("device")
    split = jax.shard_map(f, mesh=mesh, in_specs=P("device"), out_specs=specs, check_vma=False)
    return traffic(str(jax.jit(split).lower(jnp.zeros((16, 3))).compile().as_text()))


@pytest.mark.slow
def test_what_four_devices_say_is_counted():
    assert sorted(call(talk)) == [
        ["all-gather", 16 * 3 * 8],
        ["all-reduce", 3 * 4],
        ["collective-permute", 4 * 3],
        ["reduce-scatter", 3 * 4],
    ]


def test_one_device_says_nothing():
    assert traffic(str(jax.jit(jnp.sum).lower(jnp.zeros(3)).compile().as_text())) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%a.1 = f32[4,8]{1,0} all-gather(%x), dimensions={0}", ("all-gather", 128)),
        (
            "ROOT a = (bf16[3]{0}, pred[], /*index=2*/s4[2]{0}) all-reduce(x, y, z)",
            ("all-reduce", 8),
        ),
        ("%d = f8e4m3fn[16]{0:T(128)} all-gather-done(%s)", ("all-gather", 16)),
        ("%s = (f32[1]{0}, f32[4]{0}) all-gather-start(%x), dimensions={0}", None),
        ("%f = f32[4]{0} fusion(%all-gather.1), kind=kLoop", None),
        ('%f = f32[4]{0} copy(%x), metadata={op_name="all-gather(x)"}', None),
    ],
)
def test_a_line_of_a_program_is_read(line: str, expected: tuple[str, int] | None):
    assert traffic(f"ENTRY %main {{\n  {line}\n}}") == ([expected] if expected else [])


@pytest.mark.slow
def test_a_script_that_fails_fails_the_test():
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run("1 / 0", devices=1)
