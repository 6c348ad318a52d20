"""Environments of gymnax that need more than gymnax's own `make` to be trained."""

from urllib.error import URLError

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments.bsuite import deep_sea
from gymnax.utils import load_mnist

from mmrl import checks, envs
from mmrl.agents import AGENTS, ppo
from mmrl.runs import Run, Setup


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
    with pytest.raises(ValueError, match=r"MNISTBandit-bsuite downloads a file: .*no network"):
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


def test_one_sentence_names_the_agents_for_continuous_actions():
    said = {agent: refusal(agent, "Pendulum-v1") for agent in AGENTS}
    others = {agent for agent, text in said.items() if not text}
    (sentence,) = {text for text in said.values() if text}
    assert {agent for agent in AGENTS if f"`{agent}`" in sentence} == others == {"ppo", "ppg"}
    assert refusal("ppo", "Pendulum-v1", ("previous_action",)) == sentence


@pytest.mark.full
@pytest.mark.parametrize("env", envs.registered())
def test_every_listed_environment_can_be_trained(env: str, monkeypatch: pytest.MonkeyPatch):
    digits = np.zeros((4, 28, 28)), np.zeros(4, int)
    monkeypatch.setattr(load_mnist, "load_mnist", lambda: (digits, digits))
    config = ppo.Config(memory="none", width=2, environments=2, rollout=2, block=1, epochs=1)
    run = Run(Setup(env, config, (0,), "ppo"))
    with jax.numpy_rank_promotion("allow"):  # gymnax's Swimmer promotes ranks
        _, metrics = jax.eval_shape(run.program.block, run._config, jax.eval_shape(run.begin))
    assert metrics.returns.shape[0] == 1
