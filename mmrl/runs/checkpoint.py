"""Checkpoints, with atomic updates and a checksum.

A file consists of a magic line, a checksum of the remaining content, a header in one line of JSON,
and the leaves of the state in npz format. Pickle is not used.
"""

import hashlib
import io
import json
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
from mmrl.runs.shell import command_line

_MAGIC = b"mmrl checkpoint 1\n"
_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")  # JAX's implementations of random keys


def save(path: pathlib.Path, header: dict[str, Any], state: PyTree) -> None:
    """Write a checkpoint with a `header` (JSON data) and a `state` (arrays and random keys)."""
    buffer = io.BytesIO()
    np.savez(buffer, *(np.asarray(leaf) for leaf in jax.tree.leaves(unwrap_keys(state))))
    content = dumps(header).encode() + b"\n", buffer.getbuffer()
    replace(path, _MAGIC, _checksum(*content), *content)


def read(path: pathlib.Path) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the payload of a checkpoint. Raises `RunError` if it cannot be read."""
    try:
        content = broadcast(path.read_bytes)
    except FileNotFoundError:
        raise RunError(
            f"There is no checkpoint in {path.parent}. Pass the folder of a run, which "
            "`mmrl train` prints in its first line."
        ) from None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    if content and not content.startswith(_MAGIC):
        raise RunError(
            f"{path} is not a checkpoint of this version of mmrl. Use the version that wrote it."
        )
    body = content.find(b"\n", len(_MAGIC)) + 1
    if content[len(_MAGIC) : body] != _checksum(memoryview(content)[body:]):
        play = command_line("evaluate", path.parent, "--best")
        raise RunError(
            f"{path} is damaged or cut short. If the file `best` next to it is intact, you can "
            f"still play the best networks with `{play}`. To train, start again in another folder."
        )
    payload = content.index(b"\n", body) + 1
    return loads(content[body:payload]), memoryview(content)[payload:]


def load(path: pathlib.Path, like: PyTree) -> tuple[dict[str, Any], PyTree]:
    """Return the header of a checkpoint, and its state as a pytree with the structure of `like`.

    Raises `RunError` if the file is damaged or was not written by this version of mmrl.
    """
    header, payload = read(path)
    paths, structure = jax.tree_util.tree_flatten_with_path(jax.eval_shape(unwrap_keys, like))
    shapes = [(x.shape, x.dtype) for _, x in paths]
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as file:
            leaves = complete([file[name] for name in file.files], paths)
        leaves = [_with_dtype(leaf, dtype) for leaf, (_, dtype) in zip(leaves, shapes, strict=True)]
        if [(x.shape, x.dtype) for x in leaves] != shapes:
            raise ValueError
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise RunError(
            f"{path} does not contain the arrays that this version of mmrl expects. Use the "
            "version that wrote it."
        ) from None
    return header, wrap_keys(jax.tree.unflatten(structure, map(jnp.asarray, leaves)), like)


def dumps(data: Any, indent: int | None = None) -> str:
    """Return standard JSON, in which infinity and NaN are the strings "Infinity" and "NaN".

    Python's `float` and most other languages parse these strings. `loads` is the inverse.
    """
    strings = json.loads(json.dumps(data), parse_constant=str)
    return json.dumps(strings, indent=indent, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """Parse the output of `dumps`. Unquoted Infinity and NaN from earlier versions are accepted."""
    return unquote(json.loads(text))


def unquote(data: Any) -> Any:
    """Replace the strings "Infinity", "-Infinity" and "NaN" in JSON data with floats."""
    if isinstance(data, dict):
        return {key: unquote(value) for key, value in data.items()}
    if isinstance(data, list):
        return [unquote(value) for value in data]
    return float(data) if data in ("Infinity", "-Infinity", "NaN") else data


def unwrap_keys(tree: PyTree) -> PyTree:
    """Replace every random key in a tree with its key data."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def wrap_keys(tree: PyTree, like: PyTree) -> PyTree:
    """Invert `unwrap_keys`: convert key data to random keys at the leaves where `like` has keys."""
    kinds = {name: jax.eval_shape(partial(jax.random.key, impl=name), 0) for name in _GENERATORS}
    names = {key.dtype: name for name, key in kinds.items()}

    def wrap(x: Any, to: Any) -> Any:
        return jax.random.wrap_key_data(x, impl=names.get(to.dtype)) if _is_key(to) else x

    return jax.tree.map(wrap, tree, like)


def _checksum(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode() + b"\n"


def _with_dtype(leaf: np.ndarray, dtype: Any) -> np.ndarray:
    """Restore a dtype that NumPy lacks, such as bfloat16: `np.load` returns its bytes as void."""
    is_same_size = leaf.dtype.itemsize == np.dtype(dtype).itemsize
    return leaf.view(dtype) if leaf.dtype.kind == "V" and is_same_size else leaf


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
