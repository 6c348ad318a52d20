"""Export of trained policies to files that `mmrl.runs.player` can play with NumPy."""

import io
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.memory import GRU, LMU, LRU, MLSTM, S6, GTrXL, Memoryless, Nothing, WindowAttention
from mmrl.memory.checks import quote_names
from mmrl.memory.lmu import legendre
from mmrl.nets import ActorCritic, Dense, DuelingHead, LinearHead, MaskedNet, Net, Stack, Tanh
from mmrl.nets.inputs import MOST, Normalizer
from mmrl.nets.policy import unit
from mmrl.runs.checkpoint import RunError, dumps
from mmrl.runs.files import create, expand, write_errors
from mmrl.runs.identity import describe
from mmrl.runs.player import FORMAT, LATER, MASKS, MEMORIES
from mmrl.runs.results import provenance
from mmrl.runs.run import Run

FIRST = "gru", "lru", "none"  # memories that every format supports
Arrays = dict[str, Any]
Reading = tuple[Any, Any, Any]
"""Parameters (`of_h`, `of_x`, `bias`) of a memory's output y = of_h h + of_x x + bias.

x is the memory's input, and h is the vector that the player's method for this memory returns.
"""


def export(
    run: Run, path: str | os.PathLike, seed: int | None = None, best: bool = False
) -> dict[str, Any]:
    """Export the greedy policy of a seed to a new file, and return its description.

    The default `seed` is the one with the highest return. If `best` is True, the best network of
    the seed is exported instead of the last one; open the run with `reopen(path, best=True)`.

    Raises `ValueError` if `seed` is not a seed of the run, or if the run has not trained a block.
    Raises `RunError` if the file exists or cannot be written, or if the player does not support the
    network.
    """
    path, seeds = expand(path), run.setup.seeds
    if run.best is None if best else not run.history:
        raise ValueError("`run` must have networks to export; got none. Train at least one block.")
    if path.suffix != ".npz":
        raise ValueError(f"`path` must end in .npz; got {path}.")
    if best and run.best is not None:
        net, blocks, returns = run.best
    else:
        net, returns = run.state.net, np.asarray(run.history[-1]["returns"])
        blocks = [len(run.history)] * len(seeds)
    if seed is not None and seed not in seeds:
        raise ValueError(f"`seed` must be one of the run's seeds, {list(seeds)}; got {seed}.")
    at = int(np.argmax(returns)) if seed is None else seeds.index(seed)
    network, arrays = _network(jax.tree.map(lambda x: x[at], net))
    about = {**_setting(run), "seed": seeds[at], "block": int(blocks[at])}
    about |= {"return": float(returns[at]), **network, "setup": describe(run.setup)}
    about |= run.snapshot.origin or provenance()
    vectors = about["continuous"] and "previous_action" in about["observes"]
    about["format"] = LATER if vectors or "normalized" in about["encoder"] else FORMAT
    if about.get("masked"):
        about["format"] = MASKS
    if about["memory"] not in FIRST:
        about["format"] = MEMORIES
    buffer = io.BytesIO()
    np.savez_compressed(buffer, about=np.array(dumps(about)), **arrays)
    with write_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            create(path, buffer.getvalue())
        except FileExistsError:
            message = f"{path} already exists. Choose another name, or move the file."
            raise RunError(message) from None
    return about


def _setting(run: Run) -> dict[str, Any]:
    """Describe the environment, the agent, the observations and the actions."""
    env, params, *_ = run.program
    space, observes = env.action_space(params), run.setup.observes
    actions = int(space.n) if hasattr(space, "n") else int(space.shape[0])
    more = {"previous_action": actions, "previous_reward": 1, "begin_flag": 1}
    description = describe(run.setup)
    return {
        "env": description.get("env") or description["own"]["env"],
        "agent": run.setup.agent,
        "observes": list(observes),
        "observation": env.observation_space(params).shape[0] - sum(more[x] for x in observes),
        "actions": actions,
    }


