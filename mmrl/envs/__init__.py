"""Environments: POPGym's tasks, probes, and gymnax's own, under one `make`.

Importing this package is cheap. gymnax takes some seconds to load, so it is imported with the first
environment, or by `register`, for code that calls `gymnax.make`.
"""

import difflib
from typing import Any


def make(env_id: str, *, observe: str = "observation", **kwargs: Any) -> tuple[Any, Any]:
    """Return the environment called `env_id`, built with `kwargs`, and its default parameters.

    As `gymnax.make`, for gymnax's environments, "popgym-<Task><Level>-v0" and "probe-<Name>-v0".

    A custom one is called "my_module:MyEnv": MyEnv in my_module.py, in the current folder or on
    PYTHONPATH, which is an environment, or a class or a function that returns one when it is called
    with `kwargs`, or a tuple of an environment and its parameters. The module is imported, so its
    code runs. One of another library is called by the library: "navix:Navix-DoorKey-5x5-v0", and
    in this way all of `mmrl.envs.adapters.LIBRARIES`; `kwargs` are the library's.

    With `observe="state"` the environment shows its Markov state in place of its observation, so
    that memory is of no use: see `mmrl.envs.wrappers.StateObservation`. With `observe="pixels"` it
    shows its observation as a picture; RepeatPrevious and Concentration of POPGym can.

    Raises `ValueError` for a name that is not registered or not in the module, with the nearest
    ones, for arguments that the environment does not take, with those that it takes, for a module
    that cannot be imported, for an object that is not an environment, and for an environment
    without what `observe` names.
    """
    from mmrl.envs.wrappers.observation import observed

    env, params = _made(env_id, kwargs)
    return observed(env, observe), params


def _made(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return an environment with its own observation, and its default parameters."""
    from mmrl.envs import adapters, own
    from mmrl.envs._gymnax import gymnax

    if adapters.known(env_id):
        return adapters.make(env_id, kwargs)
    if ":" in str(env_id):
        return own.make(env_id, kwargs)
    names = registered()
    if env_id not in names:
        nearest = difflib.get_close_matches(str(env_id), names, n=3, cutoff=0.0)
        raise ValueError(
            f"`env_id` must name a registered environment, got {env_id!r}. Nearest: "
            f"{', '.join(nearest)}. `mmrl train --list` lists all {len(names)}; a custom one is "
            "called my_module:MyEnv."
        )
    own.check_arguments(env_id, gymnax.registration._registry[env_id], kwargs)
    return _of_gymnax(env_id, kwargs)


def _of_gymnax(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return a registered environment and its default parameters."""
    from mmrl.envs import repaired

    try:
        return repaired.make(env_id, kwargs)
    except OSError as error:  # MNIST is downloaded
        raise ValueError(
            f"`env_id` must name an environment that can be built here; {env_id} downloads a file: "
            f"{error}. Connect to the network once, or choose another environment."
        ) from error


def registered() -> list[str]:
    """Return the ids that `make` accepts: gymnax's, then ours."""
    from mmrl.envs._gymnax import gymnax

    register()
    return list(gymnax.registered_envs)


def register() -> None:
    """Register our environments with `gymnax.make` too. A second call has no effect."""
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
