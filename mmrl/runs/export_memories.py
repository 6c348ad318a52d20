"""Arrays of memories, as `mmrl.runs.player` reads them."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from mmrl.memory import GRU, LMU, LRU, MLSTM, S6, GTrXL, Memoryless, Nothing, WindowAttention
from mmrl.memory.lmu import legendre

Arrays = dict[str, Any]
Reading = tuple[Any, Any, Any]
"""Parameters (`of_h`, `of_x`, `bias`) of a memory's output y = of_h h + of_x x + bias.

x is the memory's input, and h is the vector that the player's method for this memory returns.
"""


def _lru(memory: LRU) -> tuple[Arrays, Reading]:
    # In the player's h, real and imaginary parts alternate, so the columns of `read_out` do, too.
    gain = jnp.sqrt(-jnp.expm1(-2 * jnp.exp(memory.nu)))
    real, imag = gain[None, :, None] * memory.read_in
    states = {"state": jnp.zeros_like(memory.eigenvalues), "eigenvalues": memory.eigenvalues}
    real_out, imag_out = memory.read_out
    read_out = jnp.stack([real_out, -imag_out], axis=-1).reshape(len(real_out), -1)
    skip: Any = memory.skip
    return {**states, "read_in": real + 1j * imag}, (read_out, skip.weight, skip.bias)


def _gru(memory: GRU) -> tuple[Arrays, Reading]:
    gru: Any = memory.gru
    state = memory.init()
    arrays = {
        "state": state,
        **{"input.weight": gru.weight_ih, "input.bias": gru.bias},
        **{"recur.weight": gru.weight_hh},
        # Only the candidate n has a bias in the recurrent product.
        "recur.bias": jnp.concatenate([state, state, gru.bias_n]),
    }
    out: Any = memory.read_out
    return arrays, (out.weight, jnp.zeros((len(out.bias), gru.weight_ih.shape[1])), out.bias)


def _memoryless(memory: Memoryless) -> tuple[Arrays, Reading]:
    out: Any = memory.read_out
    return _no_units(out.in_features), (jnp.zeros((len(out.bias), 0)), out.weight, out.bias)


def _nothing(memory: Nothing) -> tuple[Arrays, Reading]:
    sizes = memory.input_size
    return _no_units(sizes), (jnp.zeros((0, 0)), jnp.zeros((0, sizes)), jnp.zeros(0))


def _no_units(inputs: int) -> Arrays:
    """Return the arrays of an LRU without units."""
    none = jnp.zeros(0, jnp.complex64)
    return {"state": none, "eigenvalues": none, "read_in": jnp.zeros((0, inputs), jnp.complex64)}


def _lmu(memory: LMU) -> tuple[Arrays, Reading]:
    read_in, out, skip = memory.read_in.weight, memory.read_out.weight, memory.skip
    order = memory.monoid.keys
    system, drive = (jnp.asarray(x, jnp.float32) for x in legendre(order, memory.delay))
    arrays = {"state": jnp.zeros((len(read_in), order)), "read_in": read_in}
    return {**arrays, "held": system.T, "drive": drive}, (out, skip.weight, skip.bias)


def _s6(memory: S6) -> tuple[Arrays, Reading]:
    names = "step_bias", "step_gain", "skip"
    return {
        "state": jnp.zeros_like(memory.log_decay),
        "rate": -jnp.exp(jnp.clip(memory.log_decay, -20, 20)),
        **{"read_in": memory.read_in.weight, "select": memory.select.weight},
        **{name: getattr(memory, name) for name in names},
    }, _read_out(memory)


def _mlstm(memory: MLSTM) -> tuple[Arrays, Reading]:
    _, scale, table = memory.init()
    arrays = {"state": jnp.append(scale, table)}
    for name in ("key", "query", "value", "gates", "output_gate"):
        arrays |= linear(name, getattr(memory, name))
    size = memory.monoid.shape[1] ** -0.5  # scale of the keys
    arrays |= {name: arrays[name] * size for name in ("key.weight", "key.bias")}
    return arrays, _read_out(memory)


def _window(memory: WindowAttention) -> tuple[Arrays, Reading]:
    return _attention(memory), _read_out(memory)


def _attention(memory: WindowAttention, part: str = "") -> Arrays:
    """Return the arrays of an attention layer, under names that begin with `part`."""
    items, _ = memory.init()
    flags = jnp.zeros((len(items), 1))  # 1 for the slots that are not empty
    arrays = {"state": jnp.concatenate([items, flags], 1), **linear(f"{part}value", memory.value)}
    for name in ("key", "query"):
        arrays[f"{part}{name}.weight"] = getattr(memory, name).weight
    for name in ("relative", "content_bias", "position_bias"):
        arrays[part + name] = getattr(memory, name)
    return arrays


def _gtrxl(memory: GTrXL) -> tuple[Arrays, Reading]:
    arrays, states = linear("blocks", memory.read_in), []
    for i, block in enumerate(memory.blocks):
        part = f"blocks.{i}."
        attention = _attention(block.memory, part)
        states.append(attention.pop("state"))
        arrays |= attention | linear(f"{part}read_out", block.memory.read_out)
        for name in ("norm", "mlp_norm", "up", "down"):
            arrays |= linear(part + name, getattr(block, name))
        for name in ("gate", "mlp_gate"):
            gate = getattr(block, name)
            arrays[f"{part}{name}.bias"] = gate.bias
            for weights in ("from_y", "from_x", "candidate"):
                arrays[f"{part}{name}.{weights}"] = getattr(gate, weights).weight
    return {"state": jnp.stack(states), **arrays}, _read_out(memory)


def _read_out(memory: Any) -> Reading:
    """Return the parameters of an output that depends on x only through h."""
    out = memory.read_out
    return out.weight, jnp.zeros((len(out.bias), memory.input_size)), out.bias


def linear(name: str, layer: Any) -> Arrays:
    """Return the arrays of a linear layer under `name`."""
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


CONVERTERS: dict[type, tuple[str, Callable[[Any], tuple[Arrays, Reading]]]] = {
    LRU: ("lru", _lru),
    GRU: ("gru", _gru),
    GTrXL: ("gtrxl", _gtrxl),
    LMU: ("lmu", _lmu),
    MLSTM: ("mlstm", _mlstm),
    S6: ("s6", _s6),
    WindowAttention: ("window", _window),
    Memoryless: ("none", _memoryless),
    Nothing: ("none", _nothing),
}
"""Name of each memory in a file, and a function that returns its arrays and its output."""
