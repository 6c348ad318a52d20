"""Custom environments, found by module and name: "my_module:MyEnv"."""

import inspect
from collections.abc import Callable
from typing import Any

from mmrl._own import find, told


def make(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return a custom environment and its parameters; raise errors as `mmrl.envs.make` does."""
    found = find(env_id, "env_id")
    if isinstance(found, type) or (callable(found) and not hasattr(found, "step_env")):
        check_arguments(env_id, found, kwargs)
        try:
            found = found(**kwargs)
        except Exception as error:
            raise ValueError(
                f"`env_id` must name a factory of an environment, got {env_id!r}, which raised "
                f"{told(error)}."
            ) from error
    elif kwargs:
        raise ValueError(
            f"`kwargs` are for a class or a function, got {kwargs} for {env_id}, an object."
        )
    env, *params = found if isinstance(found, tuple) and len(found) == 2 else (found,)
    if not hasattr(env, "step_env"):
        raise ValueError(
            "`env_id` must name an environment like gymnax's, with `reset_env` and "
            f"`step_env`, or a class or a function that builds one; got {env_id!r}, which is "
            f"{_article(env)}."
        )
    return env, params[0] if params else getattr(env, "default_params", None)


def check_arguments(env_id: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Raise `ValueError` unless `factory` can be called with `kwargs`."""
    try:
        signature = inspect.signature(factory)
    except ValueError:  # its signature is unknown
        return
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        takes = ", ".join(str(p) for p in signature.parameters.values()) or "none"
        raise ValueError(
            f"`kwargs` of {env_id} do not fit, got {kwargs}: {error}. It takes: {takes}."
        ) from None


def _article(found: Any) -> str:
    return "None" if found is None else f"of type {type(found).__name__}"
