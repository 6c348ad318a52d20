"""The editions in one file: one update has the library's numbers, and each file stands alone."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools")]
import editions  # noqa: E402

from mmrl import nets  # noqa: E402
from mmrl.agents import common, dqn, ppo  # noqa: E402
from mmrl.agents.ppo import learner  # noqa: E402
from mmrl.monoid import LongMoments  # noqa: E402
from mmrl.replay import tape  # noqa: E402
from mmrl.rollout import Transition  # noqa: E402

NAMES = editions.NAMES
PACKAGES = {"equinox", "gymnax", "jax", "optax"} | set(sys.stdlib_module_names)
T, GAMES = 12, 4


@pytest.fixture(autouse=True)
def promoting() -> Iterator[None]:
    """The editions add a bias to a whole tape, as JAX allows by default."""
    with jax.numpy_rank_promotion("allow"):
        yield


def edition(name: str) -> ModuleType:
    """Import a fresh copy of an edition, so that a test may change its sizes."""
    spec = importlib.util.spec_from_file_location(name, editions.EDITIONS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def transplant(net: Any, example: Any) -> Any:
    """The parameters of a library's network, in the form of an edition's; heads lose extra rows."""
    ours, form = jax.tree.flatten(example)
    theirs = jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array))
    return form.unflatten([x[: y.shape[0]] for x, y in zip(theirs, ours, strict=True)])


def equal(ours: Any, theirs: Any, atol: float = 1e-5) -> None:
    """Assert that two trees of parameters or gradients agree; a missing row must be 0."""
    theirs = jax.tree.leaves(eqx.filter(theirs, eqx.is_inexact_array))
    for x, y in zip(jax.tree.leaves(ours), theirs, strict=True):
        np.testing.assert_allclose(x, y[: x.shape[0]], atol=atol, rtol=1e-4)


def steps_of(rows: tuple[int, ...]) -> Transition:
    """Random steps [game, time]: one-hot observations and flags of episodes of random lengths."""
    rng = np.random.default_rng(0)
    last = rng.random(rows) < 0.2
    terminated = last & (rng.random(rows) < 0.5)
    begin = np.roll(last, 1, axis=-1)
    begin[..., 0] = rng.random(rows[:-1]) < 0.5

    def obs(flag):
        obs = np.eye(4)[rng.integers(0, 4, rows)]
        return jnp.asarray(np.concatenate([obs, flag[..., None]], axis=-1), jnp.float32)

    return Transition(
        obs=obs(begin),
        action=jnp.asarray(rng.integers(0, 4, rows), jnp.int32),
        reward=jnp.asarray(rng.normal(size=rows), jnp.float32),
        next_obs=obs(np.zeros(rows)),
        begin=jnp.asarray(begin),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(last & ~terminated),
    )


def first(x: Any) -> Any:
    """Swap [game, time] for [time, game]."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), x)


