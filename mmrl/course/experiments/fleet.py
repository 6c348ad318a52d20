"""Training of several agents in one vmapped program, with separate hyperparameters and seeds."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from mmrl.course.experiments.grid import round_list
from mmrl.runs import interval
from mmrl.runs.parallel import keys, side_by_side, with_numbers

QUICK: dict[str, Any] = {"block": 1, "blocks": 2, "episodes": 4, "width": 8}


class FleetResult(NamedTuple):
    """Trained agents, and their returns and metrics at every evaluation."""

    returns: Float[np.ndarray, "agent eval"]  # mean returns of the greedy policy
    metrics: Any  # `Metrics` per block, [agent, eval, ...]
    cpu_seconds: list[float]  # per agent up to each evaluation, without compilation
    state: Any  # states of the agents, [agent]
    measurements: Sequence[Any] = ()  # results of `after_block`, one per block


class Fleet:
    """Trainer of several agents in one vmapped program.

    `agent` is a module such as `ppo`. If `learn` is given, it replaces the function of that name in
    the module. If a loss of an agent is not finite, its returns are NaN from that evaluation
    onwards. No error is raised, because a sweep may include learning rates that are too high.
    """

    def __init__(self, agent: Any, env: Any, params: Any, learn: Callable | None = None):
        self.programs: dict[int, Any] = {}  # compiled programs, keyed by number of agents
        self._settings: Any = None  # structure of the settings for which `programs` were compiled
        self._check = lambda config: agent.check(config, env, params)
        self._init, self._go_on = side_by_side(agent, env, params, learn=learn)

    def _begin(self, config: Any, numbers: Mapping[str, Any], keys: Any) -> Any:
        """Return the config of all agents and their initial states."""
        self._check(config)
        config = with_numbers(config, numbers)
        return config, self._init(config, keys)

    def train(
        self,
        config: Any,
        numbers: Mapping[str, Sequence[float]],
        seeds: Sequence[int],
        after_block: Callable[[int, Any], Any] = lambda block, state: None,
    ) -> FleetResult:
        """Train agents with the given hyperparameters, one per seed.

        `numbers` maps the names of hyperparameters to sequences with one value per agent.
        `after_block` is called with the number of blocks so far and the states of the agents.
        """
        config, state = self._begin(config, numbers, keys(seeds))
        settings, many = (jax.tree.structure(config), *numbers), len(seeds)
        if settings != self._settings:
            self._settings, self.programs = settings, {}
        if many not in self.programs:
            self.programs[many] = self._go_on.lower(config, state).compile()
        blocks, cpu, measured, began = [], [], [], time.process_time()
        for block in range(1, config.blocks + 1):
            state, metrics = self.programs[many](config, state)
            blocks.append(jax.device_get(metrics))
            cpu.append(round((time.process_time() - began) / len(seeds), 3))
            measured.append(after_block(block, state))
        finite = np.logical_and.accumulate([one.finite for one in blocks])
        returns = np.where(finite, [one.returns.mean(-1) for one in blocks], np.nan).T
        metrics = jax.tree.map(lambda *x: np.stack(x, axis=1), *blocks)
        return FleetResult(returns, metrics, cpu, state, measured)


def return_fields(config: Any, returns: Float[np.ndarray, "agent eval"]) -> dict[str, Any]:
    """Return a row's fields for returns, including a confidence interval of the final returns."""
    middle, *ends = interval(returns[:, -1])
    about = {"interquartile_mean": middle, "interval_95": ends, "env_steps": env_steps(config)}
    return {**about, "returns": round_list(returns)}


def env_steps(config: Any) -> list[int]:
    """Return the number of environment steps before each evaluation."""
    steps = math.prod(map(int, (config.block, config.rollout, config.environments)))
    return [steps * (i + 1) for i in range(config.blocks)]
