"""Adapters for environments of other libraries, as in `envs.make("navix:Navix-DoorKey-5x5-v0")`.

Each adapter is in a separate file, so that a library is imported only when it is used. Adapters
bypass the automatic reset of a library, because `mmrl.envs.base` resets environments itself.
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
"""Prefix of each library's ids, and the module that the library installs."""
REPLACES = {"popgym-arcade": "--no-deps popgym-arcade dm-pix"}
"""Arguments of `pip install` for libraries whose requirements conflict with mmrl's."""


def is_adapter(name: Any) -> bool:
    """Return True if `name` starts with the prefix of one of the `LIBRARIES`."""
    return isinstance(name, str) and name.partition(":")[0] in LIBRARIES


def make(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the environment with id "library:name" and its default parameters.

    Raises `ValueError` if the library is not installed or cannot build the environment.
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
    except Exception as error:  # each library has its own exceptions
        raise ValueError(
            f"`env_id` must be an environment that {library} can build, got {env_id!r} with "
            f"{kwargs}: {type(error).__name__}: {error}."
        ) from error
    env.title = env_id
    return env, env.default_params
