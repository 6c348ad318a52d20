"""`mmrl train`: an environment, an agent, a memory, some seeds."""

import argparse
import dataclasses
import inspect
import pathlib
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.text import Text

from mmrl import memory
from mmrl.agents import AGENTS, find
from mmrl.agents.presets import PRESETS, find_preset
from mmrl.commands.connect import Hosts
from mmrl.commands.console import Path, called, open_console, path_of, to_resume
from mmrl.commands.folders import RESULTS, new_folder, newest, unless_empty
from mmrl.commands.outcome import FILL, course, tell_chance
from mmrl.commands.terminal import going_on, tell_fewer, tell_preset, watch
from mmrl.commands.words import described, in_words_of_help
from mmrl.envs import registered
from mmrl.runs import Run, RunError, Setup, interquartile_mean, saved
from mmrl.runs.processes import broadcast, until_preempted
from mmrl.runs.writers import check_writers, logged

PREEMPTED = 143  # as a shell calls an end by SIGTERM: all is saved, and --resume goes on
AGENT = f"""One of {", ".join(AGENTS)}, each with options of its own: --agent r2d2 --help.

Plain V-trace is clear with --replay-fraction 0."""
OF_A_SETUP = ("env", "agent", "seeds", "observes", "shards", "precision", "config")


@dataclasses.dataclass(frozen=True)
class Options:
    """Train an agent on several seeds at once.

    Every block ends with an evaluation and a checkpoint. Stop with Ctrl-C whenever you like and go
    on with --resume: the result is bit for bit that of an unbroken run.

    It prints a line per block: environment steps per seed; each seed's return, a mean over the
    episodes of the evaluation; IQM, the mean of the middle half of the seeds; the loss; fill, the
    share of real steps in a batch, whose rest is padding; and seconds.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENVIRONMENT")] = ""
    """Its id, e.g. popgym-RepeatFirstEasy-v0, or my_module:MyEnv of your own. With --resume: that
    of the run."""
    list: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the names of all environments, memories and agents, and train nothing."""
    presets: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the presets of all agents, and train nothing."""
    agent: Annotated[str, tyro.conf.arg(help=AGENT)] = Setup.agent
    preset: str = ""
    """Settings of a paper, such as paper; other options win over them. --presets lists all."""
    out: Path | None = None
    """Folder of the run. Default: a new one under results/; with --resume the latest there."""
    resume: bool = False
    """Go on with the run in --out, with its settings; more --blocks prolong it."""
    seeds: tuple[int, ...] = Setup.seeds
    """One independent agent each: `--seeds 0 1 2` trains three."""
    observes: tuple[Literal["previous_action", "previous_reward", "begin_flag"], ...] = ()
    """Shown to the network beside the observation. `--observes` alone: nothing."""
    shards: int = Setup.shards
    """Of every agent, each with an equal part of its sizes. They share one network."""
    precision: Literal["default", "float32", "tf32", "bfloat16"] = "default"
    """Precision of the factors in all float32 matrix products of training on a GPU, those of the
    environment included. Default: what JAX is set to. `mmrl evaluate` does not use it."""
    devices: int | None = None
    """Over how many the seeds are divided, or the shards: numbers change by rounding alone. Left
    out: one, or all those of several processes."""
    log: tuple[Literal["csv", "tensorboard"], ...] = ()
    """Also write every block to history.csv, or for TensorBoard, in the run's folder; a run that is
    resumed goes on with what is there."""
    hosts: tyro.conf.OmitArgPrefixes[Hosts] = dataclasses.field(default_factory=Hosts)
    """Several processes of one run."""
    config: tyro.conf.OmitArgPrefixes[Any] = None
    """Those of the agent."""

    @property
    def setup(self) -> Setup:
        """All of this that determines the numbers."""
        return Setup(**{name: getattr(self, name) for name in OF_A_SETUP})


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says. Raises `RunError`, `ValueError` and KeyboardInterrupt."""
    if "--list" in arguments:
        print(_names())
        return 0
    if "--presets" in arguments:
        print(_sources())
        return 0
    options, path = _options(arguments)
    try:
        with warnings.catch_warnings(record=True, action="always") as said, unless_empty(path):
            check_writers(options.log)
            run = Run(options.setup, path, resume=options.resume, devices=options.devices)
    except ValueError as error:
        raise ValueError(in_words_of_help(str(error), options.config)) from None
    console, blocks = open_console(quiet=jax.process_index() > 0), options.config.blocks
    words, _ = described(options.agent, options.config)
    words += run.program.devices.words
    console.print(Text.assemble((options.env, "bold"), f"  {words}  →  {path}"), soft_wrap=True)
    log = broadcast(lambda: going_on(options, path, console))
    reports = until_preempted(logged(run, *log))
    tell_preset(options, console)
    tell_fewer(run, console)
    for warning in said:
        console.print(str(warning.message), soft_wrap=True)
    if len(run.history) >= blocks:
        longer = to_resume("train", options, path, "--blocks", 2 * len(run.history))
        console.print(
            f"Complete after block {len(run.history)}. To go on: {longer}", soft_wrap=True
        )
        return 0
    if run.history:
        console.print(f"resumed after block {len(run.history)} of {blocks}")
    console.print(f"Returns are means over {options.config.episodes} episodes, played greedily.")
    try:
        watch(run, console, reports)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_farewell(run, options, path)) from None
    if len(run.history) < blocks:
        console.print(_farewell(run, options, path), soft_wrap=True)
        return PREEMPTED
    if not console.quiet:
        _tell_outcome(run, options, path, console)
    return 0


