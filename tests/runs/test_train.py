"""A run and its agent's `train` are one: no setting means one thing here and another there."""

import dataclasses
import pathlib
import sys
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import runs
from mmrl.agents import AGENTS, find, repeatable
from mmrl.agents.common import make_train, q_net, rate_at, repeat
from mmrl.agents.ppo import ppg
from mmrl.memory import LRU
from mmrl.runs import Run, Setup, checkpoint
from tests.helpers.compiling import text
from tests.helpers.runs import leaves, payload, write

SIZES: dict[str, Any] = {
    "memory": "none",
    "width": 4,
    "environments": 4,
    "rollout": 4,
    "block": 2,
    "blocks": 3,
    "episodes": 2,
}
LEARNED_FROM: dict[str, Any] = {"anneal": 1.0, "normalize_rewards": True, "advantage_decay": 0.5}
# What changes with time in an agent, if by default it does not, or not within three blocks.
CHANGING: dict[str, dict[str, Any]] = {
    "dqn": {"updates": 2, "epsilon_decay": 5.0},
    "r2d2": {"updates": 2, "beta_decay": 5.0, "target_period": 3, "actor_period": 5},
    "ppo": {**LEARNED_FROM, "proximal": "ewma", "staleness": 1, "epochs": 2},
    "pqn": {"epochs": 2, "epsilon_decay": 5.0},
    "ppg": {**LEARNED_FROM, "proximal": "ewma", "value_epochs": 2, "auxiliary_epochs": 2},
}


def config_of(agent: str) -> Any:
    own = {**find(agent).SMALL, **CHANGING.get(agent, {})}
    return find(agent).Config(**{**own, **SIZES})


def setup(agent: str, **changes: Any) -> Setup:
    """All that changes with time is on, and changes within three blocks."""
    config = dataclasses.replace(config_of(agent), **changes)
    return Setup(env="probe-Memory-v0", agent=agent, seeds=(0,), config=config)


def train_as(run: Run) -> tuple[Any, Any]:
    """What `train` of the run's agent returns, for the run's one seed.

    Programs that are compiled apart differ in rounding. So `train` is not compiled as a whole, but
    its `init` and its `block` are, as those of a run.
    """
    agent, program = find(run.setup.agent), run.program

    def alone(function: Any, config: Any, x: Any) -> Any:
        with jax.disable_jit(False):
            return function(config, x)

    train = make_train(
        agent.check,
        lambda c, e, p, k, make: alone(program.init, c, k[None]),
        lambda c, e, p, s, learn: alone(program.block, c, s),
        q_net,
        agent.learn,
    )
    with jax.disable_jit():  # so that its scan is a loop
        return train(run.setup.config, program.env, program.params, jax.random.key(0))


