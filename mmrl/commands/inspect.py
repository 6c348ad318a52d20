"""`mmrl inspect`: measure what an agent remembers and how it uses its memory."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from mmrl import envs
from mmrl.commands import gap
from mmrl.commands.options import make_folder, numbered_paths, unless_empty
from mmrl.commands.progress import watch
from mmrl.commands.terminal import Path, in_background, open_console, open_run
from mmrl.envs.wrappers.observation import with_inputs
from mmrl.inspect.report import STAGES, sentences, stages
from mmrl.inspect.subjects import Subject, policy_subject, subject
from mmrl.runs import Run, RunError, Setup, interval, provenance, saved_setup, zoo
from mmrl.runs.checkpoint import dumps
from mmrl.runs.files import replace, write_errors
from mmrl.runs.shell import command_line

NUMBERS, FIGURE = "inspect.json", "inspect.png"
LAGS = (0, 1, 2, 4, 8)  # lags that the tables show, in addition to the largest one
WINDOWS = (1, 2, 4, 8)  # windows that the saturation table shows


@dataclasses.dataclass(frozen=True)
class Options:
    """Measure what a trained agent remembers and how it uses its memory.

    Recall replaces earlier observations and counts how many actions change. Probes decode the state
    of the task from the memory. Ablations reset, freeze, delay or perturb the memory during play.
    The saturation test plays eight times as long as the longest episode, without a reset. Results
    are written to inspect.json and inspect.png.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of a run, a file from `mmrl export`, or zoo/NAME."""
    network: int | None = None
    """Seed whose network is inspected. Default: the one with the highest return."""
    best: bool = False
    """Use the network from the seed's best block in training, instead of the last block."""
    episodes: int = 32
    """Number of episodes for recall and probes, at least 4."""
    steps: int = 100
    """Maximum length of these episodes, at least 2. Ablations and saturation play complete
    episodes."""
    parts: tuple[str, ...] = ()
    """Parts of the state to decode, as ranges of indices FIRST:END. Default: the complete
    state."""
    gap: bool = False
    """Also train the agent on the state and without a memory, like `mmrl gap`."""
    out: Path | None = None
    """Folder of inspect.json and inspect.png, which must not exist yet. Default: a new folder under
    results/."""
    seed: int = 0
    """Random seed of the episodes."""


def main(arguments: Sequence[str]) -> int:
    """Inspect an agent, print the results, and write them to files.

    Raises `RunError` if the agent cannot be opened or the files exist, and `ValueError` for invalid
    options.
    """
    options = tyro.cli(Options, args=arguments, prog="mmrl inspect")
    for name, least in (("episodes", 4), ("steps", 2)):
        if getattr(options, name) < least:
            raise ValueError(f"`{name}` must be at least {least}; got {getattr(options, name)}.")
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"`seed` must be between 0 and 2³² - 1; got {options.seed}.")
    parts = dict(map(_part, options.parts)) or None
    agent, env, params, about, run = _open(options)
    others = gap.setups(run.setup) if options.gap and run is not None else {}
    size = {"seed": options.seed, "episodes": options.episodes, "steps": options.steps}
    head = {"agent": about, **size, "parts": list(options.parts)}
    before = _before(options, head)
    folder, console = _folder(options), open_console()
    console.print(f"{about['env']}, {about['words']}  →  {folder}", highlight=False, soft_wrap=True)
    with unless_empty(folder):
        measures = stages(agent, env, params, parts=parts, **size)
        numbers = before or {**head, **_measure(measures, console), **provenance()}
        write(folder, numbers)
    if run is not None and others:
        try:
            numbers |= _gap(run, others, folder, console)
        except KeyboardInterrupt:
            words = [*arguments, *([] if options.out else ["--out", str(folder)])]
            again = command_line("inspect", *words)
            raise KeyboardInterrupt(f"Stopped. To continue: {again}") from None
        write(folder, numbers)
    show(numbers, console)
    return 0


