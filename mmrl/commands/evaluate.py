"""`mmrl evaluate`: what a trained agent is worth."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated

import jax
import numpy as np
import tyro
from jaxtyping import Float, PyTree
from rich.console import Console
from rich.table import Table

from mmrl.agents import find
from mmrl.rollout import evaluate
from mmrl.runs import Run, interval, reopen


@dataclasses.dataclass(frozen=True)
class Options:
    """Let every seed's network of a run play greedily, without learning."""

    path: Annotated[pathlib.Path, tyro.conf.Positional]
    """Folder of the run."""
    episodes: int = 100
    """Episodes per network."""
    best: bool = False
    """The network after each seed's best block in training, in place of the last one."""
    original: bool = False
    """Play the original popgym 1.0.7 (numpy) instead of our port."""
    seed: int = 1_000_000
    """Of the episodes."""


def main(arguments: Sequence[str]) -> int:
    """Print the mean return of every network. Raises `RunError` and `ValueError`."""
    options = tyro.cli(Options, args=arguments, prog="mmrl evaluate")
    if options.episodes < 1:
        raise ValueError(f"`episodes` must be at least 1; got {options.episodes}.")
    run = reopen(options.path, options.best)
    net = run.best.net if options.best and run.best else run.state.net
    if options.original:
        from mmrl.commands.original import play

        returns = play(run, net, options.episodes, options.seed)
    else:
        returns = greedy_returns(run, net, options.episodes, options.seed)
    _show(run, returns, options)
    return 0


def greedy_returns(
    run: Run, net: PyTree, episodes: int, seed: int
) -> Float[np.ndarray, "seed episodes"]:
    """Undiscounted returns of the greedy policy of every seed's network: leaves of `net` [seed]."""
    env, params = run.program.env, run.program.params
    agent = find(run.setup.agent)

    @jax.jit
    @jax.vmap
    def returns(net, key):
        steps = params.max_steps_in_episode
        return evaluate(agent.greedy(net), env, params, net.init(), key, episodes, steps).returns

    keys = jax.random.split(jax.random.key(seed), len(run.setup.seeds))
    return np.asarray(returns(net, keys))


def _show(run: Run, returns: Float[np.ndarray, "seed episodes"], options: Options) -> None:
    setup, console = run.setup, Console()
    where = "the original popgym" if options.original else "mmrl"
    console.print(f"[bold]{setup.env}[/] in {where}, {options.episodes} greedy episodes each")
    blocks = run.best.block if options.best and run.best else [len(run.history)] * len(returns)
    table = Table("seed", "mean return", "lowest", "highest", "after block")
    for seed, episodes, block in zip(setup.seeds, returns, blocks, strict=True):
        row = (episodes.mean(), episodes.min(), episodes.max())
        table.add_row(str(seed), *(f"{value:.3f}" for value in row), str(block))
    middle, low, high = interval(returns.mean(1))
    console.print(table)
    console.print(
        f"IQM over seeds {middle:.3f}, 95 % interval {low:.3f} to {high:.3f}; "
        f"{'each after its best of' if options.best else 'after block'} {len(run.history)}"
    )
