"""Small setups that tests of runs and commands share, and functions that inspect runs."""

import dataclasses
import json
import pathlib
from typing import Any

import jax
import numpy as np

from mmrl.course import plain
from mmrl.runs import Setup, checkpoint

# These sizes equal those in agents/test_dqn_training.py, so that both share a compiled program.
CONFIG = dataclasses.replace(
    plain.DQN,
    memory_sizes=(("state_size", 4),),
    width=8,
    batch=16,
    environments=4,
    rollout=4,
    updates=2,
    capacity=64,
    block=2,
    blocks=3,
    episodes=4,
)
SETUP = Setup(env="probe-Memory-v0", config=CONFIG, seeds=(0, 1))

# A setup of R2D2 with similar sizes.
R2D2 = Setup(
    env="probe-Memory-v0",
    agent="r2d2",
    seeds=(0, 1),
    config=dataclasses.replace(
        plain.R2D2,
        width=8,
        batch=4,
        length=4,
        overlap=2,
        burn_in=2,
        n_step=2,
        environments=4,
        rollout=4,
        capacity=64,
        block=2,
        blocks=2,
        episodes=4,
    ),
)


def arguments(config: Any) -> list[str]:
    """Return the command-line options for `config`, without the number of blocks."""
    words: list[str] = []
    default = type(config)()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "blocks" or value == getattr(default, field.name):
            continue
        option = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, tuple):
            words += [f"--{option}", *(str(word) for pair in value for word in pair)]
        else:
            words += [f"--{option}", str(value)]
    return words


SEEDS = ["--seeds", *map(str, SETUP.seeds)]
ARGUMENTS = [*SEEDS, *arguments(CONFIG)]


def setup(**changes: Any) -> Setup:
    """Return `SETUP` with changed fields of the setup or of its config."""
    own = {k: v for k, v in changes.items() if hasattr(SETUP, k)}
    config = {k: v for k, v in changes.items() if k not in own}
    return dataclasses.replace(SETUP, **own, config=dataclasses.replace(CONFIG, **config))


def payload(path: pathlib.Path) -> bytes:
    return checkpoint.read(path / "checkpoint")[1]


def leaves(state: Any) -> list[np.ndarray]:
    keys_as_numbers = jax.tree.map(
        lambda x: (
            jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        ),
        state,
    )
    return [np.asarray(x) for x in jax.tree.leaves(keys_as_numbers)]


def write(path: pathlib.Path, header: dict[str, Any], payload: bytes) -> None:
    content = json.dumps(header).encode() + b"\n" + payload
    (path / "checkpoint").write_bytes(checkpoint._MAGIC + checkpoint._checksum(content) + content)
