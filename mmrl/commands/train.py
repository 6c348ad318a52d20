"""`mmrl train`: an environment, a memory, a batching, some seeds."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated

import tyro
from rich.console import Console

from mmrl.agents.dqn import Config
from mmrl.commands.terminal import watch
from mmrl.runs import Run, RunError, Setup, saved

RESULTS = pathlib.Path("results")


@dataclasses.dataclass(frozen=True)
class Options:
    """Train double DQN with a memory on several seeds at once.

    Every block ends with an evaluation and a checkpoint. Stop with Ctrl-C whenever you like and go
    on with --resume: the result is bit for bit that of an unbroken run.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENVIRONMENT")] = ""
    """Its id, e.g. popgym-RepeatFirstEasy-v0. With --resume: that of the run."""
    out: pathlib.Path | None = None
    """Folder of the run. Default: a new one under results/; with --resume the latest there."""
    resume: bool = False
    """Go on with the run in --out, with its settings; more --blocks prolong it."""
    seeds: tuple[int, ...] = Setup.seeds
    """One independent agent each."""
    previous_action: bool = Setup.previous_action
    """Show the previous action to the network."""
    begin_flag: bool = Setup.begin_flag
    """Show the first step of an episode to the network."""
    dqn: tyro.conf.OmitArgPrefixes[Config] = dataclasses.field(default_factory=Config)

    @property
    def setup(self) -> Setup:
        """All of this that determines the numbers."""
        return Setup(
            env=self.env,
            config=self.dqn,
            seeds=self.seeds,
            previous_action=self.previous_action,
            begin_flag=self.begin_flag,
        )


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says. Raises `RunError`, `ValueError` and KeyboardInterrupt."""
    options, path = _options(arguments)
    run = Run(options.setup, path, resume=options.resume)
    console = Console()
    agent = f"{options.dqn.memory} on {_batching(options.dqn)}"
    console.print(f"[bold]{options.env}[/]  {agent}  →  {path}", soft_wrap=True)
    if len(run.history) >= options.dqn.blocks:
        console.print(f"Complete after block {len(run.history)}: prolong it with more --blocks.")
        return 0
    if run.history:
        console.print(f"resumed after block {len(run.history)} of {options.dqn.blocks}")
    try:
        watch(run, console)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_farewell(run, path)) from None
    console.print(f"Done. Watch it play: mmrl evaluate {path}", soft_wrap=True)
    return 0


def _options(arguments: Sequence[str]) -> tuple[Options, pathlib.Path]:
    """The options, on top of those of the run to resume, and the folder."""
    options = _parse(arguments, Options())
    if not options.resume:
        if not options.env:
            raise ValueError("Say which environment: `mmrl train popgym-RepeatFirstEasy-v0`.")
        return options, options.out or _new_folder(options)
    path = options.out or _latest(options.env)
    setup = saved(path)
    if setup is None and options.env:  # killed before it had written anything: begin
        return dataclasses.replace(options, resume=False), path
    if setup is None:
        raise RunError(f"There is no run in {path}: nothing to resume.")
    fields = {f.name: getattr(setup, f.name) for f in dataclasses.fields(Setup)}
    defaults = {k: v for k, v in fields.items() if k not in ("agent", "config")}
    return _parse(arguments, Options(**defaults, dqn=setup.config)), path


def _parse(arguments: Sequence[str], default: Options) -> Options:
    return tyro.cli(Options, args=arguments, default=default, prog="mmrl train")


def _batching(config: Config) -> str:
    return "a tape" if config.batching == "tape" else f"segments of {config.segment_length} steps"


def _new_folder(options: Options) -> pathlib.Path:
    """results/<task>-<memory>-<batching>-<number>, the first number that is free."""
    task = options.env.removeprefix("popgym-").removesuffix("-v0").replace("/", "-")
    stem = f"{task}-{options.dqn.memory}-{options.dqn.batching}"
    number = 1
    while (RESULTS / f"{stem}-{number}").exists():
        number += 1
    return RESULTS / f"{stem}-{number}"


def _latest(env: str) -> pathlib.Path:
    """The folder under results/ that was written last, of this environment if one is named."""
    folders = sorted(RESULTS.glob("*/results.json"), key=lambda file: -file.stat().st_mtime)
    for file in folders:
        setup = saved(file.parent)
        if setup is not None and env in ("", setup.env):
            return file.parent
    raise RunError(f"There is no run{f' of {env}' if env else ''} under {RESULTS}/ to resume.")


def _farewell(run: Run, path: pathlib.Path) -> str:
    done, resume = len(run.history), f"mmrl train --resume --out {path}"
    kept = f"Blocks 1 to {done} are saved in {path}" if done else f"No block of {path} is complete"
    return f"Stopped. {kept}; go on with: {resume}"