def _part(word: str) -> tuple[str, slice]:
    """Parse FIRST:END to a name and a slice. Raises `ValueError` for any other format."""
    if not (match := re.fullmatch(r"(\d+):(\d+)", word)):
        raise ValueError(f"`parts` must be written as FIRST:END, such as 0:4; got {word!r}.")
    return f"state {word}", slice(*map(int, match.groups()))


def _open(options: Options) -> tuple[Subject, Any, Any, dict[str, Any], Run | None]:
    """Open an agent; return (agent, environment, parameters, description, run or None).

    The observations of the environment include all inputs of the agent.
    """
    path = options.path
    if path.suffix == ".npz" or (zoo.is_name(path) and not path.exists()):
        for name in ("best", "gap"):
            if getattr(options, name):
                raise ValueError(f"`--{name}` must be omitted unless `path` is a run folder.")
        if options.network is not None:
            raise ValueError("`--network` must be omitted unless `path` is a run folder.")
        policy = zoo.load(path)
        about = policy.about
        env, params = envs.make(about["env"])
        observe = about.get("setup", {}).get("observe", "observation")
        env = with_inputs(env, params, about["observes"], observe)
        words = f"{about['agent']} with memory {about['memory']}"
        about = {"env": about["env"], "words": words, "path": str(path), "seed": about["seed"]}
        return policy_subject(policy, env, params), env, params, about, None
    run = open_run(path, options.best)
    seeds = run.setup.seeds
    if options.network is not None and options.network not in seeds:
        raise ValueError(
            f"`network` must be a seed of the run, one of {list(seeds)}; got {options.network}."
        )
    if run.best is None if options.best else not run.history:
        raise RunError(f"{path} does not contain a network yet. Train at least one block.")
    net = run.best.net if options.best and run.best else run.state.net
    returns = run.best.returns if options.best and run.best else run.history[-1]["returns"]
    best = int(np.argmax(returns))
    at = best if options.network is None else seeds.index(options.network)
    env, params, *_ = run.program
    words = f"{run.setup.agent} with memory {run.setup.config.memory}, seed {seeds[at]}"
    about = {"env": str(run.setup.env), "words": words, "path": str(path), "seed": seeds[at]}
    return subject(jax.tree.map(lambda x: x[at], net)), env, params, about, run


