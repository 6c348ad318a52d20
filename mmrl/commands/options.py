"""The options of `mmrl train` and `mmrl sweep`, and the setup and the folder that they define."""

import argparse
import contextlib
import dataclasses
import inspect
import itertools
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import tyro

from mmrl import memory
from mmrl.agents import AGENTS, find
from mmrl.agents.presets import find_preset
from mmrl.agents.settings import WORDS
from mmrl.commands.connect import Hosts
from mmrl.commands.terminal import Path, path_of
from mmrl.envs import registered
from mmrl.runs import SEEDS, RunError, Setup, saved
from mmrl.runs.files import writing
from mmrl.runs.shell import called

RESULTS = pathlib.Path("results")
AGENT = f"""One of {", ".join(AGENTS)}, each with its own options: --agent r2d2 --help.

For plain V-trace, use clear with --replay-fraction 0."""
OF_A_SETUP = ("env", "agent", "seeds", "observe", "observes", "precision", "config")
NAMELESS = "`over` must name a setting and its values, such as learning_rate; got none."


@dataclasses.dataclass(frozen=True)
class Options:
    """Train an agent on several seeds at once, or a sweep over settings.

    Every block ends with an evaluation and a checkpoint. Stop with Ctrl-C whenever you like and
    continue with --resume: the result is bit for bit that of an uninterrupted run.

    The command prints a line per block: environment steps per seed; each seed's return, a mean over
    the episodes of the evaluation; IQM, the mean of the middle half of the seeds; the loss; fill,
    the share of real steps in a batch, the rest of which is padding; and seconds.

    With --over, every combination of values is trained with each seed in one program, so only
    real-valued settings can be swept. At the end a table shows which setting is best, how certain
    that is, and whether the best value is the first or last one tried.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENVIRONMENT")] = ""
    """Its id, e.g. popgym-RepeatFirstEasy-v0; my_module:MyEnv for your own; or LIBRARY:NAME, e.g.
    navix:Navix-DoorKey-5x5-v0. With --resume: the run's."""
    list: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the names of all environments, memories and agents, without training."""
    presets: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the presets of all agents, without training."""
    agent: Annotated[str, tyro.conf.arg(help=AGENT)] = Setup.agent
    preset: str = ""
    """Name of published settings, such as paper; other options override it. --presets lists all."""
    over: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """A setting and its values, `--over learning-rate 1e-4 3e-4 1e-3`; repeat for each setting."""
    steps: int | None = None
    """Environment steps per seed: sets --blocks to the least number that reaches them."""
    out: Path | None = None
    """Folder of the run. Default: a new one under results/; with --resume the latest one there."""
    resume: bool = False
    """Continue the run in --out, with its settings; more --blocks or --steps prolong it."""
    seeds: tuple[int, ...] = Setup.seeds
    """One independent agent per seed: `--seeds 0 1 2` trains three. With --over the default is 100
    101 102: report other seeds, because a setting looks better on the seeds that chose it."""
    observe: Literal["observation", "state", "pixels"] = "observation"
    """What the agent observes. `state`: the Markov state, which needs no memory (POPGym's tasks and
    the probes). `pixels`: a picture (RepeatPrevious and Concentration)."""
    observes: tuple[Literal["previous_action", "previous_reward", "begin_flag"], ...] = ()
    """Inputs of the network in addition to the observation. `--observes` without names: none."""
    precision: Literal["default", "float32", "tf32", "bfloat16"] = "default"
    """Precision of the factors in float32 matrix products of training on a GPU, including the
    environment's. Default: JAX's setting. `mmrl evaluate` does not use it."""
    devices: int | None = None
    """Number of devices that share the seeds, and each agent's environments if seeds cannot occupy
    all; numbers change only by rounding. Default: one, or all devices of several processes."""
    log: tuple[Literal["csv", "tensorboard"], ...] = ()
    """Also write every block to history.csv, or for TensorBoard, in the run's folder, also if the
    run is resumed."""
    hosts: tyro.conf.OmitArgPrefixes[Hosts] = dataclasses.field(default_factory=Hosts)
    """Several processes of one run."""
    config: tyro.conf.OmitArgPrefixes[Any] = None
    """Settings of the agent."""

    @property
    def setup(self) -> Setup:
        """Setup with all options that determine the numbers."""
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
    sweeps = command == "sweep"
    path, there = _to_resume(words, sweeps) if words.resume else (words.out, None)
    holds = f"{path} holds a {'sweep' if there and there.over else 'run'}"
    agent = words.agent or (there.agent if there else Setup.agent)
    _check_options(names, agent)
    if there and there.agent != agent:
        raise RunError(f"{holds} of {there.agent}, not of {agent}. Omit --agent.")
    usual = there or _usual(agent, words.preset, sweeps or "--over" in names)
    options = _parsed(arguments, usual, command)
    if not options.env:
        raise _no_environment(path if words.resume else None, command)
    if there and options.env != there.env:
        raise RunError(f"{holds} on {there.env}, not on {options.env}. Omit ENVIRONMENT.")
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
    if sweeps and not setup.over:
        raise ValueError(NAMELESS)
    name = described(agent, options.config)[1] + "-sweep" * bool(setup.over)
    name += f"-{setup.observe}" * (setup.observe != Setup.observe) + "-gap" * (command == "gap")
    options = dataclasses.replace(options, resume=False)  # killed before its first file
    return options, setup, path or new_folder(options.env, name)


