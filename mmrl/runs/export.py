"""Export of trained policies to files that `mmrl.runs.player` can play with NumPy."""

import io
import math
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.agents.checks import observed_spaces
from mmrl.memory.checks import quote_names
from mmrl.nets import ActorCritic, Dense, DuelingHead, LinearHead, MaskedNet, Net, Stack, Tanh
from mmrl.nets.inputs import MOST, Normalizer
from mmrl.nets.pictures import Conv, Filters, PictureEncoder, Pixels
from mmrl.nets.policy import unit
from mmrl.runs.checkpoint import RunError, dumps
from mmrl.runs.export_memories import CONVERTERS, Arrays, linear
from mmrl.runs.files import create, expand, write_errors
from mmrl.runs.identity import describe
from mmrl.runs.player import FORMAT, LATER, MASKS, MEMORIES, PICTURES
from mmrl.runs.results import provenance
from mmrl.runs.run import Run

FIRST = "gru", "lru", "none"  # memories that every format supports


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
    if "picture" in about:
        about["format"] = PICTURES
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
    seen, *beside = observed_spaces(env, params)
    size = math.prod(seen.shape) - (0 if beside else sum(more[x] for x in observes))
    return {
        "env": description.get("env") or description["own"]["env"],
        "agent": run.setup.agent,
        "observes": list(observes),
        "observation": size,
        "actions": actions,
        **({"picture": list(seen.shape)} if len(seen.shape) == 3 else {}),
    }


def _network(net: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a description of a network, and its arrays."""
    has_mask = isinstance(net, MaskedNet)
    net = net.net if has_mask else net
    policy = net.policy if isinstance(net, ActorCritic) else net
    if not isinstance(policy, Net):
        raise _export_error("network", policy)
    if type(policy.memory) not in CONVERTERS:
        raise _export_error("memory", policy.memory)
    memory, convert = CONVERTERS[type(policy.memory)]
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
    return about, {name: _readable(np.asarray(x)) for name, x in arrays.items()}


def _readable(x: np.ndarray) -> np.ndarray:
    """Convert an array of a dtype that NumPy lacks, and cannot read, such as bfloat16."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


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
    layers = _flatten(module)
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
            if isinstance(layer, Conv):
                arrays |= _filters(f"{part}.{i}", layer)
            weight, bias = layer.linear.weight, layer.linear.bias
        arrays |= {f"{part}.{i}.weight": weight, f"{part}.{i}.bias": bias}
    if part == "head" and not layers:
        raise _export_error(part, module)
    return [_LAYERS[type(layer)] for layer in layers]


def _flatten(module: Any) -> list[Any]:
    """Return the layers of a module in the order in which they are applied."""
    if isinstance(module, Stack):
        return [layer for each in module.layers for layer in _flatten(each)]
    if isinstance(module, PictureEncoder):
        convolutions = [] if isinstance(module.conv, Pixels) else [module.conv]
        return [*convolutions, module.layer]
    return [module]


def _filters(name: str, conv: Conv) -> Arrays:
    """Return the arrays of all convolutions; the first one also scales the pixels."""
    arrays: Arrays = {}
    filters = jax.tree.leaves(conv.blocks, is_leaf=lambda x: isinstance(x, Filters))
    for k, each in enumerate(filters):
        arrays |= linear(f"{name}.{k}", each.linear)
    arrays[f"{name}.0.weight"] = arrays[f"{name}.0.weight"] / conv.unit
    return arrays


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


_LAYERS = {Dense: "dense", Tanh: "tanh", LinearHead: "linear", DuelingHead: "linear"}
_LAYERS |= {Normalizer: "normalized", Conv: "picture"}


def _export_error(part: str, module: Any) -> RunError:
    memories = sorted({name for name, _ in CONVERTERS.values()})
    return RunError(
        f"A {part} of type {type(module).__name__} cannot be exported. The player supports the "
        f"layers of `mmrl.nets` and one of the memories {quote_names(memories)}. Only `gtrxl` may "
        "have several blocks."
    )