def _tell_outcome(run: Run, options: Options, path: pathlib.Path, console: Console) -> None:
    """Print what the run has reached, and the commands that continue from there."""
    returns = np.array([row["returns"] for row in run.history])
    console.print(FILL)
    if not any(max(row["fill"]) for row in run.history):
        console.print("It has learned nothing: too few steps were played to fill any batch.")
    elif jax.process_count() == 1:  # several would wait for the one that plays
        longer = to_resume("train", options, path, "--blocks", 2 * len(run.history))
        tell_chance(run, returns, longer, console)
    console.print(course(run.history), end="")
    if run.best is not None and (run.best.returns > returns[-1]).any():
        score = interquartile_mean(run.best.returns)
        play = called("evaluate", path, "--best")
        console.print(f"Each seed's best (IQM {score:.2f}) is kept: {play}", soft_wrap=True)
    watch_it = called("evaluate", path)
    console.print(f"Done. See how well it plays: {watch_it}", soft_wrap=True)


def _names() -> str:
    """List what can be named, a line each, under headings."""
    kinds = {"environments": registered(), "memories": memory.NAMES, "agents": AGENTS}
    return "\n".join("\n  ".join([f"{kind}:", *names]) for kind, names in kinds.items())


def _sources() -> str:
    """Every preset, its source, its settings, and in what they differ from it."""
    lines = []
    for agent, presets in PRESETS.items():
        for name, preset in presets.items():
            settings = ", ".join(f"{k}={getattr(preset.config, k)}" for k in preset.places)
            lines += [f"--agent {agent} --preset {name}: {preset.source}", f"  {settings}"]
            lines += [f"  - {note}" for note in preset.notes]
    return "\n".join(lines)