def _network(net: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a description of a network, and its arrays."""
    has_mask = isinstance(net, MaskedNet)
    net = net.net if has_mask else net
    policy = net.policy if isinstance(net, ActorCritic) else net
    if not isinstance(policy, Net):
        raise _export_error("network", policy)
    if type(policy.memory) not in _MEMORIES:
        raise _export_error("memory", policy.memory)
    memory, convert = _MEMORIES[type(policy.memory)]
    arrays, read_out = convert(policy.memory)
    about = {part: _layers(part, getattr(policy, part), arrays) for part in ("encoder", "head")}
    _merge_output(arrays, *read_out)
    if isinstance(net, ActorCritic):  # the last output is an auxiliary value, which is not exported
        last = f"head.{len(about['head']) - 1}"
        arrays |= {name: arrays[name][:-1] for name in (f"{last}.weight", f"{last}.bias")}
        arrays |= _rescale_last(net, arrays, last)
    continuous = isinstance(net, ActorCritic) and net.log_std is not None
    about = {"memory": memory, "continuous": continuous, **about}
    about |= {"masked": True} if has_mask else {}
    return about, {name: np.asarray(x) for name, x in arrays.items()}


def _rescale_last(net: ActorCritic, arrays: Arrays, last: str) -> Arrays:
    """Rescale the last layer to the units of the environment; return it and the action bounds."""
    if net.bounds is None:
        return {}
    center, scale = unit(net.bounds)
    weight, bias = arrays[f"{last}.weight"], arrays[f"{last}.bias"]
    layer = {f"{last}.weight": scale[:, None] * weight, f"{last}.bias": center + scale * bias}
    low, high = (np.asarray(x, np.float32) for x in net.bounds)
    return {**layer, "low": low, "high": high}


def _layers(part: str, module: Any, arrays: Arrays) -> list[str]:
    """Add the arrays of all layers in `module` to `arrays`, and return the kinds of the layers."""
    layers = module.layers if isinstance(module, Stack) else (module,)
    for i, layer in enumerate(layers):
        if type(layer) not in _LAYERS:
            raise _export_error(part, layer)
        if isinstance(layer, Normalizer):
            center, scale = layer.units
            arrays |= {f"{part}.{i}.center": center, f"{part}.{i}.scale": scale}
            arrays[f"{part}.{i}.most"] = jnp.where(jnp.array(layer.mask), MOST, jnp.inf)
            continue
        if isinstance(layer, DuelingHead):
            weight, bias = _fold(layer)
        else:
            weight, bias = layer.linear.weight, layer.linear.bias
        arrays |= {f"{part}.{i}.weight": weight, f"{part}.{i}.bias": bias}
    if part == "head" and not layers:
        raise _export_error(part, module)
    return [_LAYERS[type(layer)] for layer in layers]


def _fold(head: DuelingHead) -> tuple[Any, Any]:
    """Return the weight and bias of the linear layer that computes V + A - mean A."""
    v: Any = head.value
    a: Any = head.advantage
    weight = v.weight + a.weight - jnp.mean(a.weight, axis=0, keepdims=True)
    return weight, v.bias + a.bias - jnp.mean(a.bias)


def _merge_output(arrays: Arrays, of_h: Any, of_x: Any, bias: Any) -> None:
    """Merge the memory's output y = of_h h + of_x x + bias into the first layer of the head.

    The input of this layer becomes (h, x) instead of (y, x), which saves a matrix product.
    """
    weight = arrays["head.0.weight"]
    of_y, rest = weight[:, : len(bias)], weight[:, len(bias) :]
    arrays["head.0.weight"] = jnp.concatenate([of_y @ of_h, of_y @ of_x + rest], axis=1)
    arrays["head.0.bias"] = arrays["head.0.bias"] + of_y @ bias


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
        arrays |= _linear(name, getattr(memory, name))
    size = memory.monoid.shape[1] ** -0.5  # scale of the keys
    arrays |= {name: arrays[name] * size for name in ("key.weight", "key.bias")}
    return arrays, _read_out(memory)


def _window(memory: WindowAttention) -> tuple[Arrays, Reading]:
    return _attention(memory), _read_out(memory)


def _attention(memory: WindowAttention, part: str = "") -> Arrays:
    """Return the arrays of an attention layer, under names that begin with `part`."""
    items, _ = memory.init()
    flags = jnp.zeros((len(items), 1))  # 1 for the slots that are not empty
    arrays = {"state": jnp.concatenate([items, flags], 1), **_linear(f"{part}value", memory.value)}
    for name in ("key", "query"):
        arrays[f"{part}{name}.weight"] = getattr(memory, name).weight
    for name in ("relative", "content_bias", "position_bias"):
        arrays[part + name] = getattr(memory, name)
    return arrays


def _gtrxl(memory: GTrXL) -> tuple[Arrays, Reading]:
    arrays, states = _linear("blocks", memory.read_in), []
    for i, block in enumerate(memory.blocks):
        part = f"blocks.{i}."
        attention = _attention(block.memory, part)
        states.append(attention.pop("state"))
        arrays |= attention | _linear(f"{part}read_out", block.memory.read_out)
        for name in ("norm", "mlp_norm", "up", "down"):
            arrays |= _linear(part + name, getattr(block, name))
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


def _linear(name: str, layer: Any) -> Arrays:
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


_LAYERS = {Dense: "dense", Tanh: "tanh", LinearHead: "linear", DuelingHead: "linear"}
_LAYERS[Normalizer] = "normalized"
_MEMORIES: dict[type, tuple[str, Callable[[Any], tuple[Arrays, Reading]]]] = {
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


def _export_error(part: str, module: Any) -> RunError:
    memories = sorted({name for name, _ in _MEMORIES.values()})
    return RunError(
        f"A {part} of type {type(module).__name__} cannot be exported. The player supports the "
        f"layers of `mmrl.nets` and one of the memories {quote_names(memories)}. Only `gtrxl` may "
        "have several blocks."
    )
