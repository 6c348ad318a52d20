"""`mmrl evaluate`: measure a trained agent from a run, a file, or the zoo."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import jax
import numpy as np
import tyro
from jaxtyping import Float, PyTree
from rich.table import Table
from rich.text import Text

from mmrl.agents import find
from mmrl.commands.terminal import Path, open_console, open_run
from mmrl.rollout import evaluate
from mmrl.runs import Run, RunError, interval, zoo
from mmrl.runs.folder import CHECKPOINT
from mmrl.runs.player import Policy
from mmrl.runs.shell import command_line

SPREAD = ("mean return", "lowest", "highest")


@dataclasses.dataclass(frozen=True)
class Options:
    """Evaluate the networks of a run with greedy actions.

    `mmrl evaluate zoo` lists the trained agents that are included in mmrl, and `mmrl evaluate
    zoo/NAME` evaluates one of them.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of a run, a file from `mmrl export`, zoo/NAME, or zoo."""
    episodes: int = 100
    """Number of episodes per network."""
    best: bool = False
    """Use the network from each seed's best block in training, instead of the last block."""
    original: bool = False
    """Evaluate in the original popgym 1.0.7 (NumPy) instead of our port."""
    seed: int = 1_000_000
    """Random seed of the episodes."""


def main(arguments: Sequence[str]) -> int:
    """Print the mean return of every network.

    Raises `RunError` if the run cannot be opened, and `ValueError` if an option is out of range.
    """
    options = tyro.cli(Options, args=arguments, prog="mmrl evaluate")
    if options.episodes < 1:
        raise ValueError(f"`episodes` must be at least 1; got {options.episodes}.")
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"`seed` must be between 0 and 2³² - 1; got {options.seed}.")
    path = options.path
    if path == zoo.NAMES and not (path / CHECKPOINT).exists():
        _list_zoo()
    elif path.suffix == ".npz" or (zoo.is_name(path) and not path.exists()):
        _evaluate_file(options)
    else:
        _evaluate_run(options)
    return 0


def _evaluate_run(options: Options) -> None:
    """Evaluate the network of every seed of a run, and print a table."""
    run, console = open_run(options.path, options.best), open_console()
    best = run.best if options.best else None
    net, past = best.net if best else run.state.net, len(run.history)
    if options.original:
        from mmrl.commands.original import play
    else:
        play = greedy_returns
    returns = play(run, net, options.episodes, options.seed)
    where = "the original popgym" if options.original else "mmrl"
    words = f" in {where}, {options.episodes} greedy episodes each"
    console.print(Text.assemble((run.setup.env, "bold"), words))
    table = Table("seed", *SPREAD, "after block")
    blocks = best.block if best else [past] * len(returns)
    for seed, episodes, block in zip(run.setup.seeds, returns, blocks, strict=True):
        table.add_row(str(seed), *_spread(episodes), str(block))
    middle, low, high = interval(returns.mean(1))
    after = f"each after its best{f' of {past}' * bool(past)}" if best else f"after block {past}"
    console.print(table)
    console.print(f"IQM over seeds {middle:.3f}, 95 % interval {low:.3f} to {high:.3f}; {after}")


def _spread(returns: Float[np.ndarray, " episodes"]) -> list[str]:
    return [f"{value:.3f}" for value in (returns.mean(), returns.min(), returns.max())]


def greedy_returns(
    run: Run, net: PyTree, episodes: int, seed: int
) -> Float[np.ndarray, "seed episodes"]:
    """Return the undiscounted greedy returns of all networks.

    Leaves of `net` have shape [seed, ...]. Raises `RunError` if no action is legal at some step.
    """
    env, params, *_ = run.program
    agent = find(run.setup.agent)

    @jax.jit
    @jax.vmap
    def play(net, key):
        steps = params.max_steps_in_episode
        return evaluate(agent.greedy(net), env, params, net.init(), key, episodes, steps)

    keys = jax.random.split(jax.random.key(seed), len(run.setup.seeds))
    result = jax.device_get(play(net, keys))
    if result.stuck is not None and result.stuck.any():
        step = result.stuck[result.stuck > 0].min()
        raise RunError(f"No action was legal in step {step} of an episode of {run.setup.env}.")
    return result.returns


def _list_zoo() -> None:
    """Print a table of the zoo's agents."""
    console, table = open_console(), Table("name", "seed", "after block", "return", "kB")
    notes = []
    for name in zoo.names():
        try:
            about, size = zoo.load(f"zoo/{name}").about, (zoo.ZOO / f"{name}.npz").stat().st_size
        except (RunError, OSError) as error:
            notes.append(f"zoo/{name} is left out: {error}")
            continue
        row = (about["seed"], about["block"], f"{about['return']:.3f}", f"{size / 1000:.0f}")
        table.add_row(f"zoo/{name}", *map(str, row))
    console.print(table)
    console.print(
        "Returns are means over a few episodes during training. To evaluate an agent: "
        f"{command_line('evaluate', 'zoo/NAME')}",
        *notes,
        sep="\n",
        soft_wrap=True,
    )


def _evaluate_file(options: Options) -> None:
    """Evaluate an exported policy, and print its provenance."""
    for name in ("best", "original"):
        if getattr(options, name):
            raise ValueError(
                f"`--{name}` must be omitted unless `path` is a run folder; got "
                f"{options.path}, which is a single policy."
            )
    policy, console = zoo.load(options.path), open_console()
    about, returns = policy.about, file_returns(policy, options.episodes, options.seed)
    words = f" in mmrl, {options.episodes} greedy episodes"
    console.print(Text.assemble((about["env"], "bold"), words))
    table = Table("agent", "memory", *SPREAD, "in training")
    table.add_row(about["agent"], about["memory"], *_spread(returns), f"{about['return']:.3f}")
    console.print(table)
    versions = ", ".join(f"{k} {about['versions'][k]}" for k in ("mmrl", "jax"))
    commands = ", then ".join(each["command"] for each in about.get("commands", [about]))
    console.print(
        f"Seed {about['seed']} after block {about['block']} of: {commands}\n"
        f"{about['date'][:10]}, {about['device']}, {versions}, revision {about['revision']}",
        soft_wrap=True,
        highlight=False,
    )


def file_returns(policy: Policy, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
    """Return the undiscounted returns of an exported policy, computed with NumPy."""
    return np.sum([step.reward for step in zoo.play(policy, episodes, seed)], axis=0)
