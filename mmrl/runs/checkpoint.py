"""Checkpoints: a whole state on disk, replaced as a whole, checked before it is believed.

A file is a magic line, a checksum of all that follows, one line of JSON (the header) and the leaves
as an npz. No pickles are written or read.
"""

import hashlib
import io
import json
import math
import pathlib
import zipfile
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mmrl.runs.earlier import complete
from mmrl.runs.files import replace
from mmrl.runs.processes import RunError as RunError
from mmrl.runs.processes import broadcast
from mmrl.runs.shell import called

_MAGIC = b"mmrl checkpoint 1\n"
_NOT_FINITE = ("Infinity", "-Infinity", "NaN")
_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")  # of random numbers


def save(path: pathlib.Path, header: dict[str, Any], state: PyTree) -> None:
    """Put a checkpoint of `header` (JSON data) and `state` (arrays and keys) at `path`."""
    buffer = io.BytesIO()
    np.savez(buffer, *(np.asarray(leaf) for leaf in jax.tree.leaves(unwrap_keys(state))))
    content = dumps(header).encode() + b"\n" + buffer.getvalue()
    replace(path, _MAGIC + _checksum(content) + content)


def read(path: pathlib.Path) -> tuple[dict[str, Any], bytes]:
    """A checkpoint's header and payload. Raises `RunError` unless it is whole and ours."""
    try:
        content = broadcast(path.read_bytes)
    except FileNotFoundError:
        raise RunError(
            f"There is no checkpoint in {path.parent}. Give the folder of a run: `mmrl train` "
            "says where it is in its first line."
        ) from None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    if not content:
        raise RunError(
            f"{path} is empty: the disk lost it. Delete it to begin this run again with "
            "`--resume`, or start in another folder."
        )
    if not content.startswith(_MAGIC):
        raise RunError(f"{path} is not a checkpoint of this version of mmrl.")
    checksum, _, content = content[len(_MAGIC) :].partition(b"\n")
    if checksum + b"\n" != _checksum(content):
        play = called("evaluate", path.parent, "--best")
        raise RunError(
            f"{path} is damaged or cut short: start again in another folder. If the file `best` "
            f"beside it is whole, `{play}` still plays that."
        )
    header, _, payload = content.partition(b"\n")
    return loads(header), payload


def load(path: pathlib.Path, like: PyTree) -> tuple[dict[str, Any], PyTree]:
    """A checkpoint's header and state, of the structure of `like`.

    Raises `RunError` if it is damaged or foreign.
    """
    header, payload = read(path)
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as file:
            leaves = [file[name] for name in file.files]
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise RunError(f"{path} does not hold arrays; it was not written by mmrl.") from None
    named, structure = jax.tree_util.tree_flatten_with_path(jax.eval_shape(unwrap_keys, like))
    leaves, shapes = complete(leaves, named), [x for _, x in named]
    if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in shapes]:
        raise RunError(f"{path} holds other arrays than this version of mmrl expects.")
    arrays = jax.tree.unflatten(structure, [jnp.asarray(x) for x in leaves])
    return header, wrap_keys(arrays, like)


def dumps(data: Any, indent: int | None = None) -> str:
    """JSON that every reader accepts. What it has no numbers for is in quotes: "Infinity", "NaN".

    `float` understands these, and so do other languages. `loads` is the inverse.
    """
    return json.dumps(_quote(data), indent=indent, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """The data that `dumps` wrote, or an earlier version, which left those words without quotes."""
    return unquote(json.loads(text))


def unquote(data: Any) -> Any:
    """JSON data with the numbers that `dumps` put in quotes."""
    if isinstance(data, dict):
        return {key: unquote(value) for key, value in data.items()}
    if isinstance(data, list):
        return [unquote(value) for value in data]
    return float(data) if data in _NOT_FINITE else data


def unwrap_keys(tree: PyTree) -> PyTree:
    """The tree with the numbers of keys in place of the keys."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def wrap_keys(tree: PyTree, like: PyTree) -> PyTree:
    """The inverse of `unwrap_keys`: keys of the same generators where `like` has some."""
    kinds = {name: jax.eval_shape(partial(jax.random.key, impl=name), 0) for name in _GENERATORS}
    names = {key.dtype: name for name, key in kinds.items()}

    def wrap(x: Any, to: Any) -> Any:
        return jax.random.wrap_key_data(x, impl=names.get(to.dtype)) if _is_key(to) else x

    return jax.tree.map(wrap, tree, like)


def _quote(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _quote(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_quote(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return json.dumps(data)
    return data


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
