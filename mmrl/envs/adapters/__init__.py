"""Environments of other libraries, by their names: `envs.make("navix:Navix-DoorKey-5x5-v0")`.

Each library has an adapter in a separate file, the only one that imports it. An adapter passes on
the library's step and reset, without its automatic reset, because `step` of `base` resets.
"""

from importlib import import_module
from typing import Any

LIBRARIES = {
    "craftax": "craftax",
    "gymnasium": "gymnasium",
    "jumanji": "jumanji",
    "navix": "navix",
    "popgym-arcade": "popgym_arcade",
    "xland": "xminigrid",
}
"""Prefixes of names before the colon, and the modules of the libraries."""
REPLACES = {"popgym-arcade": "--no-deps popgym-arcade dm-pix"}
"""Install arguments of a library whose requirements would replace ours, such as an older gymnax."""


def known(name: Any) -> bool:
    """Return True if a name is that of an environment in one of the `LIBRARIES`."""
    return isinstance(name, str) and name.partition(":")[0] in LIBRARIES


def make(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the environment "library:name", built by its library with `kwargs`, and parameters.

    Raises `ValueError` if the library is not installed, and for what it refuses.
    """
    library, _, name = env_id.partition(":")
    module = LIBRARIES[library]
    try:
        import_module(module)
    except ImportError as error:
        words = REPLACES.get(library, f"'mmrl-jax[{library}]'")
        checkout = "" if library in REPLACES else f", or in a checkout -e '.[{library}]'"
        raise ValueError(
            f"`env_id` must name an environment of an installed library, got {env_id!r}: {error}. "
            f"Run `pip install {words}`{checkout}."
        ) from None
    adapter = import_module(f".of_{module}", __name__)
    try:
        env = adapter.make(name, **kwargs)
    except Exception as error:  # each library raises its own kinds
        raise ValueError(
            f"`env_id` must name what {library} can make, got {env_id!r} with {kwargs}: "
            f"{type(error).__name__}: {error}."
        ) from error
    env.title = env_id
    return env, env.default_params