def _first_words(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options on which the others depend, with `env`, and the names of the others."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--agent", "--preset", "--memory"):  # here my_module:Mine is a memory
        parser.add_argument(name, nargs="?")
    parser.add_argument("--out", nargs="?", type=path_of)
    parser.add_argument("--resume", action="store_true")
    words, others = parser.parse_known_args(arguments)
    words.env = next((word for word in others if ":" in word or word in registered()), "")
    return words, [word.partition("=")[0] for word in others if word.startswith("--")]


def _to_resume(words: argparse.Namespace, sweeps: bool) -> tuple[pathlib.Path, Setup | None]:
    """Return the folder to resume and the setup in it, or None before its first file."""
    path = words.out or latest(words.env, words.agent, sweeps)
    there = saved(path)
    if there and sweeps and not there.over:
        raise RunError(f"{path} holds a run, not a sweep. Continue it with `mmrl train --resume`.")
    return path, there


def latest(env: str = "", agent: str | None = None, sweeps: bool = False) -> pathlib.Path:
    """Return the folder under results/ that was written last, for this environment and agent.

    Raises `RunError` without one. Runs that cannot be opened here are skipped.
    """
    path = None
    for file in sorted(RESULTS.glob("*/results.json"), key=lambda x: -x.stat().st_mtime):
        path = file.parent
        with contextlib.suppress(RunError):
            setup = saved(path)
            fits = setup and env in ("", setup.env) and agent in (None, setup.agent)
            if setup and fits and (setup.over or not sweeps):
                return path
    of = (f" of {agent}" if path and agent else "") + (f" in {env}" if env else "")
    raise RunError(
        f"There is no {'sweep' if sweeps else 'run'}{of} under {RESULTS}/ to resume. Name one with "
        "--out, or omit --resume to begin one."
    )


def _check_options(names: Sequence[str], agent: str) -> None:
    """Raise `ValueError` for an unknown agent, and for an option of another agent."""
    find(agent)
    known = {name: {f.name for f in dataclasses.fields(a.Config)} for name, a in AGENTS.items()}
    for option in names:
        field = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        of = [name for name in AGENTS if field in known[name]]
        if of and agent not in of:
            raise ValueError(f"{option} is an option of {of[0]}, not of {agent}: --agent {of[0]}.")


def _usual(agent: str, preset: str | None, sweeps: bool) -> Setup:
    """Return the setup that other options change: the agent's defaults, or a preset's."""
    seeds = SEEDS if sweeps else Setup.seeds
    if not preset:
        return Setup(env="", agent=agent, seeds=seeds)
    settings = find_preset(agent, preset)
    return Setup("", settings.config, seeds, agent, settings.observes)


def _parsed(arguments: Sequence[str], default: Setup, command: str) -> Options:
    options = Options(**{name: getattr(default, name) for name in OF_A_SETUP})
    own = "" if default.agent == Setup.agent else f" --agent {default.agent}"
    names = f"{', '.join(memory.NAMES)}, or my_module:MyMemory for a custom one"
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
    if options.steps < 1:
        raise ValueError(f"`steps` must be at least 1 per seed; got {options.steps}.")
    return dataclasses.replace(options, config=options.config.for_steps(options.steps))


