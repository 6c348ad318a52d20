"""Train one small block of every agent in every listed environment, and continue from its folder.

    python tests/envs/train_each.py                         all environments and agents
    python tests/envs/train_each.py --only MinAtar Pong     ids that contain one of these texts
    python tests/envs/train_each.py --agents ppo clear      some of the agents

It prints a line per pair. For each one, `Run` accepts or refuses the agent's default settings; then
a run with small sizes trains for one block, and is resumed for a second one. Numbers must be
finite, and parameters must change. An agent may only be refused because an environment has
continuous actions, in a sentence that names the agents that were accepted. Digits of MNIST are
drawn at random, so no network is needed. The exit status is 1 if any pair fails.

All pairs take about half an hour on one core.
"""

import argparse
import dataclasses
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# As in conftest.py: most of the time is compilation.
os.environ.setdefault("NPROC", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 "
    "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE",
)

import mmrl  # noqa: F401, I001  first of all: it sets a flag that jax reads only once

import jax
import numpy as np
from gymnax.utils import load_mnist

from mmrl import envs
from mmrl.agents import AGENTS
from mmrl.runs import Run, Setup

SIZES: dict[str, Any] = {"memory": "none", "width": 8, "environments": 2, "block": 1, "blocks": 1}
SIZES |= {"episodes": 1}
OWN: dict[str, dict[str, Any]] = {
    "dqn": {"updates": 1},
    "r2d2": {"updates": 1, "length": 4, "burn_in": 2, "n_step": 2, "batch": 2, "capacity": 64},
    "ppo": {"epochs": 1, "minibatches": 1},
    "ppg": {"policy_iterations": 1, "minibatches": 1}
    | {"auxiliary_epochs": 1, "auxiliary_minibatches": 1},
    "clear": {"capacity": 64},
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of one pair: trained, refused, or failed."""

    env: str
    agent: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind:8} {self.env:38} {self.agent:6} {self.text}"


def config(agent: str, env: str) -> Any:
    """Return small sizes; DQN, which learns from whole episodes, plays one in its first rollout."""
    rollout = envs.make(env)[1].max_steps_in_episode + 1 if agent == "dqn" else 16
    sizes = {**SIZES, **OWN[agent]} if agent in OWN else {**AGENTS[agent].SMALL, **SIZES}
    return AGENTS[agent].Config(**{**sizes, "rollout": rollout})


def train(env: str, agent: str) -> str:
    """Train two blocks, the second one resumed; return their numbers. Raises for each fault."""
    short = Setup(env, config(agent, env), (0,), agent)
    longer = dataclasses.replace(short, config=dataclasses.replace(short.config, blocks=2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        run = Run(short, path)
        before = jax.device_get(run.begin().net)
        list(run)
        run = Run(longer, path, resume=True)
        list(run)
    leaves = [np.asarray(x) for x in jax.tree.leaves(run.state.net)]
    assert len(run.history) == 2, "the second block is missing"
    assert all(np.isfinite(x).all() for x in leaves), "parameters are not finite"
    numbers = [[*row["loss"], *row["returns"], *row["fill"]] for row in run.history]
    assert np.isfinite(numbers).all(), f"numbers are not finite: {numbers}"
    changes = [(x != y).any() for x, y in zip(leaves, jax.tree.leaves(before), strict=True)]
    assert any(changes), "no parameter changed"
    return "  ".join(f"loss {loss:.3g} return {back:.3g} fill {f:.2g}" for loss, back, f in numbers)


def pair(env: str, agent: str) -> Outcome:
    """Try one agent in one environment."""
    began = time.process_time()
    try:
        Run(Setup(env, seeds=(0,), agent=agent))
    except ValueError as error:
        return Outcome(env, agent, "refused", str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome(env, agent, "FAILED", f"default settings: {type(error).__name__}: {error}")
    try:
        numbers = train(env, agent)
    except Exception as error:
        traceback.print_exc()
        return Outcome(env, agent, "FAILED", f"{type(error).__name__}: {error}")
    return Outcome(env, agent, "trained", f"{numbers}  {time.process_time() - began:.0f} s")


def judge(outcomes: list[Outcome]) -> Iterator[Outcome]:
    """Turn a refusal of an environment into a failure unless it names what fits."""
    continuous = not hasattr(envs.make(outcomes[0].env)[0].action_space(), "n")
    fits = [f"`{x.agent}`" for x in outcomes if x.kind == "trained"]
    for x in outcomes:
        right = continuous and all(name in x.text for name in fits)
        fault = x.kind == "refused" and not right
        yield dataclasses.replace(x, kind="FAILED", text=f"refused: {x.text}") if fault else x


def digits() -> tuple[Any, Any]:
    """Stand in for MNIST, which gymnax downloads."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 255, (32, 28, 28)).astype(np.uint8)
    both = images, np.arange(32) % 10
    return both, both


def main() -> int:
    """Try the pairs, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[""], help="texts of which an id has one")
    parser.add_argument("--agents", nargs="+", default=list(AGENTS), choices=AGENTS)
    options = parser.parse_args()
    load_mnist.load_mnist = digits
    failures = 0
    for env in envs.registered_ids():
        if not any(text in env for text in options.only):
            continue
        for outcome in judge([pair(env, agent) for agent in options.agents]):
            print(outcome, flush=True)
            failures += outcome.kind == "FAILED"
        jax.clear_caches()
    print(f"{failures} pairs failed.")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
