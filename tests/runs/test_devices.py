"""Several devices, simulated in a process of its own: numbers must not depend on how many.

Sums in another order round otherwise, and nothing else may differ. The compiled program must keep
storage divided, and send each gradient once.
"""

import dataclasses
import logging
import tempfile
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl._devices import ENVIRONMENTS, split_rows
from mmrl.agents import AGENTS, find, repeatable
from mmrl.course.ch18_many_devices.collectives import traffic
from mmrl.replay import tape
from mmrl.rollout import evaluate
from mmrl.runs import Run, Setup
from mmrl.runs.checkpoint import unwrap_keys
from mmrl.runs.devices import share
from mmrl.runs.parallel import environment_axes, keys, side_by_side
from mmrl.runs.programs import build
from tests.helpers.devices import call

ENV = "popgym-RepeatFirstEasy-v0"
SMALL: dict[str, Any] = {"memory": "none", "width": 64, "environments": 8, "episodes": 4}
# Twelve gradient steps in two blocks, after which every average and clip has had its say.
SIZES: dict[str, dict[str, Any]] = {
    "dqn": {"rollout": 32, "batch": 208, "tapes": 4, "capacity": 2048, "updates": 3, "block": 2}
    | {"memory": "linear_attention"},  # one of them with a memory
    "r2d2": {"rollout": 8, "length": 8, "burn_in": 2, "n_step": 2, "batch": 8, "capacity": 4096}
    | {"updates": 3, "block": 2},
    "ppo": {"rollout": 18, "minibatches": 3, "epochs": 1, "block": 2, "noise_scale": True},
    "ppg": {"rollout": 16, "minibatches": 2, "policy_iterations": 2, "block": 2}
    | {"auxiliary_minibatches": 2, "auxiliary_epochs": 1}
    # Gradients that are zero but for rounding: by 1e-8, Adam makes whole steps of them.
    | {"adam_eps": 1e-5},
    "clear": {"rollout": 16, "capacity": 2048, "block": 6},
    "pqn": {"rollout": 18, "minibatches": 3, "epochs": 2, "block": 1},
}
OTHER = {"rollout": 16, "block": 3}  # of other agents, in addition to their `SMALL`
# Gradients in a program: PPG has two phases, and PPO also measures the noise of its policy.
GRADIENTS = {"ppo": 1.5, "ppg": 2}  # one in others
# Seeds of each agent: two of PPO's are divided among two groups of two devices.
SEEDS_OF = {"ppo": 2}


def setting(agent: str) -> Any:
    more = {} if agent in SIZES else find(agent).SMALL
    return find(agent).Config(**{**more, **SMALL, **SIZES.get(agent, OTHER), "blocks": 2})


def comparison(agent: str) -> dict[str, Any]:
    """An agent on one device and on four: what differs, what crosses, and what each stores."""
    config, seeds, result = setting(agent), SEEDS_OF.get(agent, 1), {}
    program_parts, config = build(Setup(ENV, agent=agent, config=config)), repeatable(config)
    for number in (1, 4):
        devices = share(number, seeds, config.environments)
        init, block = side_by_side(
            find(agent), program_parts.env, program_parts.params, devices=devices
        )
        state = init(config, keys(range(seeds)))
        program = jax.jit(block).lower(config, state).compile()
        for _ in range(2):
            state, metrics = program(config, state)
        result[number] = jax.device_get((trainable(state.net), unwrap_keys(state), metrics))
    one, four = result[1], result[4]
    messages = traffic(str(program.as_text()))
    size = sum(x.nbytes for x in jax.tree.leaves(four[0])) // seeds
    axes = environment_axes(program_parts.init, config, seeds)
    arrays = [x for x, axis in zip(*map(jax.tree.leaves, (state, axes)), strict=True) if axis]
    return {
        "net": worst(one[0], four[0]),
        "all": worst(one[1], four[1], relative=True),
        "loss": [np.asarray(x[2].loss).tolist() for x in (one, four)],
        "sent": messages,
        "parameters": size,
        "stored": max(x.addressable_shards[0].data.size / x.size for x in arrays),
    }


def trainable(net: Any) -> Any:
    return eqx.filter(net, eqx.is_inexact_array)


def worst(tree: Any, other: Any, relative: bool = False) -> float:
    """The largest difference of two numbers of these trees."""
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    apart = [
        np.max(np.abs(x - y) / (1 + np.abs(x) if relative else 1), initial=0)
        for x, y in ((np.nan_to_num(a), np.nan_to_num(b)) for a, b in pairs if a.dtype.kind == "f")
    ]
    return float(max(apart))


