"""Checkpoints: a whole state on disk, replaced as a whole, and verified before use.

A file is a magic line, a checksum of everything after it, one line of JSON (the header) and the
leaves as an npz. No pickles are written or read.
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
from mmrl.runs.shell import called

_MAGIC = b"mmrl checkpoint 1\n"
_GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")  # generators of random numbers


def save(path: pathlib.Path, header: dict[str, Any], state: PyTree) -> None:
    """Write a checkpoint of `header` (JSON data) and `state` (arrays and keys) to `path`."""
    buffer = io.BytesIO()
    np.savez(buffer, *(np.asarray(leaf) for leaf in jax.tree.leaves(unwrap_keys(state))))
    content = dumps(header).encode() + b"\n" + buffer.getvalue()
    replace(path, _MAGIC + _checksum(content) + content)


def read(path: pathlib.Path) -> tuple[dict[str, Any], bytes]:
    """Return a checkpoint's header and payload. Raise `RunError` unless it is whole and valid."""
    try:
        content = broadcast(path.read_bytes)
    except FileNotFoundError:
        raise RunError(
            f"There is no checkpoint in {path.parent}. Pass the folder of a run; `mmrl train` "
            "prints it in its first line."
        ) from None
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    if content and not content.startswith(_MAGIC):
        raise RunError(f"{path} is not a checkpoint of this version of mmrl.")
    checksum, _, content = content[len(_MAGIC) :].partition(b"\n")
    if checksum + b"\n" != _checksum(content):
        play = called("evaluate", path.parent, "--best")
        raise RunError(
            f"{path} is damaged or cut short. Start again in another folder. If the file `best` "
            f"next to it is intact, `{play}` still plays that."
        )
    header, _, payload = content.partition(b"\n")
    return loads(header), payload


def load(path: pathlib.Path, like: PyTree) -> tuple[dict[str, Any], PyTree]:
    """Return a checkpoint's header, and its state in the structure of `like`.

    Raises `RunError` if the file is damaged or foreign.
    """
    header, payload = read(path)
    named, structure = jax.tree_util.tree_flatten_with_path(jax.eval_shape(unwrap_keys, like))
    shapes = [(x.shape, x.dtype) for _, x in named]
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as file:
            leaves = complete([file[name] for name in file.files], named)
        if [(x.shape, x.dtype) for x in leaves] != shapes:
            raise ValueError
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise RunError(f"{path} holds other arrays than this version of mmrl expects.") from None
    return header, wrap_keys(jax.tree.unflatten(structure, map(jnp.asarray, leaves)), like)


def dumps(data: Any, indent: int | None = None) -> str:
    """Return JSON that every reader accepts, with "Infinity" and "NaN" as strings.

    `float` parses these strings, in other languages too. `loads` is the inverse.
    """
    quoted = json.loads(json.dumps(data), parse_constant=str)
    return json.dumps(quoted, indent=indent, allow_nan=False)


def loads(text: str | bytes) -> Any:
    """Return the data that `dumps` wrote; also accepts the bare numbers of earlier versions."""
    return unquote(json.loads(text))


def unquote(data: Any) -> Any:
    """Return JSON data with the quoted numbers of `dumps` as floats."""
    if isinstance(data, dict):
        return {key: unquote(value) for key, value in data.items()}
    if isinstance(data, list):
        return [unquote(value) for value in data]
    return float(data) if data in ("Infinity", "-Infinity", "NaN") else data


def unwrap_keys(tree: PyTree) -> PyTree:
    """Return the tree with the words of each key in place of the key."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def wrap_keys(tree: PyTree, like: PyTree) -> PyTree:
    """Invert `unwrap_keys`: return keys of the same generators where `like` has keys."""
    kinds = {name: jax.eval_shape(partial(jax.random.key, impl=name), 0) for name in _GENERATORS}
    names = {key.dtype: name for name, key in kinds.items()}

    def wrap(x: Any, to: Any) -> Any:
        return jax.random.wrap_key_data(x, impl=names.get(to.dtype)) if _is_key(to) else x

    return jax.tree.map(wrap, tree, like)


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