def _options(arguments: Sequence[str]) -> tuple[Options, pathlib.Path]:
    """The options, on top of those of the run to resume, and the folder."""
    agent = _agent(arguments)
    options = _parse(arguments, first_setup(arguments, agent))
    if not options.resume:
        if not options.env:
            raise ValueError(
                f"Say which ENVIRONMENT, such as `{called('train', 'popgym-RepeatFirstEasy-v0')}`; "
                f"`{called('train', '--list')}` names all."
            )
        name = described(options.agent, options.config)[1]
        return options, options.out or new_folder(options.env, name)
    path = options.out or _latest(options.env, agent)
    setup = saved(path)
    if setup is None and options.env:  # killed before it had written anything: begin
        return dataclasses.replace(options, resume=False), path
    if setup is None:
        raise RunError(
            f"There is no run in {path}: nothing to resume. Name ENVIRONMENT to begin one."
        )
    if setup.agent != agent:
        raise RunError(f"{path} holds a run of {setup.agent}, not of {agent}: leave --agent out.")
    if options.env not in ("", setup.env):
        raise RunError(f"{path} holds a run on {setup.env}, not on {options.env}: leave that out.")
    return _parse(arguments, setup), path


def first_setup(arguments: Sequence[str], agent: str) -> Setup:
    """The setup that other options change: the agent's own, or a preset's."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?")
    name = parser.parse_known_args(arguments)[0].preset
    if not name:
        return Setup(env="", agent=agent)
    preset = find_preset(agent, name)
    return Setup(env="", agent=agent, config=preset.config, observes=preset.observes)


def _agent(arguments: Sequence[str]) -> str:
    """The agent that is named, or that of the run to resume: the other options depend on it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", nargs="?")
    parser.add_argument("--out", nargs="?", type=path_of)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--memory", nargs="?")  # my_module:Mine is a memory here
    named, others = parser.parse_known_args(arguments)
    agent = named.agent
    if agent is None and named.resume:
        env = next((word for word in others if ":" in word or word in registered()), "")
        past = [saved(named.out)] if named.out else map(_readable, newest())
        fits = ("", env) if env and not named.out else None
        agent = next((run.agent for run in past if run and (not fits or run.env in fits)), None)
    agent = Setup.agent if agent is None else agent
    check_options([word for word in others if word.startswith("--")], agent)
    return agent


def check_options(options: Sequence[str], agent: str) -> None:
    """Raises `ValueError` for an unknown agent, and for an option that only another one has."""
    find(agent)
    known = {name: {f.name for f in dataclasses.fields(a.Config)} for name, a in AGENTS.items()}
    for option in options:
        option = option.partition("=")[0]
        field = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        of = [name for name in AGENTS if field in known[name]]
        if of and agent not in of:
            raise ValueError(f"{option} is an option of {of[0]}, not of {agent}: --agent {of[0]}.")


def _parse(arguments: Sequence[str], default: Setup) -> Options:
    options = Options(**{name: getattr(default, name) for name in OF_A_SETUP})
    own = "" if default.agent == Setup.agent else f" --agent {default.agent}"
    names = f"{', '.join(memory.NAMES)}, or my_module:MyMemory of your own"
    words = f"{inspect.getdoc(Options)}\n\nMemories: {names}."
    return tyro.cli(
        Options, args=arguments, default=options, prog=f"mmrl train{own}", description=words
    )


def _readable(path: pathlib.Path) -> Setup | None:
    """The setup of the run in a folder; None if the command line could not go on with it."""
    try:
        return saved(path)
    except RunError:
        return None


def _latest(env: str, agent: str) -> pathlib.Path:
    """The latest run of this agent, and of this environment if one is named."""
    path = None
    for path in newest():
        setup = _readable(path)
        if setup is not None and env in ("", setup.env) and setup.agent == agent:
            return path
    of = f" of {agent}" if path else ""
    of += f" in {env}" if env else ""
    raise RunError(
        f"There is no run{of} under {RESULTS}/ to resume. Name one with --out, or leave --resume "
        "out to begin one."
    )


def _farewell(run: Run, options: Options, path: pathlib.Path) -> str:
    done, resume = len(run.history), to_resume("train", options, path)
    kept = f"At least blocks 1 to {done} are saved in" if done else "No block is complete of"
    if jax.process_count() > 1:
        resume = "the same command and --resume, in each process"
    return f"Stopped. {kept} {path}; go on with: {resume}"