@pytest.mark.full
@pytest.mark.parametrize("agent", AGENTS)
def test_numbers_do_not_depend_on_the_number_of_devices(agent: str):
    result = call(comparison, agent)
    assert result["net"] <= 1e-5
    assert result["all"] <= 1e-5
    np.testing.assert_allclose(*result["loss"], atol=1e-5)
    size = sum(size for kind, size in result["sent"] if kind == "all-reduce")
    gradients = GRADIENTS.get(agent, 1)
    assert gradients <= size / result["parameters"] < gradients + 0.5
    # The gradient itself, with what XLA sums next to it.
    assert max(size for _, size in result["sent"]) < 1.1 * result["parameters"]
    assert result["stored"] == 0.25


SEEDS = Setup("CartPole-v1", agent="ppo", seeds=(0, 1, 2, 3))
PPO = {"memory": "none", "width": 8, "environments": 4, "rollout": 8, "minibatches": 1}
PPO |= {"epochs": 1, "block": 2, "blocks": 3, "episodes": 2}


def seeds() -> dict[str, Any]:
    """Four seeds on four devices, each alone, and a run that changes devices twice.

    ENV has few observations, so greedy actions are far from ties, which a rounding could break.
    """
    setup = dataclasses.replace(SEEDS, env=ENV, config=find("ppo").Config(**PPO))
    compiled = Count()
    run = Run(setup, devices=4)
    reports = list(run)
    blocks = compiled.number("block_all")
    text = jax.jit(run.program.block).lower(run._config, run.state).compile().as_text()
    two, alone = (Run(dataclasses.replace(setup, seeds=s), devices=len(s)) for s in ((2, 1), (3,)))
    assert [len(list(one)) for one in (two, alone)] == [3, 3]
    both = zip(*(jax.tree.leaves(unwrap_keys(x.state)) for x in (run, two)), strict=True)
    equal = [np.array_equal(x[jnp.array([2, 1])], y, equal_nan=True) for x, y in both]
    last = jax.tree.map(lambda x: x[3:], trainable(run.state.net))
    with tempfile.TemporaryDirectory() as folder:
        for blocks_so_far, devices in ((1, 2), (2, 1), (3, 4)):
            now = Run(setup, folder, resume=blocks_so_far > 1, devices=devices)
            assert next(iter(now)).block == blocks_so_far
    returns = [[report.returns.tolist() for report in reports]]
    returns += [[row["returns"] for row in now.history]]
    net = worst(trainable(run.state.net), trainable(now.state.net))
    return {
        "compiled": blocks,
        "collectives": traffic(str(text)),
        "equal": all(equal),
        "alone": worst(last, trainable(alone.state.net)),
        "returns": returns,
        "net": net,
    }


class Count:
    """Counts compilations, by the name of the function."""

    def __init__(self):
        self.names: list[str] = []
        jax.config.update("jax_log_compiles", True)
        logger = logging.getLogger("jax._src.interpreters.pxla")
        logger.addFilter(self._see)

    def _see(self, record: logging.LogRecord) -> bool:
        self.names.append(record.getMessage())
        return False

    def number(self, name: str) -> int:
        return sum(f"Compiling jit({name})" in text for text in self.names)


@pytest.mark.full
def test_seeds_train_on_whichever_device_as_if_alone():
    result = call(seeds)
    assert result["compiled"] == 1
    assert result["collectives"] == []
    assert result["equal"]  # bit for bit, on whichever of several devices
    # XLA compiles a program of one device otherwise, and one with another number of lanes.
    assert result["alone"] <= 1e-6
    np.testing.assert_allclose(*result["returns"], rtol=1e-5)
    assert result["net"] <= 1e-5


# Devices, seeds and environments.
CASES = (4, 4, 8), (4, 1, 8), (4, 2, 8), (4, 5, 6), (3, 2, 7), (1, 4, 8), (2, 3, 4), (4, 6, 5)
CASES = (*CASES, (4, 6, 8), (4, 3, 8))  # more groups would leave a device idle


def divisions() -> list[list[int]]:
    """Groups of devices and devices of a group, and how many of `CASES` got a warning."""
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        meshes = [share(*case).mesh for case in CASES]
    shapes = [[1, 1] if mesh is None else list(mesh.devices.shape) for mesh in meshes]
    return [*shapes, [len(records)]]


@pytest.mark.slow
def test_most_devices_are_used_and_seeds_come_first():
    *shapes, (warning,) = call(divisions)
    few = [[4, 1], [1, 4], [2, 2], [1, 3], [2, 1], [1, 1], [1, 2], [3, 1]]
    assert shapes == [*few, [2, 2], [1, 4]]
    assert warning == sum(a * b < case[0] for (a, b), case in zip(shapes, CASES, strict=True))


