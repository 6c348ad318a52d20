"""Play, probes, ablations and saturation, on tasks that agents written by hand solve exactly."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from mmrl import envs
from mmrl.envs.wrappers.observation import with_inputs
from mmrl.inspect import (
    Harm,
    Subject,
    ablate,
    all_numbers,
    decode,
    harms,
    own_numbers,
    play,
    read_entries,
    recall,
    saturate,
    subject,
)
from mmrl.inspect.ablations import with_harm
from mmrl.inspect.subjects import flat_state
from mmrl.memory import NAMES, FrameStack, make
from mmrl.nets import ActorCritic, Net
from mmrl.rollout import evaluate
from tests.helpers.inspection import Card, Cue, Growing, noise, record, window

LAG = 3  # of RepeatPreviousEasy
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def card() -> tuple[Subject, Any]:
    """An agent that solves RepeatPreviousEasy, and its episodes."""
    agent = Subject(jnp.zeros((LAG + 1, 4)), Card(LAG))
    env, params = envs.make("popgym-RepeatPreviousEasy-v0")
    return agent, play(agent, env, params, KEY, 8, 16)


def test_the_card_that_is_asked_for_decides(card: Any):
    agent, episodes = card
    result = recall(agent, episodes, KEY)
    assert result.reach() == {"gradient": LAG + 1, "change": LAG + 1, "flips": LAG + 1}
    others = np.arange(16) != LAG
    # Before step 3 the agent answers with no card, and a replaced card changes nothing.
    assert result.flips[LAG] == 1 and not result.flips[others].any()
    assert result.flips_at[LAG:, LAG].min() == 1 and not result.ignores_memory


def test_play_records_what_the_agent_saw_and_did(card: Any):
    agent, episodes = card
    assert episodes.mask.all() and episodes.obs.shape == (8, 16, 4)
    np.testing.assert_array_equal(episodes.action[:, LAG:], episodes.obs[:, :-LAG].argmax(-1))
    memory = episodes.memory.reshape(8, 16, LAG + 1, 4)
    np.testing.assert_array_equal(memory[:, LAG:, 0], episodes.obs[:, :-LAG])
    assert (episodes.reward[:, LAG:] > 0).all()
    assert episodes.state.shape[2] > 4 * LAG
    with pytest.raises(ValueError, match="`episodes` must be at least 2; got 1"):
        play(agent, None, None, KEY, 1, 16)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_window_is_read_back_exactly_up_to_its_length(kind: str):
    agent = window(3, 0)
    for seed in range(10):
        obs = np.asarray(jnp.asarray(noise(seed, 16, 24)).astype(kind).astype(jnp.float32))
        episodes = record(agent, obs, lengths=[24, 12] * 8)
        scores = decode(episodes.memory, obs, episodes.mask, (0, 1, 2, 3, 4, 30))
        assert scores[:3].min() > 0.999 and scores[3:5].max() < 0.2 and np.isnan(scores[5])


def test_a_memory_that_is_not_finite_has_a_score():
    episodes = record(window(3, 0), noise(0, 16, 24))
    memory = np.concatenate([episodes.memory] * 2, axis=2)
    memory[:, 5:, :2], memory[:, 9:, 3] = np.inf, np.nan
    memory[3, :, 0] = -np.inf
    assert decode(memory, episodes.obs, episodes.mask, (0, 1)).min() > 0.99


def test_each_number_of_a_part_counts_equally_and_constant_ones_do_not():
    episodes = record(window(1, 0), noise(0, 16, 24))
    large = 1e4 * noise(1, 16, 24, 1)
    part = np.concatenate([episodes.obs[:, :, :1], large, np.ones_like(large)], axis=2)
    assert decode(episodes.memory, part, episodes.mask, (0,))[0] == pytest.approx(0.5, abs=0.05)


def test_constant_parts_and_few_episodes_have_no_score():
    episodes = record(window(3, 0), noise(0))
    assert np.isnan(decode(episodes.memory, np.ones((8, 12, 1)), episodes.mask, (0, 1))).all()
    with pytest.raises(ValueError, match="`mask` must have at least 4 episodes; got 3"):
        decode(episodes.memory[:3], episodes.obs[:3], episodes.mask[:3], (0,))


@pytest.mark.full
def test_wide_memories_are_projected():
    wide = np.random.default_rng(0).normal(size=(8, 400, 600))
    target = wide[:, :, :2] + wide[:, :, 2:4]
    assert decode(wide, target, np.ones((8, 400), bool), (0,))[0] > 0.5


@pytest.fixture(scope="module")
def cue() -> dict[str, np.ndarray]:
    """Returns of an agent that solves the probe Memory, whose question is at step 4."""
    agent = Subject(jnp.zeros(3), Cue())
    kinds = {
        "wipe 0": Harm(wipe=0),
        "wipe 1": Harm(wipe=1),
        "wipe 4": Harm(wipe=4),
        "every": Harm(every=True),
        "freeze 0": Harm(freeze=0),
        "freeze 1": Harm(freeze=1),
        "delay 4": Harm(delay=4),
        "delay 3": Harm(delay=3),
        "noise": Harm(noise=100.0),
        "none": Harm(),
    }
    return ablate(agent, *envs.make("probe-Memory-v0"), KEY, kinds, 64)


# Without the cue the agent takes action 0, which is right in half of the episodes.
@pytest.mark.parametrize("name", ["none", "wipe 0", "freeze 1", "delay 3"])
def test_a_harm_that_keeps_the_cue_costs_nothing(name: str, cue: Any):
    assert (cue[name] == 1).all()


@pytest.mark.parametrize("name", ["wipe 1", "wipe 4", "every", "freeze 0", "delay 4", "noise"])
def test_a_harm_that_loses_the_cue_costs_half(name: str, cue: Any):
    assert -0.5 < cue[name].mean() < 0.5


@pytest.fixture(scope="module")
def noisy() -> Any:
    """A function that returns the values of a memory, played under a harm, and its read entries."""
    obs = noise(0, 4, 24, 3)

    def values(name: str, harm: Harm) -> tuple[np.ndarray, Any]:
        net = make(name, 3, 2, key=KEY)
        agent = subject(net)
        read = read_entries(agent, record(agent, obs))
        act, start = with_harm(Subject(agent.start, agent.step, True), harm, 1, read)

        def step(carry: Any, now: Any) -> Any:
            t, x = now
            return act(carry, x, t % 8 == 0, jax.random.fold_in(KEY, t))

        run = jax.jit(lambda obs: jax.lax.scan(step, start, (jnp.arange(24), obs))[1])
        return np.stack([run(x) for x in obs]), read

    return values


@pytest.mark.full_except("False-window", "False-mlstm", "True-max_plus", "False-gtrxl")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "none"])
@pytest.mark.parametrize("every", [False, True])
def test_noise_leaves_the_values_finite_and_changes_them(name: str, every: bool, noisy: Any):
    plain, _ = noisy(name, Harm(every=every))
    values, read = noisy(name, Harm(noise=0.5, every=every))
    assert np.isfinite(values).all() and any(x.any() for x in jax.tree.leaves(read))
    assert every or (values != plain).any()  # if the state is wiped, it may have no scale


@pytest.mark.parametrize("start", [(), jnp.zeros(0), jnp.zeros(0, jnp.complex64)])
def test_an_agent_without_a_state_has_no_entries(start: Any):
    agent = Subject(start, lambda state, obs, begin: (state, obs))
    read = read_entries(agent, record(agent, noise(0)))
    assert jax.tree.structure(read) == jax.tree.structure(start)
    env, params = envs.make("probe-Memory-v0")
    agent = Subject(start, lambda state, obs, begin: (state, obs[:2]))
    assert not saturate(agent, env, params, KEY, 4, 2).norm.any()
    returns = ablate(agent, env, params, KEY, {"a": Harm(), "b": Harm(noise=1.0)}, 4)
    np.testing.assert_array_equal(returns["a"], returns["b"])


def test_counters_are_not_read(noisy: Any):
    for name, counter in (("window", 1), ("ffm", 1), ("max_plus", 0), ("gated_delta", 0)):
        _, read = noisy(name, Harm())
        assert not read[counter].any() and read[1 - counter].any(), name


def test_what_is_out_of_range_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    env, params = envs.make("probe-Memory-v0")
    agent = Subject(jnp.zeros(3), Cue())
    with pytest.raises(ValueError, match="`episodes` must be at least 1; got 0"):
        saturate(agent, env, params, KEY, 0)
    with pytest.raises(ValueError, match="`episodes` must be at least 1; got 0"):
        ablate(agent, env, params, KEY, {"none": Harm()}, 0)
    with pytest.raises(ValueError, match="`kinds` must have finite values of at least 0"):
        ablate(agent, env, params, KEY, {"none": Harm(noise=float("nan"))}, 4)
    episodes = record(window(3, 0), noise(0, 16, 24))
    with pytest.raises(ValueError, match=r"`lags` must not be negative; got \[-1\]"):
        decode(episodes.memory, episodes.obs, episodes.mask, (-1,))
    with pytest.raises(ValueError, match=r"`target` must have the shape \(16, 24, numbers\)"):
        decode(episodes.memory, episodes.reward, episodes.mask, (0,))
    with pytest.raises(ValueError, match=r"`memory` must have the shape .* got \(8, 24, 6\)"):
        decode(episodes.memory[:8], episodes.obs, episodes.mask, (0,))
    with pytest.raises(ValueError, match=r"`own` must have the observation's shape, \(2,\)"):
        recall(window(3, 0), episodes, KEY, own=np.ones(3, bool))


def test_a_delay_does_not_reach_into_the_next_episode():
    agent = window(3, 0)
    act, state = with_harm(agent, Harm(delay=2), 2, read=jnp.ones((3, 2), bool))
    act, obs, actions = jax.jit(act), jnp.asarray(noise(0, 1, 8)[0]), []
    for t in range(16):
        state, action = act(state, obs[t % 8], t % 8 == 0, KEY)
        actions.append(int(action))
    assert actions[:8] == actions[8:]


@pytest.mark.full
def test_without_a_harm_the_agent_is_evaluated():
    agent = subject(Net.make("gru", 3, 2, width=8, key=KEY))
    env, params = envs.make("probe-Memory-v0")
    score = jax.jit(lambda key: evaluate(agent.policy(), env, params, agent.start, key, 16, 5))
    result = ablate(agent, env, params, KEY, {"none": harms(1)["unharmed"]}, 16)["none"]
    np.testing.assert_array_equal(result, score(KEY).returns)


def test_harms_are_refused():
    with pytest.raises(ValueError, match=r"`kinds` must .*; got a: Harm"):
        ablate(Subject((), Cue()), None, None, KEY, {"a": Harm(delay=-1)}, 4)


def test_a_state_that_grows_is_measured():
    env, params = envs.make("probe-Memory-v0")  # episodes of 5 steps
    # XLA can multiply by 1 / 48 instead of dividing, so that 1 minus a mean is not exactly 0.
    result = saturate(Subject(jnp.zeros(48), Growing(1.0)), env, params, KEY, 6, 4)
    np.testing.assert_allclose(result.norm, np.sqrt(48) * np.array([3, 8, 13, 18]), rtol=1e-6)
    assert result.growth == pytest.approx(6) and not result.nonfinite.any()
    assert result.returns.shape == (4, 6)
    np.testing.assert_array_equal(result.returns, result.reset_returns)
    result = saturate(Subject(jnp.zeros(1), Growing(1e10)), env, params, KEY, 6, 4)
    np.testing.assert_allclose(result.nonfinite, [1 / 5, 1, 1, 1], rtol=1e-6)
    with pytest.raises(ValueError, match="`times` must be at least 2"):
        saturate(Subject(jnp.zeros(1), Growing(1.0)), env, params, KEY, 6, 1)


def test_a_missing_reset_shows_in_the_returns():
    # The cue of the first episode stays: later ones are right only by chance.
    env, params = envs.make("probe-Memory-v0")
    result = saturate(Subject(jnp.zeros(3), Cue()), env, params, KEY, 64, 3)
    assert (result.reset_returns == 1).all() and (result.returns[0] == 1).all()
    assert result.returns[1:].mean() < 0.5


@pytest.mark.full
def test_networks_are_subjects():
    obs, begin = jnp.arange(3.0), jnp.array(True)
    net = ActorCritic.make("gru", 3, 2, width=4, key=KEY)
    agent = subject(net)
    values = agent.step(agent.start, obs, begin)[1]
    expected = net.step(net.init(), obs, begin)[1].policy
    np.testing.assert_allclose(values, expected.log_prob(jnp.arange(2)), rtol=1e-5)
    assert agent.choose(values) == expected.mode() and subject(agent) is agent
    real = subject(ActorCritic.make("gru", 3, 2, continuous=True, width=4, key=KEY))
    assert real.continuous and real.choose(values).shape == (2,)
    memory = FrameStack(3, 2, key=KEY)
    np.testing.assert_array_equal(
        subject(memory).step(memory.init(), obs, begin)[1],
        memory.step(memory.init(), obs, begin)[1],
    )
    with pytest.raises(ValueError, match="`net` must have the methods init and step; got list"):
        subject([])


@pytest.mark.full
def test_only_the_numbers_of_the_task_are_its_own():
    env, params = envs.make("probe-MaskedHigherLower-v0")
    bare = own_numbers(with_inputs(env, params, ()), params)
    every = own_numbers(with_inputs(env, params, ("previous_action", "begin_flag")), params)
    actions = with_inputs(env, params, ()).action_space(params).n
    everything = all_numbers(with_inputs(env, params, ("previous_action", "begin_flag")), params)
    np.testing.assert_array_equal(
        np.flatnonzero(~everything), len(bare) - np.arange(actions, 0, -1)
    )
    assert bare[:-actions].all() and not bare[-actions:].any()
    np.testing.assert_array_equal(every[: len(bare)], bare)
    assert len(every) == len(bare) + actions + 1 and not every[len(bare) :].any()


def test_a_state_is_flat_with_both_parts_of_complex_numbers():
    state = (jnp.array([1 + 2j, 3.0]), jnp.array([[4]]), jnp.array(True), ())
    np.testing.assert_array_equal(flat_state(state), [1, 3, 2, 0, 4, 1])
    assert flat_state(()).shape == (0,)
