"""Properties of memories that tests derive from the memories' constructors."""

import inspect

from mmrl import memory


def sizes(name: str) -> list[str]:
    """Return the size arguments of a memory, other than the input and output size."""
    parameters = inspect.signature(memory._constructor(name)).parameters.items()
    return [k for k, p in parameters if type(p.default) is int and k != "blocks"]


def is_monoid(name: str) -> bool:
    """Return True if a memory is a single memory monoid."""
    return issubclass(memory._constructor(name), memory.Memory)
