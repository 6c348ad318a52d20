"""Properties of every memory, from its constructor."""

import inspect

from mmrl import memory


def sizes(name: str) -> list[str]:
    """Return the sizes that a model takes, in addition to those of its input and output."""
    parameters = inspect.signature(memory._constructor(name)).parameters.items()
    return [k for k, p in parameters if type(p.default) is int and k != "blocks"]


def is_monoid(name: str) -> bool:
    """Return True if a model is one memory monoid."""
    return issubclass(memory._constructor(name), memory.Memory)
