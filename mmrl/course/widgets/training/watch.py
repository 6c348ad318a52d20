"""A player that shows an agent while it is being trained."""

import html
import threading
import time

import ipywidgets

from mmrl.course.widgets.training.explorer import TrainingExplorer
from mmrl.course.widgets.training.panel import ROWS, described_box
from mmrl.course.widgets.training.player import AgentPlayer
from mmrl.course.widgets.training.trial import Trial

PAUSE = 3.0  # minimum seconds between two episodes, because playing slows down the training
NOTHING = "No agent yet. An agent plays here after its first block of training."


class Watch(ipywidgets.VBox):
    """Panel that shows an episode of an agent from a training explorer.

    The agent of the first seed acts greedily, and `episode` determines the random key. If `follow`
    is checked, the agent plays another episode after later blocks.
    """

    def __init__(self, explorer: TrainingExplorer):
        ipywidgets.VBox.__init__(self)
        self._explorer, self._player = explorer, None
        self._lock, self._seen, self._when = threading.Lock(), None, 0.0
        self.run = ipywidgets.Dropdown(options=(), **described_box("Run"))
        self.episode = ipywidgets.IntText(0, **described_box("Episode"))
        self.follow = ipywidgets.Checkbox(True, **described_box("Play after every block", "0px"))
        self.said = ipywidgets.HTML()
        self._place = ipywidgets.Box(layout={"width": "100%", "display": "block"})
        row = ipywidgets.Box((self.run, self.episode, self.follow), layout=ROWS)
        self.children = (row, self.said, self._place)
        explorer.news.append(self._handle_update)
        self.run.observe(lambda _: self.look(), "value")
        self.episode.observe(lambda _: self.look(), "value")
        self._handle_update()

    def look(self, wait: bool = True) -> None:
        """Play an episode of the selected run, unless its current agent is already shown."""
        trial = self._selection()
        if trial is None or trial.last_run is None or not self._lock.acquire(blocking=wait):
            return
        try:
            view = (trial, len(trial.last_run.history), self.episode.value)
            if view != self._seen:
                self._seen = view
                self._show(trial)
        finally:
            self._when = time.monotonic()
            self._lock.release()

    def _show(self, trial: Trial) -> None:
        run, episode = trial.last_run, self.episode.value
        if run is None:
            return
        try:
            if not 0 <= episode < 2**32:
                raise ValueError(f"`episode` must be between 0 and 2³² - 1; got {episode}.")
            if self._player is None:
                self._say(f"{trial.curve.name} is getting ready to play …")
                self._player = AgentPlayer(run, episode=episode)
                self._place.children = (self._player,)
            else:
                self._player.show(run, episode=episode)
        except ValueError as error:
            return self._leave(str(error))
        blocks = len(run.history)
        many = "1 block" if blocks == 1 else f"{blocks} blocks"
        self._say(f"{trial.curve.name} after {many}, its first seed, played greedily.")

    def _handle_update(self) -> None:
        """Handle an update from the explorer, possibly in the training thread."""
        trials = {trial.curve.name: trial for trial in self._explorer.in_view() if trial.last_run}
        names = tuple(trials)
        if names != self.run.options:
            latest = names[-1] if names else None
            choice = self.run.value if self.run.value in names and not self.follow.value else latest
            self.run.options = names
            self.run.value = choice
        if not names:
            self._seen = None
            return self._leave(NOTHING)
        trial = self._selection()
        soon = time.monotonic() - self._when < PAUSE
        if self.follow.value and not (soon and trial is not None and trial.active):
            self.look(wait=False)

    def _selection(self) -> Trial | None:
        for trial in self._explorer.in_view():
            if trial.curve.name == self.run.value:
                return trial
        return None

    def _leave(self, text: str) -> None:
        """Show a message instead of an episode."""
        self._player, self._place.children = None, ()
        self._say(text)

    def _say(self, text: str) -> None:
        self.said.value = f"<div>{html.escape(text)}</div>"
