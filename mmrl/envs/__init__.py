"""Environments from POPGym and gymnax, and probes. `make` builds an environment from its id.

gymnax takes several seconds to import, so it is imported only when the first environment is made.
`register` makes the environments of this package available through `gymnax.make`.
"""

import difflib
from typing import Any


def make(env_id: str, *, observe: str = "observation", **kwargs: Any) -> tuple[Any, Any]:
    """Return the environment with id `env_id` and its default parameters.

    The id can be any id of gymnax, "popgym-<Task><Level>-v0" or "probe-<Name>-v0".

    The id of a custom environment names a module and an attribute, as in "my_module:MyEnv". The
    module must be in the current folder or on PYTHONPATH, and it is imported, so its code runs.
    MyEnv must be an environment, a tuple (environment, parameters), or a class or function that
    returns one of these when it is called with `kwargs`.

    The id of another library's environment starts with the name of the library, as in
    "navix:Navix-DoorKey-5x5-v0". `mmrl.envs.adapters.LIBRARIES` lists the supported libraries.
    `kwargs` are passed to the library.

    With `observe="state"`, observations are replaced by the Markov state, so that no memory is
    needed; see `mmrl.envs.wrappers.StateObservation`. With `observe="pixels"`, observations are
    images; among our environments, POPGym's RepeatPrevious and Concentration support this value.

    Raises `ValueError` if the id is unknown, the module cannot be imported, the object is not an
    environment, or the environment does not accept `kwargs` or does not support `observe`.

        >>> env, params = make("popgym-RepeatFirstEasy-v0")
        >>> params.max_steps_in_episode
        51
    """
    from mmrl.envs.wrappers.observation import apply_observe

    env, params = _make(env_id, kwargs)
    return apply_observe(env, observe), params


def _make(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return an environment, without the wrapper for `observe`, and its default parameters."""
    from mmrl.envs import adapters, own
    from mmrl.envs._gymnax import gymnax

    if adapters.is_adapter(env_id):
        return adapters.make(env_id, kwargs)
    if ":" in str(env_id):
        return own.make(env_id, kwargs)
    names = registered_ids()
    if env_id not in names:
        near = (difflib.get_close_matches(str(env_id), names, n=3, cutoff=x) for x in (0.4, 0))
        nearest = next(filter(None, near))
        raise ValueError(
            f"`env_id` must name a registered environment, got {env_id!r}. Nearest: "
            f"{', '.join(nearest)}. `mmrl train --list` lists all {len(names)} environments. For a "
            "custom environment, use an id like my_module:MyEnv."
        )
    own.check_arguments(env_id, gymnax.registration._registry[env_id], kwargs)
    return _of_gymnax(env_id, kwargs)


def _of_gymnax(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return a registered environment and its default parameters."""
    from mmrl.envs import repaired

    try:
        return repaired.make(env_id, kwargs)
    except OSError as error:  # the download of MNIST failed
        raise ValueError(
            f"`env_id` must be an environment whose files are available, got {env_id!r}; a "
            f"download failed: {error}. Connect to the network for the first use, or choose "
            "another environment."
        ) from error


def registered_ids() -> list[str]:
    """Return all registered ids, first gymnax's and then mmrl's."""
    from mmrl.envs._gymnax import gymnax

    register()
    return list(gymnax.registered_envs)


def register() -> None:
    """Register the environments of this package with gymnax.

    Ids that are already registered are skipped, so this can be called repeatedly.
    """
    from mmrl.envs import masked, popgym, probes
    from mmrl.envs._gymnax import gymnax

    for env_id, factory in {
        **popgym.SPECS,
        **probes.SPECS,
        **probes.TRIALS,
        **masked.SPECS,
    }.items():
        if env_id not in gymnax.registered_envs:
            gymnax.register(env_id, factory)
