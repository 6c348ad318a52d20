"""Environments of gymnax that need more than gymnax's own `make` to be trained."""

from typing import Any
from urllib.error import URLError

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments.bsuite import deep_sea
from gymnax.utils import load_mnist

from mmrl import checks, envs
from mmrl.agents import AGENTS
from mmrl.envs.repaired import REPAIRS
from mmrl.runs import Run, Setup
from tests.envs import train_each


@pytest.mark.slow
def test_deep_sea_steps_as_gymnax_has_it():
    (env, params), theirs = envs.make("DeepSea-bsuite", size=3), deep_sea.DeepSea(3)
    key = jax.random.key(0)
    (obs, state), (expected, their_state) = env.reset(key, params), theirs.reset(key, params)
    for step in range(7):  # two episodes, and one more step
        np.testing.assert_array_equal(obs, expected)
        key, action = jax.random.fold_in(key, step), jnp.int32(step % 2)
        obs, state, *ours = env.step(key, state, action, params)
        expected, their_state, *other = theirs.step(key, their_state, action, params)
        for x, y in zip(ours[:3], other[:3], strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_number_of_steps_is_whole():
    env, params = envs.make("BernoulliBandit-misc")
    checks.environment(env, params, steps=0)
    assert params.max_steps_in_episode == 100


@pytest.mark.parametrize("sizes", [{}, {"use_visual_obs": True}])
def test_observations_have_the_dtype_of_their_space(sizes: dict[str, bool]):
    env, params = envs.make("FourRooms-misc", **sizes)
    checks.environment(env, params, steps=0)
    obs, _ = jax.eval_shape(env.reset_env, jax.random.key(0), params)
    assert obs.dtype == env.observation_space(params).dtype == jnp.float32


def test_an_environment_that_cannot_be_downloaded_is_named(monkeypatch: pytest.MonkeyPatch):
    def fail() -> None:
        raise URLError("no network")

    monkeypatch.setattr(load_mnist, "load_mnist", fail)
    with pytest.raises(ValueError, match=r"`env_id` .* got 'MNISTBandit-bsuite'.*no network"):
        envs.make("MNISTBandit-bsuite")


def test_deep_sea_can_be_trained():
    env, params = envs.make("DeepSea-bsuite")
    checks.environment(env, params, steps=0)
    Run(Setup("DeepSea-bsuite"))


def refusal(agent: str, env: str, observes: tuple[str, ...] | None = None) -> str:
    try:
        Run(Setup(env, agent=agent, observes=observes))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_one_sentence_names_the_agents_for_continuous_actions():
    message = {agent: refusal(agent, "Pendulum-v1") for agent in AGENTS}
    others = {agent for agent, text in message.items() if not text}
    (sentence,) = {text for text in message.values() if text}
    names = {agent for agent in AGENTS if f"`{agent}`" in sentence}
    assert names and names <= others and {"ppo", "ppg"} <= others
    assert not others & {"dqn", "r2d2", "clear", "pqn"}
    assert not refusal("ppo", "Pendulum-v1", ("previous_action",))


@pytest.mark.slow
def test_parameters_may_be_arrays():
    def description(env: Any, params: Any) -> Any:
        return Run(Setup((env, params), seeds=(0,))).description

    env, params = envs.make("DiscountingChain-bsuite")
    later = params.replace(reward_timestep=params.reward_timestep + 1)
    assert description(env, params) == description(*envs.make("DiscountingChain-bsuite"))
    assert description(env, params) != description(env, later)


@pytest.mark.parametrize("name", REPAIRS)
def test_the_form_of_gymnax_is_refused_by_the_name_of_ours(name: str):
    with pytest.raises(ValueError, match=rf"`mmrl\.envs\.make`.*{name!r}"):
        Run(Setup(gymnax.make(name), seeds=(0,)))


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_mnist, "load_mnist", train_each.digits)


def agents(number: int) -> list[str]:
    """All agents; another one is first for each environment."""
    names = list(AGENTS)
    first = number % len(names)
    return names[first:] + names[:first]


@pytest.mark.full
@pytest.mark.parametrize(("number", "env"), list(enumerate(envs.registered_ids())))
def test_every_listed_environment_can_be_trained(number: int, env: str, mnist: None):
    with jax.numpy_rank_promotion("allow"):  # gymnax's Swimmer promotes ranks
        agent = next(name for name in agents(number) if not refusal(name, env))
        run = Run(Setup(env, train_each.config(agent, env), (0,), agent))
        after, _ = jax.eval_shape(run.program.block, run._config, run._shapes)
    assert after == run._shapes  # so that a second block compiles nothing


@pytest.mark.full
@pytest.mark.parametrize(
    ("env", "agent"),
    [
        ("DeepSea-bsuite", "dqn"),
        ("FrozenLake-misc", "r2d2"),
        ("PointRobot-misc", "ppo"),
        ("MNISTBandit-bsuite", "ppg"),
        ("popgym-MineSweeperEasy-v0", "clear"),
    ],
)
def test_a_block_is_trained_and_a_second_one_after_resuming(env: str, agent: str, mnist: None):
    outcome = train_each.pair(env, agent)
    assert outcome.kind == "trained", outcome.text