@pytest.mark.full
def test_a_run_is_what_train_does():
    """Bit for bit, with every schedule on."""
    run = Run(setup("ppo"))
    reports = list(run)
    state, metrics = train_as(run)
    assert metrics.returns.shape == (3, 1, SIZES["episodes"]) and len(reports) == 3
    for i, report in enumerate(reports):
        np.testing.assert_array_equal(report.returns, np.asarray(metrics.returns)[i].mean(-1))
        np.testing.assert_array_equal(report.loss, metrics.loss[i])
        np.testing.assert_array_equal(report.fill, metrics.fill[i])
    for ours, theirs in zip(leaves(run.state), leaves(state), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.full_except("ppo", "r2d2")
@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_train_is_its_blocks_one_after_another(agent: str):
    env, params, *_ = Run(setup(agent)).program
    module, config = find(agent), config_of(agent)

    def in_blocks(key: Any) -> Any:
        state = module.init(config, env, params, key)
        return repeat(partial(module.block, config, env, params), state, config.blocks)

    key = jax.random.key(0)
    assert text(partial(module.train, config, env, params), key) == text(in_blocks, key)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_state_has_the_types_of_one_that_was_read_from_a_file(agent: str):
    """Else what is resumed is another program, for which a user waits once more."""
    state = jax.eval_shape(Run(setup(agent)).begin)
    assert not [path for path, x in jax.tree.leaves_with_path(state) if x.weak_type]


@pytest.mark.full_except("dqn", "ppo")
@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_the_rate_alone_knows_how_long_a_run_is(agent: str, monkeypatch: pytest.MonkeyPatch):
    """With the last test: each agent's runs are what its `train` does. The rate is asked below."""
    env, params, *_ = Run(setup(agent)).program
    module = find(agent)
    users = [m for name, m in sys.modules.items() if name.startswith("mmrl.agents.")]
    users = [m for m in users if hasattr(m, "rate_at")]

    def trace(config: Any) -> str:
        begin = partial(module.init, config, env, params)
        state = jax.eval_shape(begin, jax.random.key(0))
        block = partial(module.block, config, env, params)
        return text(begin, jax.random.key(0)) + text(block, state)

    whole = config_of(agent)
    longer = dataclasses.replace(whole, blocks=whole.blocks + 1)
    assert trace(whole) != trace(longer)
    for user in users:
        monkeypatch.setattr(user, "rate_at", lambda config, iteration: config.learning_rate)
    assert trace(whole) == trace(repeatable(whole)) == trace(longer)


# The rate that goes down as long as the run goes on


@pytest.mark.parametrize("change", [{"blocks": 3}, {"blocks": 7}, {"blocks": 7, "horizon": 4.0}])
@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_a_program_that_is_repeated_has_the_rate_of_the_whole_run(
    agent: Any, change: dict[str, Any]
):
    change = change | ({"policy_iterations": 2} if agent is ppg else {})
    config = agent.Config(block=2, anneal=0.75, learning_rate=1.0, **change)
    alone = repeatable(config)
    assert alone.blocks == 1 and alone.horizon == (config.horizon or config.blocks)
    iterations = np.arange(2 * config.blocks + 1)
    whole, part = (jax.vmap(lambda i, c=c: rate_at(c, i))(iterations) for c in (config, alone))
    np.testing.assert_array_equal(whole, part)
    end = 2 * int(config.horizon or config.blocks)
    np.testing.assert_allclose(whole[: end + 1], np.linspace(1, 0.25, end + 1), rtol=1e-6)
    np.testing.assert_allclose(whole[end:], 0.25, rtol=1e-6)  # and stays there


@pytest.mark.full
@pytest.mark.slow
def test_a_longer_run_that_anneals_compiles_nothing_new():
    first = Run(setup("ppo"))
    next(iter(first))
    compiled = (first.program.init, first.program.block)
    sizes = [f._cache_size() for f in compiled]
    for blocks in (2, 5):
        next(iter(Run(setup("ppo", blocks=blocks))))
    assert [f._cache_size() for f in compiled] == sizes


@pytest.mark.full
@pytest.mark.slow
def test_with_a_horizon_a_prolonged_run_is_an_unbroken_one(tmp_path: pathlib.Path):
    """Without, the rate of what is added is that of the longer run."""
    for horizon in (2.0, None):
        whole, parts = tmp_path / f"{horizon} whole", tmp_path / f"{horizon} in parts"
        for path, blocks in ((whole, 3), (parts, 1), (parts, 3)):
            resume = (path, blocks) == (parts, 3)
            assert list(Run(setup("ppo", blocks=blocks, horizon=horizon), path, resume))
        assert (payload(whole) == payload(parts)) == bool(horizon)


@pytest.mark.slow
def test_runs_of_before_the_horizon_go_on(tmp_path: pathlib.Path):
    """Theirs was that of the run."""
    next(iter(Run(setup("ppo"), tmp_path)))
    header, content = checkpoint.read(tmp_path / "checkpoint")
    assert header["setup"]["config"].pop("horizon") is None
    write(tmp_path, header, content)
    assert runs.reopen(tmp_path).setup == runs.saved_setup(tmp_path) == setup("ppo")
    assert len(Run(setup("ppo"), tmp_path, resume=True).history) == 1


@pytest.mark.full_except("tf32")
@pytest.mark.parametrize("precision", runs.PRECISIONS)
def test_products_have_the_precision_of_the_setup(precision: str):
    """Read from the lowered program, because a CPU computes in float32 anyway."""
    words = {"default": "DEFAULT", "float32": "HIGHEST", "tf32": "HIGH]", "bfloat16": "type = bf16"}
    run = Run(dataclasses.replace(setup("dqn"), precision=precision))
    state = jax.eval_shape(run.begin)
    text = run.program.block.lower(repeatable(run.setup.config), state).as_text()
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert products and all(words[precision] in line for line in products)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match=r"`precision` must be one of default, .*'half'"):
        Setup("probe-Memory-v0", precision="half")
    with pytest.raises(ValueError, match=r"`precision` must be one of default, .*'half'"):
        runs.program("dqn", "probe-Memory-v0", precision="half")


class Rotating(LRU):
    """An LRU whose output is a product of complex matrices."""

    def decode(self, h, x):
        return (h[1] @ jnp.ones((h[1].size, self.output_size), h[1].dtype)).real


def rotating(config: Any, env: Any, params: Any, key: Any) -> Any:
    net = q_net(config, env, params, key)
    memory = Rotating(net.memory.input_size, net.memory.output_size, state_size=4, key=key)
    return eqx.tree_at(lambda net: net.memory, net, memory)


def test_bfloat16_is_refused_for_products_of_complex_numbers():
    of = dataclasses.replace(setup("dqn", memory="lru"), make=rotating)
    Run(dataclasses.replace(of, precision="tf32"))
    with pytest.raises(ValueError, match=r"`precision`.*bfloat16.*complex64"):
        Run(dataclasses.replace(of, precision="bfloat16"))
