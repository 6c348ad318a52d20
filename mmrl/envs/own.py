"""Custom environments, given by an import path such as "my_module:MyEnv"."""

import inspect
from collections.abc import Callable
from typing import Any

from mmrl._own import find, one_line
from mmrl.envs.adapters import LIBRARIES


def make(env_id: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return a custom environment and its parameters.

    Raises `ValueError` in the cases that `mmrl.envs.make` lists.
    """
    part = find(env_id, "env_id", LIBRARIES)
    if isinstance(part, type) or (callable(part) and not hasattr(part, "step_env")):
        check_arguments(env_id, part, kwargs)
        try:
            part = part(**kwargs)
        except Exception as error:
            raise ValueError(
                f"`env_id` must be a class or function that returns an environment, got "
                f"{env_id!r}, which raised {one_line(error)}."
            ) from error
    elif kwargs:
        raise ValueError(
            f"`kwargs` must be empty unless `env_id` is a class or a function, got {kwargs} for "
            f"the object {env_id}. Remove them."
        )
    env, *params = part if isinstance(part, tuple) and len(part) == 2 else (part,)
    if not hasattr(env, "step_env"):
        raise ValueError(
            "`env_id` must be an environment with gymnax's methods `reset_env` and `step_env`, or "
            f"a class or function that returns one; got {env_id!r}, which is {_article(env)}."
        )
    return env, params[0] if params else getattr(env, "default_params", None)


def check_arguments(env_id: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Raise `ValueError` unless `factory` can be called with `kwargs`."""
    try:
        signature = inspect.signature(factory)
    except ValueError:  # some callables have no signature that Python can inspect
        return
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        takes = ", ".join(str(p) for p in signature.parameters.values()) or "none"
        remedy = "" if kwargs else " To set them, name a function without arguments instead."
        raise ValueError(
            f"`kwargs` must be arguments of {env_id}, got {kwargs}: {error}. Its arguments: "
            f"{takes}.{remedy}"
        ) from None


def _article(part: Any) -> str:
    return "None" if part is None else f"of type {type(part).__name__}"
