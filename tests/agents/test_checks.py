"""Settings that no agent can learn with are refused, by all agents alike."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import AGENTS
from mmrl.agents.settings import Settings as Base
from mmrl.agents.settings import kinds_of, limit, positive, share
from mmrl.envs import make

ENV = make("probe-Memory-v0")
# Values of scalars, and the scalars for which each is refused.
ZERO = {"learning_rate", "auxiliary_rate", "max_grad_norm", "clip", "reward_clip", "rho_max", "tau"}
MAY_BE_INFINITE = {"max_grad_norm", "clip", "reward_clip", "importance_max", "rho_max", "c_max"}
MAY_BE_INFINITE |= {"horizon", "prox_center"}


def scalars(agent: str) -> list[str]:
    return [f.name for f in dataclasses.fields(AGENTS[agent].Config) if kinds_of(f)[0] is float]


def refuses(agent: str, **values: Any) -> bool:
    config = AGENTS[agent].Config(**values)
    try:
        AGENTS[agent].check(config, *ENV)
    except ValueError as error:
        assert f"`{next(iter(values))}`" in str(error)
        return True
    return False


@pytest.mark.parametrize("agent", AGENTS)
def test_scalars_that_switch_learning_off_are_refused(agent: str):
    assert not refuses(agent)
    for name in scalars(agent):
        for value in (math.nan, -1.0, -math.inf):
            assert refuses(agent, **{name: value}), (name, value)
        accepts_infinity = not refuses(agent, **{name: math.inf})
        assert accepts_infinity == (name in MAY_BE_INFINITE), name
        assert accepts_infinity == (not refuses(agent, **{name: 1e39})), name  # ∞ in float32
        # The least positive float64 is 0 in float32.
        for zero in (0.0, 5e-324) if name in ZERO else ():
            assert refuses(agent, **{name: zero}), (name, zero)
        if name in ("beta1", "beta2"):
            assert refuses(agent, **{name: 1.0}) and refuses(agent, **{name: 1 - 1e-9})


def test_equal_exploration_of_all_actors_is_a_setting():
    assert not refuses("r2d2", epsilon_exponent=0.0) and not refuses("r2d2", epsilon_base=1.0)


@pytest.mark.parametrize("agent", AGENTS)
def test_counts_below_one_are_refused(agent: str):
    may_be_zero = {"staleness", "overlap", "burn_in"}
    may_be_zero |= {"capacity"} if agent == "clear" else set()
    for field in dataclasses.fields(AGENTS[agent].Config):
        if kinds_of(field)[0] is int:
            assert refuses(agent, **{field.name: -1})
            assert refuses(agent, **{field.name: 0}) or field.name in may_be_zero, field.name


@dataclasses.dataclass
class Settings:
    """Of any type, as for users: the annotations of an agent's are enforced in tests."""

    rate: float = positive(1.0)
    norm: float = limit(1.0)
    beta: float = share(0.5, off=1.0)


@pytest.mark.parametrize("kind", [np.float32, np.float64, jnp.float32, lambda x: np.array([1, x])])
def test_numbers_of_any_type_are_checked(kind: Any):
    for bad in (0.0, math.nan, -1.0):
        with pytest.raises(ValueError, match="`rate` must be positive and finite"):
            Base.check_ranges(Settings(kind(bad)))
    Base.check_ranges(Settings(kind(1e-3), kind(math.inf)))
    with pytest.raises(ValueError, match="`norm` must be positive"):
        Base.check_ranges(Settings(norm=kind(0.0)))
    with pytest.raises(ValueError, match="`beta` must be below 1"):
        Base.check_ranges(Settings(beta=kind(1.0)))


def test_traced_settings_pass():
    jax.eval_shape(lambda x: Base.check_ranges(Settings(x)), jnp.zeros(()))
