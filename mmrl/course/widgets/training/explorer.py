"""The training explorer, which runs experiments with the settings of a panel."""

import dataclasses
import pathlib
import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets
import numpy as np
import traitlets

from mmrl.agents import AGENTS, find
from mmrl.course import plain
from mmrl.course.links import MOST, check_room, check_sizes, to_words
from mmrl.course.widgets.training.live import Curve, LiveCurves
from mmrl.course.widgets.training.panel import ENVIRONMENTS, Panel, short
from mmrl.course.widgets.training.trial import Trial
from mmrl.memory import NAMES
from mmrl.runs import Run, RunError, Setup, describe, provenance
from mmrl.runs.checkpoint import dumps
from mmrl.runs.files import create, expand, replace, write_errors
from mmrl.show import STYLES

REFRESH = 0.2  # minimum seconds between two updates of the plot
SHORTEST_BATCH = 500  # maximum segment length in steps, if `batch` is None
NOTHING = "Nothing trained yet: choose settings and press Train."


class TrainingExplorer(ipywidgets.VBox):
    """Panel that trains agents and compares their learning curves.

    The traits are the settings that are always visible; a button reveals the others. `config`, a
    `Config` of any agent (default: the course's double DQN), contains the initial settings.

    `bounds` maps an environment to labeled lines, `{"popgym-RepeatFirstEasy-v0": {"best": 1.0}}`.
    Runs in the same environment share a plot. A new run replaces one of the same name, so that a
    cell can be run again. If `keep` is given, a run removes all but the last `keep` before it.
    """

    env = traitlets.Unicode(ENVIRONMENTS[0])
    agent = traitlets.Enum(tuple(AGENTS), "dqn")
    memory = traitlets.Enum(NAMES, "lru")
    batching = traitlets.Enum(("tape", "segments"), "tape")
    segment_length = traitlets.Int(10)  # L, steps
    gamma = traitlets.Float(0.5)  # γ, per step
    learning_rate = traitlets.Float(3e-3)
    seeds = traitlets.Int(3)  # number of seeds
    blocks = traitlets.Int(16)
    name = traitlets.Unicode("")  # name of the next run, derived from the settings if it is empty

    def __init__(
        self,
        *,
        config: Any = None,
        bounds: Mapping[str, Mapping[str, float]] | None = None,
        keep: int | None = None,
        **settings: Any,
    ):
        name = settings.get("agent", "dqn")
        config = config or (plain.DQN if name == "dqn" else find(name).Config())
        name = next((name for name, its in AGENTS.items() if type(config) is its.Config), name)
        ipywidgets.VBox.__init__(self, **{"agent": name, **_in_view(config), **settings})
        self.config, self.bounds, self.keep = config, dict(bounds or {}), keep
        self._configs = {name: config}
        self.news: list[Callable[[], None]] = []  # called after every change, in any thread
        self._first = {key: getattr(self, key) for key in ("gamma", "learning_rate")}
        self._made = {key: getattr(self, key) for key in ("seeds", "blocks")}
        self.trials: dict[tuple[str, str], Trial] = {}  # trials by environment and name
        self._current: Trial | None = None
        self.png, self._figure, self._shown = b"", LiveCurves(), 0.0
        self._lock = threading.RLock()  # the threads of runs also update the panel
        actions = {
            "Train": self.train,
            "Pause": self.pause,
            "Stop": self.stop,
            "Clear": self.clear,
            "Save": self.save,
        }
        self._panel = Panel(self, actions, self.remove)
        self._panel.offer(self.config)
        self.children = self._panel.children
        self.add_class("mmrl")
        self.add_class("mmrl-training")
        self.observe(lambda _: self._begin_with(self.agent), "agent")
        self.observe(lambda _: self.refresh(), ["env", "batching"])
        self.refresh()

    def train(self) -> None:
        """Start a run in the background. Errors are shown in the panel."""
        try:
            self._begin()
        except (ValueError, RunError) as error:
            self._say(str(error))
        except Exception as error:  # a button's callback would hide the error
            self._say(f"{type(error).__name__}: {error}")

    def run(self, name: str = "", **settings: Any) -> Run:
        """Change `settings` of the panel, train, and return the finished run.

        Raises `ValueError` for invalid settings and `RunError` for a run without a finished block.
        """
        first = {key: settings[key] for key in ("agent",) if key in settings}  # resets the others
        for key, value in {**first, **settings, "name": name}.items():
            if key not in self.class_own_traits():
                names = ", ".join(sorted(self.class_own_traits()))
                raise ValueError(f"The settings must be among {names}; got `{key}`.")
            setattr(self, key, value)
        try:
            trial = self._begin()
            self.name = ""
            while not trial.finished.wait(0.05):
                if trial.status == "stopped":
                    break
        except KeyboardInterrupt:
            self.stop()
            raise
        if trial.error is not None:
            raise trial.error
        if trial.run is None or not trial.reports:
            raise RunError(f"{trial.curve.name} was stopped before its first block.")
        return trial.run

    def pause(self) -> None:
        """Pause the current run at the end of its block, or resume it."""
        if self._current is not None:
            self._current.pause()
        self.refresh()

    def stop(self) -> None:
        """Stop the current run, and keep its finished blocks."""
        if self._current is not None:
            self._current.stop()
        self.refresh()

    def clear(self) -> None:
        """Remove all runs, and stop the current one."""
        for key in list(self.trials):
            self._drop(key)
        self._current = None
        self.refresh()

    def remove(self, name: str) -> None:
        """Remove a run in the selected environment. Unknown names are ignored."""
        self._drop((self.env, name))
        self.refresh()

    def save(self) -> pathlib.Path | None:
        """Save the visible runs, results.json and curves.png; return the folder, or None on errors.

        A number is appended to the folder's name if it already contains results. Each run has
        a subfolder in the format of `mmrl train`.
        """
        trials = [trial for trial in self.in_view() if trial.reports]
        if not trials:
            return self._say("Nothing to save yet: train first.")
        last = folder = _free(expand(self._panel.folder.value.strip() or "results/explorer"))
        rows = [
            {
                "name": trial.curve.name,
                "setup": describe(trial.setup),
                "env_steps": [point.env_steps for point in trial.curve.points],
                # [seed, block]
                "returns": np.array([p.returns for p in trial.curve.points]).T.tolist(),
                "seconds": [round(report.seconds, 3) for report in trial.reports],
            }
            for trial in trials
        ]
        try:
            with write_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                content = dumps({**provenance(), "runs": rows}, indent=1)
                create(folder / "results.json", content.encode())
                replace(folder / "curves.png", self.png)
            for trial in trials:
                if trial.last_run is not None:
                    trial.last_run.save(last := _free(folder / _slug(trial.curve.name)))
        except RunError as error:
            return self._say(str(error))
        one, end = shlex.quote(str(last)), "s" * (len(rows) > 1)
        self._say(f"Saved {len(rows)} run{end} in {folder.resolve()}. To play: mmrl evaluate {one}")
        return folder

    @property
    def setup(self) -> Setup:
        """The settings of the panel. Raises `ValueError` for invalid or too large settings."""
        config = dataclasses.replace(self.config, **self._panel.others())
        most = {key: MOST[key] for key in ("seeds", "blocks")}
        most |= {"segment_length": getattr(config, "batch", 0) or SHORTEST_BATCH}
        in_view = _in_view(config)
        for key in [key for key in most if key in in_view or key == "seeds"]:
            if not 1 <= getattr(self, key) <= most[key]:
                raise ValueError(
                    f"`{key}` must be between 1 and {most[key]}; got {getattr(self, key)}."
                )
        config = dataclasses.replace(config, **{key: getattr(self, key) for key in in_view})
        if "batching" in in_view and config.batching == "segments" and config.batch:
            whole = config.batch // config.segment_length * config.segment_length
            config = dataclasses.replace(config, batch=whole)
        setup = Setup(self.env, config, tuple(range(self.seeds)), self.agent)
        check_sizes(setup)
        return setup

    def _begin_with(self, agent: str) -> None:
        """Show the settings of another agent, which are its defaults unless `config` set them."""
        self.config = self._configs.setdefault(agent, find(agent).Config())
        for key, value in _in_view(self.config).items():
            if key not in ("memory", "blocks"):
                setattr(self, key, value)
        self._first = {key: getattr(self, key) for key in self._first}
        self._panel.offer(self.config)
        self.refresh()

    def _auto_name(self, config: Any) -> str:
        """Return a label that combines the memory, the batching and the changed settings."""
        parts = [self.memory] if self.agent == Setup.agent else [self.agent, self.memory]
        in_view = _in_view(config)
        if in_view.get("batching") == "segments":
            parts.append(f"segments {self.segment_length}")
        for key, symbol in (("gamma", "γ"), ("learning_rate", "lr")):
            if getattr(self, key) != self._first[key]:
                parts.append(f"{symbol} {getattr(self, key):g}")
        for key, first in self._made.items():
            if (number := getattr(self, key)) != first:
                parts.append(f"{number} {key if number > 1 else key[:-1]}")
        for key, value in vars(config).items():
            if key not in in_view and value != getattr(self.config, key):
                parts.append(f"{key} {to_words(value)}")
        return ", ".join(parts)

    def _begin(self) -> Trial:
        with self._lock:
            if self._current is not None and self._current.active:
                raise ValueError(
                    f"{self._current.curve.name} is being trained: wait, or press Stop first."
                )
            setup = self.setup
            check_room(Run(setup))  # before an older run is removed
            key = (self.env, self.name.strip() or self._auto_name(setup.config))
            self._drop(key)
            older = [key for key in self.trials if key[0] == self.env]
            for old in older[: max(len(older) - self.keep, 0)] if self.keep is not None else ():
                self._drop(old)
            styles = {trial.curve.style for trial in self.in_view()}
            free = [i for i in range(len(STYLES)) if i not in styles]
            if not free:
                raise ValueError(f"The plot can show at most {len(STYLES)} runs; remove one first.")
            self._current = Trial(setup, Curve(key[1], free[0]), self._handle_update)
            self.trials[key] = self._current
        self.refresh()
        return self._current

    def _drop(self, key: tuple[str, str]) -> None:
        trial = self.trials.pop(key, None)
        if trial is not None:
            trial.stop()

    def in_view(self) -> list[Trial]:
        """Return the runs in the selected environment, oldest first."""
        with self._lock:
            return [trial for (env, _), trial in self.trials.items() if env == self.env]

    def _handle_update(self) -> None:
        """Handle an update from the thread of a run, and redraw at most every `REFRESH` seconds."""
        with self._lock:  # remove trials that ended before their first block
            self.trials = {k: t for k, t in self.trials.items() if t.active or t.reports}
        soon = time.monotonic() - self._shown < REFRESH
        training = self._current is not None and self._current.status == "training"
        self.refresh(picture=not (soon and training))

    def refresh(self, picture: bool = True) -> None:
        """Update the plot, the table and the buttons."""
        with self._lock:
            current = self._current
            text = NOTHING
            if current is not None:
                text = f"{current.curve.name}: {current}"
            self._say(text)
            if picture:
                self._draw()
        for callback in self.news:
            callback()

    def _say(self, text: str) -> None:
        with self._lock:
            self._panel.show_message(text, self._current)

    def _draw(self) -> None:
        trials = self.in_view()
        steps = [t.setup.config for t in trials]
        end = max((c.blocks * c.block * c.rollout * c.environments for c in steps), default=1000)
        bounds = self.bounds.get(self.env, {})
        title = short(self.env)
        curves = [trial.curve for trial in trials]
        self.png = self._figure.draw(curves, title=title, end=end, bounds=bounds)
        self._panel.show(trials, self.png, title, bounds)
        self._shown = time.monotonic()


def _free(folder: pathlib.Path) -> pathlib.Path:
    """Return `folder`, or the first of folder-2, folder-3, … without results."""
    number, free = 1, folder
    while (free / "results.json").exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def _slug(name: str) -> str:
    """Convert the name of a run to a valid folder name."""
    return re.sub(r"[^\w.]+", "-", name).strip("-.") or "run"


def _in_view(config: Any) -> dict[str, Any]:
    """Return the settings of a config that are traits of the explorer."""
    names = ("memory", "batching", "segment_length", "gamma", "learning_rate", "blocks")
    return {name: getattr(config, name) for name in names if hasattr(config, name)}