def _before(options: Options, head: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return earlier results in the folder `out` if only the gap is missing, otherwise None.

    Raises `RunError` if the folder contains any other results.
    """
    path = options.out / NUMBERS if options.out else None
    if path is None or not path.exists():
        return None
    numbers = json.loads(path.read_text("utf-8"))
    same = all(numbers.get(name) == x for name, x in head.items())
    if options.gap and same and "gap" not in numbers:
        return numbers
    raise RunError(f"{path} exists. Choose another folder with --out, or delete the file.")


def _folder(options: Options) -> pathlib.Path:
    """Return the folder `out`, or create a new one."""
    if options.out is not None:
        return options.out
    name = options.path.resolve().name.removesuffix(".npz")
    names = numbered_paths(f"{name}-inspect")
    folder = next(names)
    with write_errors(folder.parent):
        while not make_folder(folder):
            folder = next(names)
    return folder


def _measure(measures: Iterator[tuple[str, Any]], console: Console) -> dict[str, Any]:
    """Run all measurements and show their progress; return the results by stage."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    numbers: dict[str, Any] = {}
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(f"{STAGES[0]}, compiling", total=len(STAGES))
        for _, (name, values) in in_background([lambda: measures]):
            numbers[name] = values
            later = STAGES[len(numbers) :]
            progress.update(bar, advance=1, description=later[0] if later else "")
            if not console.is_terminal:
                console.print(f"{name} done")
    return numbers


def write(folder: pathlib.Path, numbers: Mapping[str, Any]) -> None:
    """Write the results to a JSON file and a figure."""
    import io

    from mmrl.inspect.figures import overview

    buffer, about = io.BytesIO(), numbers["agent"]
    overview(numbers, f"{about['env']}, {about['words']}").savefig(buffer, format="png")
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        replace(folder / NUMBERS, dumps(dict(numbers)).encode() + b"\n")
        replace(folder / FIGURE, buffer.getvalue())


def _gap(
    run: Run, setups: Mapping[str, Setup], folder: pathlib.Path, console: Console
) -> dict[str, Any]:
    """Train two more agents, on the state and without memory, and compare all three."""
    runs = {"memory": run}
    for name, setup in setups.items():
        if name != "memory":
            path = folder / name
            runs[name] = other = Run(setup, path, resume=saved_setup(path) is not None)
            console.print(f"{setup.env}, {name}  →  {path}", highlight=False, soft_wrap=True)
            watch(other, console, other)
    return compare({name: each.history for name, each in runs.items()})


def compare(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the returns of several runs after the last block that all of them completed."""
    blocks = min(map(len, histories.values()))
    returns = {name: np.array(x[blocks - 1]["returns"]) for name, x in histories.items()}
    return {"gap": {name: x.tolist() for name, x in returns.items()}, "gap_blocks": blocks}


def show(numbers: Mapping[str, Any], console: Console) -> None:
    """Print tables and sentences for all results."""
    for table in (_recall(numbers["recall"]), _decodability(numbers["decodability"])):
        console.print(table)
    console.print(_ablations(numbers["ablations"]))
    console.print(_saturation(numbers["saturation"]))
    lines = [*sentences(numbers)]
    if "gap" in numbers:
        lines.append(f"Returns of three agents after {numbers['gap_blocks']} blocks of training:")
        lines += gap.verdict({name: np.array(x) for name, x in numbers["gap"].items()})
    console.print(*lines, sep="\n", soft_wrap=True, highlight=False)


def _number(x: Any, digits: int = 3) -> str:
    return "–" if x is None else f"{x:z.{digits}f}"


def columns(lags: Iterable[int], decisive: int = 0) -> list[int]:
    """Select the lags that a table shows: those in `LAGS`, `decisive` and the largest one."""
    lags = [*lags]
    return [lag for lag in lags if lag in (*LAGS, decisive, lags[-1])]


def _recall(numbers: Mapping[str, Any]) -> Table:
    flips = [x or 0.0 for x in numbers["flips"]]
    earlier = range(1, len(flips))
    lags = columns(range(len(flips)), max(earlier, key=lambda lag: flips[lag], default=0))
    table = Table("recall by lag", "reach", *map(str, lags))
    rows = {"gradient": "gradient", "change": "value", "flips": "action"}
    for name, words in rows.items():
        values = [_number(numbers[name][lag]) for lag in lags]
        table.add_row(words, str(numbers["reach"][name]), *values)
    return table


def _decodability(numbers: Mapping[str, Any]) -> Table:
    lags = columns(numbers["lags"])
    table = Table("R² by lag", "from", *map(str, lags))
    for part, sources in numbers["parts"].items():
        for source, scores in sources.items():
            scores = dict(zip(numbers["lags"], scores, strict=True))
            table.add_row(part, source, *(_number(scores[lag], 2) for lag in lags))
    return table


def _ablations(numbers: Mapping[str, Any]) -> Table:
    table = Table("harm", "return (IQM)", "95 % interval", "change")
    whole = np.array(numbers["unharmed"], float)
    for name, each in numbers.items():
        returns = np.array(each, float)
        middle, low, high = interval(returns)
        change = interval(returns - whole)[0]
        table.add_row(name, f"{middle:z.3f}", f"{low:z.3f} to {high:z.3f}", f"{change:+z.3f}")
    return table


def _saturation(numbers: Mapping[str, Any]) -> Table:
    windows = [i - 1 for i in WINDOWS if i <= len(numbers["norm"])]
    table = Table("without resets", *(f"window {i + 1}" for i in windows))
    for words, name in (("return", "returns"), ("with resets", "reset_returns")):
        means = np.array(numbers[name], float).mean(1)
        table.add_row(words, *(f"{means[i]:z.2f}" for i in windows))
    table.add_row("norm of the state", *(_number(numbers["norm"][i], 2) for i in windows))
    table.add_row("not finite", *(f"{numbers['nonfinite'][i]:.1%}" for i in windows))
    return table
