"""What can be asked of every memory by its constructor alone."""

import inspect

from mmrl import memory


def sizes(name: str) -> list[str]:
    """The sizes that a model takes, beside those of its input and output."""
    parameters = inspect.signature(memory._constructor(name)).parameters.items()
    return [k for k, p in parameters if type(p.default) is int and k != "blocks"]


def is_monoid(name: str) -> bool:
    """Whether a model is one memory monoid."""
    return issubclass(memory._constructor(name), memory.Memory)