@pytest.mark.parametrize("name", NAMES)
def test_an_edition_is_short_and_needs_only_four_packages(name: str):
    text = (editions.EDITIONS / f"{name}.py").read_text("utf-8")
    assert len(text.splitlines()) <= 250
    nodes = [node for node in ast.walk(ast.parse(text))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {one.partition(".")[0] for one in names} <= PACKAGES


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_an_edition_shows_the_whole_file(name: str):
    source = (editions.EDITIONS / f"{name}.py").read_text("utf-8")
    first, *rest = editions.passages(source)
    code = [line for part in (first, *rest) for line in part.code.splitlines() if line]
    below = source.split('"""', 2)[2].splitlines()
    assert code == [line for line in below if line and line[:2] != "# "]
    assert first.text and all(part.title and part.text and part.code.strip() for part in rest)
    assert f"```{{edition}} {name}\n```" in (ROOT / "book" / f"{name}.md").read_text("utf-8")
    with pytest.raises(ValueError, match="docstring"):
        editions.passages("x = 1")


def test_the_editions_share_the_task_the_monoid_and_the_memory():
    names = ("RepeatPrevious", "combine", "scan", "dense", "LRU", "layer")
    parts = []
    for name in NAMES:
        tree = ast.parse((editions.EDITIONS / f"{name}.py").read_text("utf-8"))
        parts.append({x.name: ast.dump(x) for x in tree.body if getattr(x, "name", "") in names})
    assert parts[0] == parts[1] and set(parts[0]) == set(names)


def test_the_task_deals_one_deck_and_pays_for_the_suit_of_three_cards_ago():
    module = edition("ppo_lru")

    @jax.jit
    def deal(key):
        keys = jax.random.split(key, 53)
        obs, state = module.ENV.reset(keys[0])

        def play(carry, key):
            obs, state = carry
            action = jax.random.randint(key, (), 0, 4)
            after, state, reward, terminated, truncated, _ = module.ENV.step(key, state, action)
            return (after, state), (jnp.argmax(obs), action, reward, terminated, truncated)

        return jax.lax.scan(play, (obs, state), keys[1:])[1]

    suit, action, reward, terminated, truncated = map(np.asarray, deal(jax.random.key(3)))
    assert terminated.tolist() == [False] * 50 + [True, False] and not truncated.any()
    counts = np.bincount(suit[:51], minlength=4)
    assert counts.max() == 13 and counts.sum() == 51
    right = np.where(suit[:48] == action[3:51], 1 / 48, -1 / 48)
    np.testing.assert_allclose(reward[:51], [0, 0, 0, *right], rtol=1e-6)


def test_a_scan_in_a_tree_equals_one_step_after_another(monkeypatch: pytest.MonkeyPatch):
    module, keys = edition("ppo_lru"), jax.random.split(jax.random.key(0), 4)
    a, x = jax.random.normal(keys[0], (2, T, 3))
    begin, h = jax.random.bernoulli(keys[1], 0.3, (T, 1)), jax.random.normal(keys[2], (3,))
    in_turn = module.scan(h, a, x, begin)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_allclose(module.scan(h, a, x, begin), in_turn, atol=1e-5)
    for t in range(T):
        h = a[t] * np.where(begin[t], 0, h) + x[t]
        np.testing.assert_allclose(in_turn[t], h, atol=1e-5)


@pytest.mark.full
def test_one_update_of_ppo_has_the_numbers_of_the_library():
    module, config = edition("ppo_lru"), ppo.Config(normalize_rewards=False)
    keys = jax.random.split(jax.random.key(0), 5)
    net = nets.ActorCritic.make("lru", 5, 4, key=keys[0])
    ours = (module.Net(4, 1.0, keys[1]), module.Net(1, 1.0, keys[1]))
    ours = tuple(transplant(n, e) for n, e in zip((net.policy, net.critic), ours, strict=True))
    h = jax.random.normal(keys[2], (2, GAMES, 64), jnp.complex64)
    state = tuple((jnp.ones_like(x), x) for x in h)
    steps = steps_of((GAMES, T))
    logits = 0.5 * jax.random.normal(keys[3], (GAMES, T, 4))
    value = jax.vmap(net)(state, steps.obs, steps.begin)[1].value
    action = learner.ActorOutputs(nets.Categorical(logits), value)
    steps = eqx.tree_at(lambda s: s.extras, steps, action, is_leaf=lambda x: x is None)

    rollout = learner.Rollout(state, steps)
    _, batch, _ = learner.prepare(config, net, LongMoments().identity(), rollout)
    surprise = module.surprise(logits, steps.action)
    numbers = steps.obs, steps.begin, steps.action, surprise, steps.reward, steps.next_obs
    own = module.Steps(*first((*numbers, steps.terminated, steps.last)))
    _, inputs = jax.jit(module.prepare)(ours[1], h[1], own)
    np.testing.assert_allclose(inputs.advantage, batch.advantages.T, atol=1e-5)
    np.testing.assert_allclose(inputs.target, batch.targets.T, atol=1e-5)

    grad = eqx.filter_value_and_grad(learner.loss, has_aux=True)
    (value, _), gradient = eqx.filter_jit(grad)(net, None, batch, config, ("policy", "value"))
    own_value, own_gradient = jax.jit(jax.value_and_grad(module.loss))(ours, h, inputs)
    np.testing.assert_allclose(own_value, value, atol=1e-5)
    equal(own_gradient, gradient)

    new, _ = learner.step(config, learner.new(config, net), batch, config.learning_rate)
    result, _ = jax.jit(module.update)(ours, module.OPTIMIZER.init(ours), h, inputs)
    equal(result, new.net)


@pytest.mark.full
def test_one_update_of_dqn_has_the_numbers_of_the_library(monkeypatch: pytest.MonkeyPatch):
    module, batch = edition("dqn_tape_lru"), 40
    config = dqn.Config(dueling=False, normalize_rewards=False, reward_scale=8.0, batch=batch)
    keys = jax.random.split(jax.random.key(0), 3)
    net, target = (nets.Net.make("lru", 5, 4, key=key) for key in keys[:2])
    ours, own_target = (transplant(x, module.Net(keys[2])) for x in (net, target))
    steps = jax.tree.map(lambda x: x[0], steps_of((1, batch)))
    mask = jnp.arange(batch) < 33
    begin = steps.begin.at[0].set(True) | ~mask
    example = tape.Sample(steps, begin, mask, jnp.zeros(batch, int), jnp.zeros(1, int))
    age = jnp.where(begin, 0, 1)  # only its zeros are read
    numbers = steps.obs, age, steps.action, steps.reward, steps.next_obs
    own = module.Steps(*numbers, steps.terminated, steps.last), mask

    monkeypatch.setattr(module, "BATCH", batch)
    value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(dqn.loss))(
        net, target, example, config
    )
    own_value, own_gradient = jax.jit(jax.value_and_grad(module.loss))(ours, own_target, *own)
    np.testing.assert_allclose(own_value, value, atol=1e-5)
    equal(own_gradient, gradient)

    rule = common.adam(config, config.learning_rate)
    new, _ = common.descend(rule, net, rule.init(common.trainable(net)), gradient)
    result, _ = jax.jit(module.update)((ours, own_target, module.OPTIMIZER.init(ours)), own)
    equal(result[0], new)
    pairs = zip(jax.tree.leaves(own_target), jax.tree.leaves(result[0]), strict=True)
    targets = [old + config.tau * (one - old) for old, one in pairs]
    equal(result[1], targets)