@pytest.mark.full_except("ppo")
@pytest.mark.parametrize("agent", AGENTS)
def test_what_grows_with_the_environments_is_divided(agent: str):
    """And no parameter, although as many features are read as there are environments."""
    config = dataclasses.replace(setting(agent), width=8)
    program = build(Setup(ENV, agent=agent, config=config))
    state = jax.eval_shape(program.init, repeatable(config), keys([0]))
    axes = environment_axes(program.init, repeatable(config), 1)
    alike = ("net", "target", "actor", "optimizer", "learner")
    own, state = (x.policy if agent == "ppg" else x for x in (axes, state))
    for name, each in vars(own).items():
        shapes = jax.tree.leaves(getattr(state, name))
        sizes = [x.size for x, axis in zip(shapes, jax.tree.leaves(each), strict=True) if not axis]
        assert len(sizes) == len(shapes) if name in alike else sum(sizes, 0) < 10, name


def stored_shares() -> list[float]:
    """The share of DQN's tape and of R2D2's sequences that lies on the first of four devices."""
    shares = []
    for agent, name in (("dqn", "tape"), ("r2d2", "sequences")):
        setup = Setup(ENV, agent=agent, config=find(agent).Config(memory="none", width=8))
        devices = share(4, 1, setup.config.environments)
        state = build(setup, devices).init(repeatable(setup.config), keys([0]))
        arrays = jax.tree.leaves(getattr(state, name))
        first = sum(x.addressable_shards[0].data.nbytes for x in arrays)
        shares.append(first / sum(x.nbytes for x in arrays))
    return shares


@pytest.mark.full
def test_storage_of_the_default_size_is_divided():
    assert all(each == pytest.approx(0.25, abs=1e-3) for each in call(stored_shares))


@pytest.mark.parametrize("capacity", [1024, 32_768, 2**20])
def test_storage_is_divided_where_twice_its_size_has_another_level(capacity: int):
    def init(config, keys):
        def one(_):
            return tape.init(jnp.zeros(3), config.capacity, workers=config.environments)

        return jax.vmap(one)(keys)

    axes = environment_axes(init, find("dqn").Config(environments=8, capacity=capacity), 1)
    top, *levels = axes.sums
    assert top == 2 and set(levels) <= {1}
    assert axes.steps == axes.length == axes.current_length == 1 and axes.cursor == 0


def other_mesh() -> list[Any]:
    """Rows that a function of the caller's own mesh, with an axis of environments, gets back."""
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("environments",))
    per_device, x = jax.sharding.PartitionSpec("environments"), jnp.arange(8.0)
    on_devices = jax.shard_map(split_rows, mesh=mesh, in_specs=per_device, out_specs=per_device)
    rows = [jax.jit(on_devices)(x).tolist()]
    with jax.set_mesh(jax.make_mesh((2,), ("environments",), (jax.sharding.AxisType.Explicit,))):
        return [*rows, jax.jit(split_rows)(x).tolist()]


@pytest.mark.full
def test_a_mesh_of_the_caller_is_left_alone():
    assert call(other_mesh, devices=2) == [list(range(8))] * 2


def test_one_device_divides_nothing():
    x = jnp.arange(6.0)
    assert split_rows(x) is x


def test_rows_that_the_devices_cannot_divide_are_reported():
    program = build(Setup(ENV, agent="dqn", config=setting("dqn")))

    def play(episodes: int) -> Any:
        policy = lambda state, obs, begin, key: (state, jnp.int32(0))  # noqa: E731
        key = jax.random.key(0)
        return evaluate(policy, program.env, program.params, (), key, episodes, 2).returns

    mesh = jax.sharding.AbstractMesh((4,), (ENVIRONMENTS,))
    with jax.sharding.use_abstract_mesh(mesh):
        with pytest.warns(UserWarning, match=r"`episodes` .* multiple of 4, .*; got 6\."):
            assert jax.eval_shape(lambda: play(6)).shape == (6,)
        assert jax.eval_shape(lambda: play(8)).shape == (8,)


def test_what_cannot_be_divided_is_refused():
    setup = dataclasses.replace(SEEDS, config=find("ppo").Config(**PPO))
    with pytest.raises(ValueError, match=r"`devices` must be 1, .*; got 4\. A CPU counts"):
        Run(setup, devices=4)
    with pytest.raises(ValueError, match=r"JAX sees here; got 0\.$"):
        Run(setup, devices=0)
    none = dataclasses.replace(setup.config, environments=0)
    with pytest.raises(ValueError, match="`environments` must be at least 1; got 0"):
        Run(dataclasses.replace(setup, config=none))
