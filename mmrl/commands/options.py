"""The options of `mmrl train` and `mmrl sweep`, and the setup and folder that they mean."""

import argparse
import dataclasses
import inspect
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

from mmrl import memory
from mmrl.agents import AGENTS, find
from mmrl.agents.presets import find_preset
from mmrl.commands.connect import Hosts
from mmrl.commands.console import Path, called, path_of
from mmrl.commands.folders import RESULTS, new_folder, newest
from mmrl.commands.words import described
from mmrl.envs import registered
from mmrl.runs import SEEDS, RunError, Setup, restore
from mmrl.runs.folder import Folder, kind

AGENT = f"""One of {", ".join(AGENTS)}, each with options of its own: --agent r2d2 --help.

Plain V-trace is clear with --replay-fraction 0."""
OF_A_SETUP = ("env", "agent", "seeds", "observes", "shards", "precision", "config")
NAMELESS = "`over` must name a setting and its values, such as learning_rate; got none."
_EXAMPLE = ("popgym-RepeatFirstEasy-v0",)
_SWEEP = (*_EXAMPLE, "--over", "learning-rate", "1e-3", "3e-3", "1e-2")


@dataclasses.dataclass(frozen=True)
class Options:
    """Train an agent on several seeds at once, or a sweep over settings.

    Every block ends with an evaluation and a checkpoint. Stop with Ctrl-C whenever you like and
    continue with --resume: the result is bit for bit that of an unbroken run.

    It prints a line per block: environment steps per seed; each seed's return, a mean over the
    episodes of the evaluation; IQM, the mean of the middle half of the seeds; the loss; fill, the
    share of real steps in a batch, whose rest is padding; and seconds.

    With --over, every combination of values is trained with each seed in one program, so only
    real-valued settings can be swept. At the end a table shows which setting is best, how certain
    that is, and whether its values ended too early.
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
    """Settings of a paper, such as paper; other options override them. --presets lists all."""
    over: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """A setting and its values, `--over learning-rate 1e-4 3e-4 1e-3`; once for each setting."""
    steps: int | None = None
    """Environment steps per seed: sets --blocks to the least number that reaches them."""
    out: Path | None = None
    """Folder of the run. Default: a new one under results/; with --resume the latest there."""
    resume: bool = False
    """Continue the run in --out, with its settings; more --blocks or --steps prolong it."""
    seeds: tuple[int, ...] = Setup.seeds
    """One independent agent each: `--seeds 0 1 2` trains three. With --over the default is 100 101
    102: a setting looks better on the seeds that chose it, so report others."""
    observes: tuple[Literal["previous_action", "previous_reward", "begin_flag"], ...] = ()
    """Shown to the network next to the observation. `--observes` without names: nothing."""
    shards: int = Setup.shards
    """Of every agent, each with an equal part of its sizes. They share one network."""
    precision: Literal["default", "float32", "tf32", "bfloat16"] = "default"
    """Precision of the factors in all float32 matrix products of training on a GPU, those of the
    environment included. Default: what JAX is set to. `mmrl evaluate` does not use it."""
    devices: int | None = None
    """Number of devices over which the agents, or the shards, are divided: numbers change by
    rounding only. Default: one, or all those of several processes."""
    log: tuple[Literal["csv", "tensorboard"], ...] = ()
    """Also write every block to history.csv, or for TensorBoard, in the run's folder; a resumed run
    continues what is there."""
    hosts: tyro.conf.OmitArgPrefixes[Hosts] = dataclasses.field(default_factory=Hosts)
    """Several processes of one run."""
    config: tyro.conf.OmitArgPrefixes[Any] = None
    """Those of the agent."""

    @property
    def setup(self) -> Setup:
        """All options that determine the numbers."""
        if not all(self.over):
            raise ValueError(NAMELESS)
        over = {each[0].lstrip("-").replace("-", "_"): each[1:] for each in self.over}
        if len(over) < len(self.over):
            names = [each[0] for each in self.over]
            raise ValueError(f"`over` must name a setting once, with all its values; got {names}.")
        return Setup(**{name: getattr(self, name) for name in OF_A_SETUP}, over=over)


def parse(arguments: Sequence[str], command: str = "train") -> tuple[Options, Setup, pathlib.Path]:
    """Return the options, the setup and its folder: a new one, or that of the run to resume.

    Raises `ValueError` and `RunError` for options that do not fit each other, or the run.
    """
    words, names = _first_words(arguments)
    sweeps = command == "sweep" or "--over" in names
    path, there = _to_resume(words, command) if words.resume else (words.out, None)
    agent = words.agent or (there.agent if there else Setup.agent)
    check_options(names, agent)
    if there and there.agent != agent:
        raise RunError(
            f"{path} holds a {_kind(there)} of {there.agent}, not of {agent}: leave --agent out."
        )
    options = _parsed(arguments, there or _usual(agent, words.preset, sweeps), command)
    if not options.env:
        raise _no_environment(options, path, command)
    if there and options.env != there.env:
        raise RunError(
            f"{path} holds a {_kind(there)} on {there.env}, not on {options.env}: leave that out."
        )
    options = _with_steps(options, names)
    setup = options.setup
    if there:
        setup = dataclasses.replace(setup, over=setup.over or there.over)
    if setup.over and options.log:
        raise ValueError(
            "`log` must be left out with `over`, because results.json has the returns of a sweep; "
            f"got {' '.join(options.log)}."
        )
    if there:
        return options, setup, path
    if command == "sweep" and not setup.over:
        raise ValueError(NAMELESS)
    name = described(agent, options.config)[1] + "-sweep" * bool(setup.over)
    options = dataclasses.replace(options, resume=False)  # killed before it had written anything
    return options, setup, path or new_folder(options.env, name)


def _first_words(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options on which the others depend, with `env`, and the names of the others."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--agent", "--preset", "--memory"):  # my_module:Mine is a memory here
        parser.add_argument(name, nargs="?")
    parser.add_argument("--out", nargs="?", type=path_of)
    parser.add_argument("--resume", action="store_true")
    words, others = parser.parse_known_args(arguments)
    words.env = next((word for word in others if ":" in word or word in registered()), "")
    return words, [word.partition("=")[0] for word in others if word.startswith("--")]


def _to_resume(words: argparse.Namespace, command: str) -> tuple[pathlib.Path, Setup | None]:
    """Return the folder to resume and the setup in it; None if nothing was written there yet."""
    path = words.out or latest(words.env, words.agent, command == "sweep")
    description = Folder(path).description()
    if description and command == "sweep" and kind(description) == "run":
        raise RunError(f"{path} holds a run, not a sweep: go on with `mmrl train --resume`.")
    return path, None if description is None else restore(description)


def latest(env: str = "", agent: str | None = None, sweeps: bool = False) -> pathlib.Path:
    """Return the folder under results/ that was written last, of this environment and agent.

    Raises `RunError` without one. Runs that cannot be opened here are passed over.
    """
    path = None
    for path in newest():
        try:
            setup = restore(Folder(path).description() or {})
        except RunError:
            continue
        fits = env in ("", setup.env) and agent in (None, setup.agent)
        if fits and (setup.over or not sweeps):
            return path
    of = f" of {agent}" if path and agent else ""
    of += f" in {env}" if env else ""
    raise RunError(
        f"There is no {'sweep' if sweeps else 'run'}{of} under {RESULTS}/ to resume. Name one with "
        "--out, or leave --resume out to begin one."
    )


def check_options(names: Sequence[str], agent: str) -> None:
    """Raise `ValueError` for an unknown agent, and for an option that only another one has."""
    find(agent)
    known = {name: {f.name for f in dataclasses.fields(a.Config)} for name, a in AGENTS.items()}
    for option in names:
        field = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        of = [name for name in AGENTS if field in known[name]]
        if of and agent not in of:
            raise ValueError(f"{option} is an option of {of[0]}, not of {agent}: --agent {of[0]}.")


def _usual(agent: str, preset: str | None, sweeps: bool) -> Setup:
    """Return the setup that other options change: the agent's own, or a preset's."""
    seeds = SEEDS if sweeps else Setup.seeds
    if not preset:
        return Setup(env="", agent=agent, seeds=seeds)
    found = find_preset(agent, preset)
    return Setup("", found.config, seeds, agent, found.observes)


def _parsed(arguments: Sequence[str], default: Setup, command: str) -> Options:
    options = Options(**{name: getattr(default, name) for name in OF_A_SETUP})
    own = "" if default.agent == Setup.agent else f" --agent {default.agent}"
    names = f"{', '.join(memory.NAMES)}, or my_module:MyMemory of your own"
    words = f"{inspect.getdoc(Options)}\n\nMemories: {names}."
    return tyro.cli(
        Options, args=arguments, default=options, prog=f"mmrl {command}{own}", description=words
    )


def _with_steps(options: Options, names: Sequence[str]) -> Options:
    """Return the options with the blocks that `--steps` needs."""
    if options.steps is None:
        return options
    if "--blocks" in names:
        raise ValueError(
            f"`steps` must be left out with `blocks`, because each sets the length of a run; got "
            f"{options.steps} and {options.config.blocks}."
        )
    return dataclasses.replace(options, config=options.config.for_steps(options.steps))


def _no_environment(options: Options, path: pathlib.Path | None, command: str) -> Exception:
    if options.resume:
        what = "sweep" if command == "sweep" else "run"
        return RunError(
            f"There is no {what} in {path}: nothing to resume. Name ENVIRONMENT to begin one."
        )
    example = called(command, *(_SWEEP if command == "sweep" else _EXAMPLE))
    every = called("train", "--list")
    return ValueError(f"Say which ENVIRONMENT, such as `{example}`; `{every}` names all.")


def _kind(setup: Setup) -> str:
    return "sweep" if setup.over else "run"
