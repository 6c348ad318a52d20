"""Trained networks play the original popgym as they play our port."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import AGENTS, find
from mmrl.commands import evaluate, original
from mmrl.envs.popgym import LEVELS
from mmrl.nets import Categorical, Outputs
from mmrl.runs import OPTIONAL_INPUTS, Run, Setup
from tests.helpers.runs import CONFIG

NAMES = [*(f"{task}Easy" for task in LEVELS), "RepeatPreviousPaper"]


@pytest.mark.filterwarnings("ignore:Maze environments:DeprecationWarning")
@pytest.mark.full_except("popgym-RepeatFirstEasy-v0", "popgym-CountRecallEasy-v0")
@pytest.mark.slow
@pytest.mark.parametrize("env", [f"popgym-{name}-v0" for name in NAMES])
def test_the_original_shows_what_the_port_shows(env: str):
    """Shapes of observations and numbers of actions agree, also with the additions of a run."""
    vector = "Pendulum" in env  # actions are vectors of numbers
    config: Any = dataclasses.replace(CONFIG, batch=1024, capacity=16_384)
    if vector:
        config = AGENTS["ppo"].Config(memory="none", width=8)
    run = Run(Setup(env, config, agent="ppo" if vector else "dqn", observes=OPTIONAL_INPUTS))
    actions = run.program.env.action_space(run.program.params)
    before = np.zeros((1, *actions.shape)) if vector else np.array([-1])
    theirs = original.original(env)()
    obs = original._flat(theirs, theirs.reset(seed=0)[0])[None]
    features = original.features(run, obs, before, np.zeros(1), np.array([True]))
    space = run.program.env.observation_space(run.program.params)
    assert features.shape == (1, *space.shape)
    last = np.full(actions.shape, actions.high) if vector else int(actions.n) - 1
    theirs.step(original._action(theirs, last))


# One agent for each way to read an action from a network.
READERS = {module.greedy: name for name, module in reversed([*AGENTS.items()])}


@pytest.mark.full
@pytest.mark.parametrize("agent", READERS.values())
def test_every_agent_plays_what_its_greedy_policy_plays(
    agent: str, monkeypatch: pytest.MonkeyPatch
):
    module = find(agent)
    config = module.Config(memory="elman", width=8, environments=4)
    run = Run(Setup(env="popgym-RepeatFirstEasy-v0", agent=agent, config=config, seeds=(0, 1)))
    run.snapshot = run.snapshot._replace(state=run.begin())
    obs_of, actions = [], []  # [seed · time]
    features_of, action_of = original.features, original._action

    def features(run: Run, obs: Any, actions: Any, rewards: Any, begin: Any) -> Any:
        obs_of.append((features_of(run, obs, actions, rewards, begin)[0], begin[0]))
        return obs_of[-1][0][None]

    monkeypatch.setattr(original, "features", features)
    monkeypatch.setattr(original, "_action", lambda e, a: actions.append(a) or action_of(e, a))
    returns = original.play(run, run.state.net, 1)
    assert returns.shape == (2, 1) and len(obs_of) == len(actions)

    @jax.jit
    def act(net: Any, memory: Any, obs: Any, begin: Any) -> Any:
        return module.greedy(net)(memory, obs, begin, jax.random.key(0))

    for seed in range(2):
        net = jax.tree.map(lambda x, i=seed: x[i], run.state.net)
        memory = jax.tree.map(jnp.asarray, net.init())
        half = slice(seed * len(obs_of) // 2, (seed + 1) * len(obs_of) // 2)
        for (obs, begin), action in zip(obs_of[half], actions[half], strict=True):
            memory, expected = act(net, memory, obs, begin)
            assert action == expected
    assert len(set(actions)) > 1


def test_features_are_those_of_the_wrappers():
    config = dataclasses.replace(CONFIG, batch=64, capacity=512)
    run = Run(Setup(env="popgym-RepeatFirstEasy-v0", config=config, observes=OPTIONAL_INPUTS))
    env, params = run.program.env, run.program.params
    obs, state = env.reset(jax.random.key(0), params)
    reward = np.zeros(())
    for action, begin in ((-1, True), (2, False)):
        cards = np.asarray(obs)[None, :4]
        rewards = np.asarray(reward, float)[None]
        features = original.features(run, cards, np.array([action]), rewards, np.array([begin]))
        np.testing.assert_array_equal(features[0], obs)
        obs, _, reward, *_ = env.step(jax.random.key(1), state, 2, params)


class Recall(eqx.Module):
    """Names the card of some steps ago, as `weights` choose among the last ones."""

    weights: Any

    def init(self) -> Any:
        return jnp.zeros((4, 4))

    def step(self, state: Any, obs: Any, begin: Any) -> Any:
        state = jnp.roll(state, 1, axis=0).at[0].set(obs[:4])
        outputs = self.weights @ state
        return state, Outputs(Categorical(outputs), outputs[0], outputs[0])


@pytest.mark.full
@pytest.mark.slow
def test_a_network_is_worth_the_same_in_the_original():
    """One that knows the answer, and one that looks back a step too few."""
    run = Run(Setup(env="popgym-RepeatPreviousEasy-v0", agent="ppo", seeds=(0, 1)))
    state = SimpleNamespace(net=Recall(jnp.eye(4)[jnp.array([3, 2])]))
    run.snapshot = run.snapshot._replace(state=state)
    net = run.state.net
    ours, theirs = evaluate.greedy_returns(run, net, 100, 0), original.play(run, net, 100)
    np.testing.assert_allclose(ours[0], 1.0, atol=1e-5)
    np.testing.assert_allclose(theirs[0], 1.0, atol=1e-5)
    # Other decks on either side: four standard errors.
    errors = np.sqrt((ours.var(1) + theirs.var(1)) / 100)[1]
    assert abs(ours[1].mean() - theirs[1].mean()) < 4 * errors and ours[1].max() < 0.5


def test_what_is_not_in_popgym_has_no_original():
    for env_id in ("probe-Memory-v0", "popgym-RepeatFirstPaper-v0", "CartPole-v1"):
        with pytest.raises(ValueError, match=f"needs a task of popgym; got '{env_id}'"):
            original.original(env_id)


def test_without_popgym_the_original_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install popgym==1\.0\.7"):
        original.original("popgym-RepeatFirstEasy-v0")
