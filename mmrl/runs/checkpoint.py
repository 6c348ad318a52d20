"""Checkpoints: a whole state on disk, replaced as a whole, checked before it is believed.

A file is a magic line, a checksum of all that follows, one line of JSON (the header) and the leaves
as an npz. No pickles are written or read.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import pathlib
import re
import uuid
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mmrl.runs.claims import alone
from mmrl.runs.hosts import RunError as RunError
from mmrl.runs.hosts import told
from mmrl.runs.shell import called

# Settings of agents that files of earlier versions lack, and what those versions did.
EARLIER = {"noise_scale": False, "estimator": "gae", "horizon": 0.0, "precision": "default"}
EARLIER |= {"shards": 1, "normalize_rewards": False, "anneal": 0.0, "lam": 0.0}
# Arrays of a state that files of earlier versions lack: zeros.
LATER = re.compile(r"\.(moments|advantages)\[[345]\]$")
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
        content = told(path.read_bytes)
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
    leaves, shapes = _complete(leaves, named), [x for _, x in named]
    if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in shapes]:
        raise RunError(f"{path} holds other arrays than this version of mmrl expects.")
    arrays = jax.tree.unflatten(structure, [jnp.asarray(x) for x in leaves])
    return header, wrap_keys(arrays, like)


def _complete(leaves: list[np.ndarray], named: list[tuple[Any, Any]]) -> list[np.ndarray]:
    """The leaves of a file, with zeros for those in `LATER` if it was written without them."""
    new = [bool(LATER.search(jax.tree_util.keystr(path))) for path, _ in named]
    if len(leaves) != len(named) - sum(new):
        return leaves
    stored = iter(leaves)
    return [
        np.zeros(x.shape, x.dtype) if added else next(stored)
        for added, (_, x) in zip(new, named, strict=True)
    ]


def earlier(setup: dict[str, Any]) -> dict[str, Any]:
    """A described setup in today's words: `observes` was once a setting for each of its names."""
    if "observes" in setup:
        return setup
    names = ("previous_action", "previous_reward", "begin_flag")
    rest = {name: value for name, value in setup.items() if name not in names}
    return rest | {"observes": [name for name in names if setup.get(name)]}


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


def replace(path: pathlib.Path, content: bytes) -> None:
    """Put a whole new file in the place of the old one: after a crash it is one or the other."""
    partial = path.with_name(path.name + ".partial")
    with alone(partial) as file:
        try:
            file.truncate(0)
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            partial.unlink(missing_ok=True)  # on a full disk it would only be in the way
            raise
        os.replace(partial, path)


def create(path: pathlib.Path, content: bytes) -> None:
    """Write a new file at once. Raises `FileExistsError` if there is one, which stays as it is."""
    whole = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        replace(whole, content)
        _link(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def _link(file: pathlib.Path, new: pathlib.Path) -> None:
    """Give a file a second name, or on a disk without links another name, which must be new."""
    try:
        os.link(file, new)
    except FileExistsError:
        raise
    except OSError:
        new.open("xb").close()
        os.replace(file, new)


def expanded(path: str | os.PathLike) -> pathlib.Path:
    """Return a path in which a `~` at the front is the user's home, as in a shell.

    Raises `ValueError` for an empty string, which pathlib takes for the current folder.
    """
    if not os.fspath(path):
        raise ValueError("`path` must name a file or a folder; got ''. For this folder, use '.'.")
    return pathlib.Path(os.path.expanduser(path))


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
    """Turn a failure to write under `path` into a `RunError` that says so."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"Cannot write to {path}: {error.strerror or error}. Choose a folder that you may "
            "write to, not below a file, on a disk with room; what was saved before is intact."
        ) from None


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
