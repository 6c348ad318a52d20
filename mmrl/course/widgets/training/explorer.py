"""The training explorer: what its settings and buttons do."""

import dataclasses
import pathlib
import threading
import time
from collections.abc import Mapping
from typing import Any

import ipywidgets
import numpy as np
import traitlets

from mmrl.agents.dqn import Config
from mmrl.course import plain
from mmrl.course.widgets.training.live import Curve, LiveCurves
from mmrl.course.widgets.training.panel import ENVIRONMENTS, Panel, short
from mmrl.course.widgets.training.trial import Trial
from mmrl.memory import NAMES
from mmrl.runs import Run, RunError, Setup, describe, provenance
from mmrl.runs.checkpoint import dumps, replace, writing
from mmrl.show import STYLES

MOST = {"seeds": 20, "blocks": 500}  # more would not fit a laptop
REFRESH = 0.2  # seconds between two pictures, at least
NOTHING = "Nothing trained yet: choose settings and press Train."


class TrainingExplorer(ipywidgets.VBox):
    """Train double DQN with a memory, watch it, compare it with other settings.

    The traits are the settings in view. `config` holds all others; `bounds` maps an environment to
    heights to mark, `{"popgym-RepeatFirstEasy-v0": {"best": 1.0}}`. Runs of one environment share
    a figure. A run replaces one of the same name, so a cell may be run again.
    """

    env = traitlets.Unicode(ENVIRONMENTS[0])
    memory = traitlets.Enum(NAMES, "lru")
    batching = traitlets.Enum(("tape", "segments"), "tape")
    segment_length = traitlets.Int(10)  # L, steps
    gamma = traitlets.Float(0.5)  # γ, per step
    learning_rate = traitlets.Float(3e-3)
    seeds = traitlets.Int(3)  # how many
    blocks = traitlets.Int(16)
    name = traitlets.Unicode("")  # of the next run; "" for one made of its settings

    def __init__(
        self,
        *,
        config: Config | None = None,
        bounds: Mapping[str, Mapping[str, float]] | None = None,
        **settings: Any,
    ):
        ipywidgets.VBox.__init__(self, **settings)
        self.config, self.bounds = config or plain.DQN, dict(bounds or {})
        self._first = {key: getattr(self, key) for key in ("gamma", "learning_rate")}
        self.trials: dict[tuple[str, str], Trial] = {}  # by environment and name
        self._current: Trial | None = None
        self.png, self._figure, self._shown = b"", LiveCurves(), 0.0
        self._lock = threading.RLock()  # of all that is shown: several threads show it
        actions = {
            "Train": self.train,
            "Pause": self.pause,
            "Stop": self.stop,
            "Clear": self.clear,
            "Save": self.save,
        }
        self._panel = Panel(self, actions, self.remove)
        self.children = self._panel.children
        self.add_class("mmrl")
        self.add_class("mmrl-training")
        self.observe(lambda _: self.refresh(), ["env", "batching"])
        self.refresh()

    def train(self) -> None:
        """Start a run with the settings in view; returns at once. Troubles are told in a line."""
        try:
            self._begin()
        except ValueError as error:
            self._say(str(error))

    def run(self, name: str = "", **settings: Any) -> Run:
        """Train with `settings` on top of those in view, and return the run once it is done.

        The widget follows, if a cell above shows it. Raises `ValueError` and `RunError`.
        """
        for key, value in {**settings, "name": name}.items():
            if key not in self.class_own_traits():
                known = ", ".join(sorted(self.class_own_traits()))
                raise ValueError(f"`{key}` is no setting of the explorer; there are {known}.")
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
        """Pause at the end of this block, or go on."""
        if self._current is not None:
            self._current.pause()
        self.refresh()

    def stop(self) -> None:
        """End the run under way; its blocks so far stay."""
        if self._current is not None:
            self._current.stop()
        self.refresh()

    def clear(self) -> None:
        """Remove all runs, and stop the one under way."""
        for key in list(self.trials):
            self._drop(key)
        self._current = None
        self._say(NOTHING)

    def remove(self, name: str) -> None:
        """Remove one run of the environment in view. Unknown names are no error."""
        self._drop((self.env, name))
        self.refresh()

    def save(self) -> pathlib.Path | None:
        """Write results.json and curves.png of the runs in view; returns their folder.

        That is the folder in the box, with a number if it holds results already.
        """
        trials = [trial for trial in self._in_view() if trial.reports]
        if not trials:
            return self._say("Nothing to save yet: train first.")
        folder = _free(pathlib.Path(self._panel.folder.value.strip() or "results/explorer"))
        rows = [
            {
                "name": trial.curve.name,
                "setup": describe(trial.setup),
                "env_steps": [point.env_steps for point in trial.curve.points],
                "returns": np.array(
                    [p.returns for p in trial.curve.points]
                ).T.tolist(),  # [seed, block]
                "seconds": [round(report.seconds, 3) for report in trial.reports],
            }
            for trial in trials
        ]
        try:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
                content = dumps({**provenance(), "runs": rows}, indent=1)
                replace(folder / "results.json", content.encode())
                replace(folder / "curves.png", self.png)
        except RunError as error:
            return self._say(str(error))
        self._say(f"Saved {len(rows)} runs in {folder.resolve()}.")
        return folder

    def _setup(self) -> Setup:
        """The settings in view. Raises `ValueError` for what cannot be trained here."""
        for key, most in {**MOST, "segment_length": self.config.batch}.items():
            if not 1 <= getattr(self, key) <= most:
                raise ValueError(f"`{key}` must be from 1 to {most}; got {getattr(self, key)}.")
        length = self.segment_length if self.batching == "segments" else 1
        config = dataclasses.replace(
            self.config,
            memory=self.memory,
            batching=self.batching,
            segment_length=self.segment_length,
            batch=self.config.batch // length * length,  # whole segments
            gamma=self.gamma,
            learning_rate=self.learning_rate,
            blocks=self.blocks,
        )
        return Setup(env=self.env, config=config, seeds=tuple(range(self.seeds)))

    def _auto_name(self, config: Config) -> str:
        """Memory and batching, and what else differs from how the explorer was made."""
        parts = [self.memory]
        if self.batching == "segments":
            parts.append(f"segments {self.segment_length}")
        if config.batch != self.config.batch:
            parts.append(f"batch {config.batch}")
        for key, symbol in (("gamma", "γ"), ("learning_rate", "lr")):
            if getattr(self, key) != self._first[key]:
                parts.append(f"{symbol} {getattr(self, key):g}")
        return ", ".join(parts)

    def _begin(self) -> Trial:
        with self._lock:
            if self._current is not None and self._current.active:
                raise ValueError(
                    f"{self._current.curve.name} is being trained: wait, or press Stop first."
                )
            setup = self._setup()
            key = (self.env, self.name.strip() or self._auto_name(setup.config))
            self._drop(key)
            taken = {trial.curve.style for trial in self._in_view()}
            free = [i for i in range(len(STYLES)) if i not in taken]
            if not free:
                raise ValueError(f"The figure holds {len(STYLES)} runs: remove one first.")
            self._current = Trial(setup, Curve(key[1], free[0]), self._tell)
            self.trials[key] = self._current
        self.refresh()
        return self._current

    def _drop(self, key: tuple[str, str]) -> None:
        trial = self.trials.pop(key, None)
        if trial is not None:
            trial.stop()

    def _in_view(self) -> list[Trial]:
        with self._lock:
            return [trial for (env, _), trial in self.trials.items() if env == self.env]

    def _tell(self) -> None:
        """A trial's thread has news; fast blocks do not all get a picture."""
        with self._lock:  # what ended without a single point has nothing to show
            self.trials = {k: t for k, t in self.trials.items() if t.active or t.reports}
        soon = time.monotonic() - self._shown < REFRESH
        training = self._current is not None and self._current.status == "training"
        self.refresh(picture=not (soon and training))

    def refresh(self, picture: bool = True) -> None:
        """Show how everything stands."""
        with self._lock:
            current = self._current
            text = NOTHING
            if current is not None:
                text = f"{current.curve.name}: {current}"
            self._say(text)
            if picture:
                self._draw()

    def _say(self, text: str) -> None:
        with self._lock:
            self._panel.say(text, self._current)

    def _draw(self) -> None:
        trials = self._in_view()
        steps = [t.setup.config for t in trials]
        end = max((c.blocks * c.block * c.rollout * c.environments for c in steps), default=1)
        bounds = self.bounds.get(self.env, {})
        title = short(self.env)
        curves = [trial.curve for trial in trials]
        self.png = self._figure.draw(curves, title=title, end=end, bounds=bounds)
        self._panel.show(trials, self.png, title, bounds)
        self._shown = time.monotonic()


def _free(folder: pathlib.Path) -> pathlib.Path:
    """`folder`, or if it holds results the first of folder-2, folder-3, … that does not."""
    number, free = 1, folder
    while (free / "results.json").exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free
