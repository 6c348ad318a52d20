"""What can be asked of every memory by its constructor alone."""

import inspect

import jax

from mmrl import memory


def sizes(name: str) -> list[str]:
    """The sizes that a model takes, beside those of its input and output."""
    model = type(memory.make(name, 1, 1, key=jax.random.key(0)))
    parameters = inspect.signature(model).parameters.items()
    return [k for k, p in parameters if type(p.default) is int and k != "blocks"]