@pytest.mark.full
def test_the_tape_holds_the_episodes_of_the_library(monkeypatch: pytest.MonkeyPatch):
    module, depth = edition("dqn_tape_lru"), 3 * T
    for name, value in {"GAMES": GAMES, "STEPS": T, "DEPTH": depth, "BATCH": 30}.items():
        monkeypatch.setattr(module, name, value)
    steps = steps_of((GAMES, 7 * T))
    steps = eqx.tree_at(lambda s: s.begin, steps, jnp.roll(steps.last, 1, 1).at[:, 0].set(True))
    ages = np.zeros((GAMES, 7 * T), np.int32)
    for t in range(1, 7 * T):
        ages[:, t] = np.where(steps.begin[:, t], 0, ages[:, t - 1] + 1)
    numbers = steps.obs, ages, steps.action, steps.reward, steps.next_obs
    every = module.Steps(*numbers, steps.terminated, steps.last)
    example = jax.tree.map(lambda x: x[0, 0], steps)
    theirs = tape.init(example, GAMES * depth, workers=GAMES)
    empty = jax.tree.map(lambda x: jnp.zeros((depth, GAMES, *x.shape[2:]), x.dtype), every)
    ours = module.Tape(empty, jnp.zeros((depth, GAMES), int), 0)
    add, sample = jax.jit(module.add), jax.jit(module.sample)
    for k in range(0, 7 * T, T):
        ours = add(ours, first(jax.tree.map(lambda x, k=k: jnp.asarray(x[:, k : k + T]), every)))
        theirs = tape.add(theirs, jax.tree.map(lambda x, k=k: x[:, k : k + T], steps))
        table = np.asarray(theirs.length).reshape(GAMES, depth).T
        np.testing.assert_array_equal(ours.length, table)
    np.testing.assert_array_equal(
        first(ours.steps.reward), theirs.steps.reward.reshape(GAMES, depth)
    )
    for seed in range(20):
        batch, mask = sample(ours, jax.random.key(seed))
        age, last = np.asarray(batch.age), np.asarray(batch.last)
        assert mask.all() and age[0] == 0
        np.testing.assert_array_equal(age[1:], np.where(last[:-1], 0, age[:-1] + 1))
        begins = batch.reward[age == 0]
        assert len(np.unique(begins)) == len(begins)  # without replacement


def test_sizes_and_rates_are_the_library_s_defaults():
    config, one = ppo.Config(), edition("ppo_lru")
    sizes = (config.environments, config.rollout, config.epochs, config.minibatches)
    assert sizes == (one.GAMES, one.STEPS, one.EPOCHS, one.MINIBATCHES)
    assert (config.block, config.block * config.blocks) == (one.BLOCK, one.ITERATIONS)
    assert (config.learning_rate, config.anneal) == (one.RATE, 1)
    config, one = dqn.Config(), edition("dqn_tape_lru")
    sizes = (config.environments, config.rollout, config.updates)
    assert sizes == (one.GAMES, one.STEPS, one.UPDATES)
    assert (config.block, config.block * config.blocks) == (one.BLOCK, one.ITERATIONS)
    assert (config.learning_rate, config.anneal) == (one.RATE, 1)
    epsilon = (config.epsilon_start, config.epsilon_end, config.epsilon_decay)
    assert epsilon == (0.5, 0.05, one.EXPLORE)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_short_run_has_the_chosen_number_of_evaluations(name: str, blocks: int):
    source = (editions.EDITIONS / f"{name}.py").read_text("utf-8")
    short, count = re.subn(r"(?m)^(BLOCKS, .* = )\d+", rf"\g<1>{blocks}", source)
    module: dict[str, Any] = {"__name__": name}
    exec(short, module)
    scores = iter(range(blocks))
    module |= {"init": lambda key: None, "block": lambda agent: (agent, next(scores))}
    assert count == 1 and module["train"](0)[1] == blocks - 1
    assert next(scores, None) is None and module["ITERATIONS"] == blocks * module["BLOCK"]


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_scheduler_is_chosen_before_jax_starts(name: str):
    """In a fresh process, without mmrl, and beside flags of the user."""
    flag = "--xla_cpu_enable_concurrency_optimized_scheduler"
    program = f"""
import builtins, os, jax
from jax._src import xla_bridge
load, seen = builtins.__import__, []
def watched(name, *args, **kwargs):
    if name.startswith("gymnax"):
        seen.append((xla_bridge.backends_are_initialized(), os.environ["XLA_FLAGS"]))
    return load(name, *args, **kwargs)
builtins.__import__ = watched
import {name}
started, flags = seen[0]
assert not started and "{flag}=false" in flags and "--xla_cpu_enable_fast_math=false" in flags
"""
    flags = {"XLA_FLAGS": "--xla_cpu_enable_fast_math=false", "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=editions.EDITIONS,
        env=os.environ | flags,
        check=True,
    )
