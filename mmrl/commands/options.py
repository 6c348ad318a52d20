"""Command-line options of `mmrl train` and `mmrl sweep`."""

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
from mmrl.envs import registered_ids
from mmrl.runs import SEEDS, RunError, Setup, saved_setup
from mmrl.runs.files import change_time, write_errors
from mmrl.runs.shell import command_line

RESULTS = pathlib.Path("results")
AGENT = f"""One of {", ".join(AGENTS)}. For the options of an agent, see --agent r2d2 --help.

For plain V-trace, use clear with --replay-fraction 0."""
OF_A_SETUP = ("env", "agent", "seeds", "observe", "observes", "precision", "config")
NAMELESS = "`over` must name a setting and its values, such as learning_rate; got none."


@dataclasses.dataclass(frozen=True)
class Options:
    """Train an agent with several seeds in parallel, or sweep over settings.

    Every block ends with an evaluation and a checkpoint. You can stop with Ctrl-C at any time and
    continue with --resume. The result is bitwise identical to that of an uninterrupted run.

    For each block, the command prints the environment steps per seed, the mean return of each seed
    in the evaluation, the interquartile mean over seeds (IQM), the loss, the fill (the fraction of
    a batch that is not padding), and the duration in seconds.

    With --over, all combinations of values and seeds are trained in a single program, so only
    real-valued settings can be swept. The report at the end states which setting is best, how
    certain this choice is, and whether one of its values is at the edge of its range.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENVIRONMENT")] = ""
    """Id of the environment, e.g. popgym-RepeatFirstEasy-v0, my_module:MyEnv for a custom one, or
    LIBRARY:NAME, e.g. navix:Navix-DoorKey-5x5-v0. May be omitted with --resume."""
    list: tyro.conf.FlagCreatePairsOff[bool] = False
    """List the names of all environments, memories and agents, and exit."""
    presets: tyro.conf.FlagCreatePairsOff[bool] = False
    """List the presets of all agents, and exit."""
    agent: Annotated[str, tyro.conf.arg(help=AGENT)] = Setup.agent
    preset: str = ""
    """Name of published settings, such as paper (see --presets). Other options override them."""
    over: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """Setting to sweep and its values, e.g. `--over learning-rate 1e-4 3e-4`. May be repeated."""
    steps: int | None = None
    """Minimum number of environment steps per seed, which determines --blocks."""
    out: Path | None = None
    """Folder of the run. Default: a new folder under results/, or with --resume the latest one."""
    resume: bool = False
    """Continue the run in --out with its settings. To extend it, set --blocks or --steps. If
    ENVIRONMENT is given and the folder contains no run, a new run starts."""
    seeds: tuple[int, ...] = Setup.seeds
    """Random seeds, e.g. `--seeds 0 1 2`, one per agent. The default with --over is 100 101 102.
    Report results on seeds that you did not use to select a setting."""
    observe: Literal["observation", "state", "pixels"] = "observation"
    """What the agent observes. `state`: the Markov state, with which no memory is needed (POPGym
    and probe tasks only). `pixels`: an image (RepeatPrevious and Concentration only)."""
    observes: tuple[Literal["previous_action", "previous_reward", "begin_flag"], ...] = ()
    """Additional inputs of the network. Pass `--observes` without names for none."""
    precision: Literal["default", "float32", "tf32", "bfloat16"] = "default"
    """Precision of float32 matrix products during training on a GPU, including those in the
    environment. Default: the setting of JAX. It has no effect on `mmrl evaluate`."""
    devices: int | None = None
    """Number of devices, across which seeds (or environments, if seeds are too few) are sharded.
    Results change only by rounding. Default: one, or all with several processes."""
    log: tuple[Literal["csv", "tensorboard"], ...] = ()
    """Also log every block to history.csv or to TensorBoard files in the folder of the run. A
    resumed run appends to these files."""
    hosts: tyro.conf.OmitArgPrefixes[Hosts] = dataclasses.field(default_factory=Hosts)
    """Runs with several processes."""
    config: tyro.conf.OmitArgPrefixes[Any] = None
    """Settings of the agent."""

    @property
    def setup(self) -> Setup:
        """Setup with all options that affect the results of training."""
        if not all(self.over):
            raise ValueError(NAMELESS)
        over = {each[0].lstrip("-").replace("-", "_"): each[1:] for each in self.over}
        if len(over) < len(self.over):
            names = [each[0] for each in self.over]
            raise ValueError(f"`over` must name each setting once, with all values; got {names}.")
        return Setup(**{name: getattr(self, name) for name in OF_A_SETUP}, over=over)


def parse(arguments: Sequence[str], command: str = "train") -> tuple[Options, Setup, pathlib.Path]:
    """Parse the command line; return the options, the setup and the folder of the run.

    Raises `ValueError` for invalid options, and `RunError` if they conflict with a run to resume.
    """
    words, names = _first_words(arguments)
    sweeps = command == "sweep"
    path, there = _to_resume(words, sweeps) if words.resume else (words.out, None)
    holds = f"{path} holds a {'sweep' if there and there.over else 'run'}"
    agent = words.agent or (there.agent if there else Setup.agent)
    _check_options(names, agent)
    if there and there.agent != agent:
        raise RunError(f"{holds} of {there.agent}, not of {agent}. Omit --agent.")
    usual = _usual(agent, words.preset, sweeps or "--over" in names)  # raises for a wrong preset
    options = _parse(arguments, there or usual, command)
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
            "`log` must be omitted with `over`, because sweeps are only logged to results.json; "
            f"got {' '.join(options.log)}."
        )
    if there:
        return options, setup, path
    if sweeps and not setup.over:
        raise ValueError(NAMELESS)
    name = summarize(agent, options.config)[1] + "-sweep" * bool(setup.over)
    name += f"-{setup.observe}" * (setup.observe != Setup.observe) + "-gap" * (command == "gap")
    options = dataclasses.replace(options, resume=False)  # the folder has no run to resume
    return options, setup, path or new_folder(options.env, name)


def _first_words(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the options that determine how the remaining options are parsed.

    Returns these options, and the names of the remaining ones.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--agent", "--preset", "--memory"):  # a --memory value may look like ENVIRONMENT
        parser.add_argument(name, nargs="?")
    parser.add_argument("--out", nargs="?", type=path_of)
    parser.add_argument("--resume", action="store_true")
    words, others = parser.parse_known_args(arguments)
    words.env = next((word for word in others if ":" in word or word in registered_ids()), "")
    return words, [word.partition("=")[0] for word in others if word.startswith("--")]


def _to_resume(words: argparse.Namespace, sweeps: bool) -> tuple[pathlib.Path, Setup | None]:
    """Return the folder to resume and its setup, or None if it does not contain a run."""
    path = words.out or latest(words.env, words.agent, sweeps)
    there = saved_setup(path)
    if there and sweeps and not there.over:
        raise RunError(f"{path} holds a run, not a sweep. Continue it with `mmrl train --resume`.")
    return path, there


def latest(env: str = "", agent: str | None = None, sweeps: bool = False) -> pathlib.Path:
    """Return the most recent run under results/ for this environment and agent.

    Runs that cannot be opened are skipped. Raises `RunError` if there is none.
    """
    path = None
    for file in sorted(RESULTS.glob("*/results.json"), key=change_time, reverse=True):
        path = file.parent
        with contextlib.suppress(RunError):
            setup = saved_setup(path)
            fits = setup and env in ("", setup.env) and agent in (None, setup.agent)
            if setup and fits and (setup.over or not sweeps):
                return path
    of = (f" of {agent}" if path and agent else "") + (f" in {env}" if env else "")
    raise RunError(
        f"There is no {'sweep' if sweeps else 'run'}{of} under {RESULTS}/ to resume. Pass its "
        "folder with --out, or omit --resume to start a new one."
    )


def _check_options(names: Sequence[str], agent: str) -> None:
    """Raise `ValueError` for an unknown agent and for options of other agents."""
    find(agent)
    fields = {name: {f.name for f in dataclasses.fields(a.Config)} for name, a in AGENTS.items()}
    for option in names:
        field = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        of = [name for name in AGENTS if field in fields[name]]
        if of and agent not in of:
            raise ValueError(f"{option} is an option of {of[0]}, not {agent}. Add --agent {of[0]}.")


def _usual(agent: str, preset: str | None, sweeps: bool) -> Setup:
    """Return the default setup of an agent or of a preset."""
    seeds = SEEDS if sweeps else Setup.seeds
    if not preset:
        return Setup(env="", agent=agent, seeds=seeds)
    settings = find_preset(agent, preset)
    return Setup("", settings.config, seeds, agent, settings.observes)


def _parse(arguments: Sequence[str], default: Setup, command: str) -> Options:
    options = Options(**{name: getattr(default, name) for name in OF_A_SETUP})
    own = "" if default.agent == Setup.agent else f" --agent {default.agent}"
    names = f"{', '.join(memory.NAMES)}, or my_module:MyMemory for a custom one"
    words = f"{inspect.getdoc(Options)}\n\nMemories: {names}."
    return tyro.cli(
        Options, args=arguments, default=options, prog=f"mmrl {command}{own}", description=words
    )


def _with_steps(options: Options, names: Sequence[str]) -> Options:
    """Convert `--steps` to a number of blocks."""
    if options.steps is None:
        return options
    if "--blocks" in names:
        raise ValueError(
            f"`steps` must be omitted with `blocks`, because both set the length of a run; got "
            f"{options.steps} and {options.config.blocks}."
        )
    if options.steps < 1:
        raise ValueError(f"`steps` must be at least 1 per seed; got {options.steps}.")
    return dataclasses.replace(options, config=options.config.for_steps(options.steps))


def _no_environment(path: pathlib.Path | None, command: str) -> Exception:
    what, options = "run", []
    if command == "sweep":
        what, options = "sweep", ["--over", "learning-rate", "1e-3", "3e-3", "1e-2"]
    if path:
        begin = "Pass ENVIRONMENT to start one."
        return RunError(f"There is no {what} to resume in {path}. {begin}")
    example = command_line(command, "popgym-RepeatFirstEasy-v0", *options)
    every = command_line("train", "--list")
    return ValueError(f"ENVIRONMENT is missing. Example: `{example}`. List all with `{every}`.")


def new_folder(env: str, name: str) -> pathlib.Path:
    """Create the folder results/<task>-<name>-<number>, with the first free number."""
    task = env.rpartition(":")[2]  # drop the module of my_module:MyEnv
    task = task.removeprefix("popgym-").removesuffix("-v0")
    with write_errors(RESULTS):
        RESULTS.mkdir(exist_ok=True)
        return next(filter(make_folder, numbered_paths(f"{task}-{name}".replace("/", "-"))))


def numbered_paths(stem: str, suffix: str = "") -> Iterator[pathlib.Path]:
    """Yield the paths results/<stem>-1<suffix>, results/<stem>-2<suffix>, and so on."""
    return (RESULTS / f"{stem}-{n}{suffix}" for n in itertools.count(1))


def make_folder(path: pathlib.Path) -> bool:
    """Create a folder; return False if it already exists."""
    try:
        path.mkdir(parents=True)  # another run may have removed results/
    except FileExistsError:
        return False
    return True


@contextlib.contextmanager
def unless_empty(path: pathlib.Path) -> Iterator[None]:
    """Remove the new folder of a run if the run fails to start and the folder is empty."""
    try:
        yield
    except BaseException:
        for folder in (path, RESULTS) if path.parent == RESULTS else ():
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.rmdir()
        raise


def summarize(agent: str, config: Any) -> tuple[str, str]:
    """Return a description of an agent's main settings, and a folder name for them."""
    words, folder = find(agent).label(config)
    return words, folder.replace(config.memory, config.memory.rpartition(":")[2])  # drop the module


def assignments(setting: Mapping[str, float]) -> str:
    """Format a setting of a sweep as option names with their values."""
    return ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in setting.items())


def in_words_of_help(message: str, config: Any) -> str:
    """Replace the names of Python arguments in an error message with command-line options."""
    for field in dataclasses.fields(config):  # in remedies such as "Set batch=831"
        option = f"--{field.name.replace('_', '-')}"
        message = re.sub(rf"\b{field.name}='?([\w.]+\b)'?", rf"{option} \1", message)
    words = {"env": "ENVIRONMENT", "env_id": "ENVIRONMENT"}
    words |= {"name": "`memory`", "sizes": "`memory_sizes`"}
    return re.sub(r"^`(\w+)`", lambda match: words.get(match[1], match[0]), message)


def options_of(setup: Setup) -> list[str]:
    """Return command-line arguments for all settings, except seeds, that are not the defaults."""
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
    """Return command-line arguments for one setting of an agent."""
    flag = isinstance(value, bool) and name not in WORDS
    name = name.replace("_", "-")
    if flag:
        return [f"--{name}" if value else f"--no-{name}"]
    pairs = value if isinstance(value, tuple) else [(value,)]
    return [f"--{name}", *(str(word) for pair in pairs for word in pair)]