def _no_environment(resumed: pathlib.Path | None, command: str) -> Exception:
    what, swept = "run", []
    if command == "sweep":
        what, swept = "sweep", ["--over", "learning-rate", "1e-3", "3e-3", "1e-2"]
    if resumed:
        begin = "Name ENVIRONMENT to begin one."
        return RunError(f"There is no {what} to resume in {resumed}. {begin}")
    example = called(command, "popgym-RepeatFirstEasy-v0", *swept)
    every = called("train", "--list")
    return ValueError(f"ENVIRONMENT is missing, as in `{example}`; `{every}` lists all.")


# Folders of new runs


def new_folder(env: str, name: str) -> pathlib.Path:
    """Create results/<task>-<name>-<number> with the first free number."""
    task = env.rpartition(":")[2]  # the name in my_module:MyEnv
    task = task.removeprefix("popgym-").removesuffix("-v0")
    with writing(RESULTS):
        RESULTS.mkdir(exist_ok=True)
        return next(filter(made, numbered(f"{task}-{name}".replace("/", "-"))))


def numbered(stem: str, suffix: str = "") -> Iterator[pathlib.Path]:
    """Yield results/<stem>-<number><suffix> from 1 on."""
    return (RESULTS / f"{stem}-{n}{suffix}" for n in itertools.count(1))


def made(path: pathlib.Path) -> bool:
    """Create a folder; return False if it exists, for example because another run created it."""
    try:
        path.mkdir(parents=True)  # another run that could not begin may have removed results/
    except FileExistsError:
        return False
    return True


@contextlib.contextmanager
def unless_empty(path: pathlib.Path) -> Iterator[None]:
    """Remove the new folder of a run that cannot begin."""
    try:
        yield
    except BaseException:
        for folder in (path, RESULTS) if path.parent == RESULTS else ():
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()
        raise


# Settings in words


def described(agent: str, config: Any) -> tuple[str, str]:
    """Return an agent's most distinctive settings in words, and as the name of a folder."""
    words, folder = find(agent).label(config)
    return words, folder.replace(config.memory, config.memory.rpartition(":")[2])  # my_module:Mine


def assignments(setting: Mapping[str, float]) -> str:
    """Return a setting of a sweep as option names with their values."""
    return ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in setting.items())


def in_words_of_help(message: str, config: Any) -> str:
    """Translate an error of an inner function into the names of `mmrl train --help`."""
    for field in dataclasses.fields(config):  # for a remedy such as batch=831
        option = f"--{field.name.replace('_', '-')}"
        message = re.sub(rf"\b{field.name}='?([\w.]+\b)'?", rf"{option} \1", message)
    words = {"env": "ENVIRONMENT", "env_id": "ENVIRONMENT"}
    words |= {"name": "`memory`", "sizes": "`memory_sizes`"}
    return re.sub(r"^`(\w+)`", lambda match: words.get(match[1], match[0]), message)


def options_of(setup: Setup) -> list[str]:
    """Return the arguments that set all differences from the agent's defaults, except the seeds."""
    agent = find(setup.agent)
    words = ["--agent", setup.agent] * (setup.agent != Setup.agent)
    words += ["--observe", setup.observe] * (setup.observe != Setup.observe)
    if setup.observes != agent.OBSERVES:
        words += ["--observes", *setup.observes]
    words += ["--precision", setup.precision] * (setup.precision != Setup.precision)
    for name, value in vars(agent.Config()).items():
        if (own := getattr(setup.config, name)) != value:
            words += option(name, own)
    return words


def option(name: str, value: Any) -> list[str]:
    """Return the command-line arguments that set a setting of an agent."""
    flag = isinstance(value, bool) and name not in WORDS
    name = name.replace("_", "-")
    if flag:
        return [f"--{name}" if value else f"--no-{name}"]
    pairs = value if isinstance(value, tuple) else [(value,)]
    return [f"--{name}", *(str(word) for pair in pairs for word in pair)]
