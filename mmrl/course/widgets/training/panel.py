"""Layout of the training explorer, with its inputs, buttons, plot and table."""

import base64
import dataclasses
import html
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ipywidgets
import traitlets

from mmrl.agents import AGENTS
from mmrl.course.links import from_words, to_words
from mmrl.course.widgets.base import style
from mmrl.course.widgets.training.live import INCHES, MARKS
from mmrl.course.widgets.training.trial import Trial
from mmrl.memory import NAMES
from mmrl.show import STYLES

ENVIRONMENTS = (
    "popgym-RepeatFirstEasy-v0",
    "popgym-RepeatPreviousEasy-v0",
    "popgym-RepeatPreviousPaper-v0",
    "popgym-CountRecallEasy-v0",
    "popgym-AutoencodeEasy-v0",
    "popgym-PositionOnlyCartPoleEasy-v0",
    "probe-Memory-v0",
)
# Only JupyterLab defines the colors of ipywidgets, so these rules define the colors on every page.
LOOK = """
.mmrl.mmrl-training {
  --jp-widgets-label-color: var(--ink); --jp-widgets-readout-color: var(--ink);
  --jp-widgets-color: var(--ink); --jp-ui-font-color1: var(--ink);
  --jp-widgets-input-color: var(--ink); --jp-widgets-input-background-color: var(--paper);
  --jp-widgets-input-border-color: var(--line); --jp-border-color1: var(--line);
  overflow: visible;
}
.mmrl-training .widget-html-content { line-height: 1.45; color: var(--ink); }
.mmrl-training select, .mmrl-training input { color: var(--ink); background-color: var(--paper); }
.mmrl-training select { appearance: auto; background-image: none; padding-right: 2px; }
.mmrl-training ::placeholder { color: var(--dim); opacity: 1; }
.mmrl-training option { color: var(--ink); background: var(--paper); }
.mmrl-training :disabled { opacity: 0.6; }
/* JupyterLab marks the focus by a line of one pixel, too pale to be seen. */
.mmrl-training :is(select, input, button, a):focus-visible {
  outline: 2px solid var(--ink) !important; outline-offset: 2px;
}
.mmrl-training img { max-width: 100%; height: auto; border-radius: 8px; }
.mmrl-training caption { text-align: left; caption-side: bottom; }
.mmrl-training progress { width: 9em; margin-left: 8px; accent-color: var(--blue); }
/* Pages of the book have no kernel; everything else that shows the panel has one. */
.mmrl-training .mmrl-static { display: none; }
.bd-article .mmrl-training .mmrl-static { display: block; }
.mmrl-training .swatch { background: #ffffff; border-radius: 4px; padding: 0 4px; }
"""
HELP = (
    "<p class='mmrl-notes mmrl-static'>Training needs a kernel, which this page does not have, so "
    "it shows the panel as it was saved. The buttons work in JupyterLab, VS Code, Colab and the "
    "app.</p>"
)
WIDTH, HEIGHT = (round(720 * side / INCHES[0]) for side in INCHES)  # pixels on the page
MORE, FEWER = "Show all settings", "Hide the other settings"
ROWS = {"display": "flex", "flex_flow": "row wrap", "width": "100%"}
ROW = ipywidgets.Layout(**ROWS)


def short(env_id: str) -> str:
    """Shorten an environment's id: "popgym-RepeatFirstEasy-v0" becomes RepeatFirst, Easy."""
    name = re.sub(r"^popgym-|-v\d+$", "", env_id)
    return re.sub(r"(?<=[a-z])(Easy|Medium|Hard|Paper)$", r", \1", name)


class Panel:
    """The widgets of a training explorer.

    `settings` is the object whose traits the inputs edit. `actions` maps "Train", "Pause", "Stop",
    "Clear" and "Save" to the functions of these buttons. `remove` is called with the name of a run.
    """

    def __init__(
        self,
        settings: Any,
        actions: Mapping[str, Callable[[], Any]],
        remove: Callable[[str], None],
    ):
        self.boxes, self.remove = _boxes(settings), remove
        self.kinds: dict[str, Any] = {}  # types of the settings that `MORE` reveals, keyed by name
        self.more = ipywidgets.Box(
            layout={"flex_flow": "row wrap", "width": "100%", "display": "none"}
        )
        self.opener = _button(MORE, self._open)
        self.buttons = {name: _button(name, action) for name, action in actions.items()}
        self.buttons["Train"].style.button_color = "#0072B2"
        self.buttons["Train"].style.text_color = "#FFFFFF"
        self.folder = ipywidgets.Text("results/explorer", **described_box("Folder"))
        self.status, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self.picture = ipywidgets.HTML()  # not an Image, which cannot have a description
        self.removers = ipywidgets.Box(layout=ROW)
        self.children = (
            ipywidgets.HTML(f"<style>{style()}{LOOK}</style>", layout={"display": "none"}),
            ipywidgets.Box((*self.boxes.values(), self.opener), layout=ROW),
            self.more,
            ipywidgets.Box((*self.buttons.values(), self.folder), layout=ROW),
            self.status,
            self.picture,
            self.table,
            self.removers,
            ipywidgets.HTML(HELP),
        )

    def offer(self, config: Any) -> None:
        """Show inputs for the settings of an agent's config that are not always visible."""
        fields = [f for f in dataclasses.fields(config) if f.name not in self.boxes]
        self.kinds = {field.name: field.type for field in fields}
        self.more.children = tuple(_other(f, getattr(config, f.name)) for f in fields)
        for name in ("batching", "segment_length"):
            self.boxes[name].disabled = not hasattr(config, name)

    def others(self) -> dict[str, Any]:
        """Return the values of the inputs of `offer`. Raises `ValueError` for an invalid string."""
        words = dict(zip(self.kinds, (box.value for box in self.more.children), strict=True))
        return {
            name: words[name] if kind is bool else from_words(name, words[name], kind)
            for name, kind in self.kinds.items()
        }

    def _open(self) -> None:
        hidden = self.more.layout.display == "none"
        self.more.layout.display = "flex" if hidden else "none"
        self.opener.description = FEWER if hidden else MORE

    def show_message(self, text: str, trial: Trial | None) -> None:
        """Show a message and the progress of the current run, and enable the buttons."""
        active = trial is not None and trial.active
        bar = ""
        if trial is not None and active:
            past, blocks = len(trial.reports), trial.setup.config.blocks
            value = f" value='{past}'" if past else ""  # without a value, the bar is indeterminate
            bar = f"<progress aria-label='blocks trained' max='{blocks}'{value}></progress>"
        self.status.value = f"<div role='status'>{html.escape(text)}{bar}</div>"
        is_paused = trial is not None and trial.status in ("pausing", "paused")
        self.buttons["Pause"].description = "Continue" if is_paused else "Pause"
        for name, on in {"Train": not active, "Pause": active, "Stop": active}.items():
            self.buttons[name].disabled = not on

    def show(
        self, trials: Sequence[Trial], png: bytes, title: str, bounds: Mapping[str, float]
    ) -> None:
        """Show the plot with a description, the table, and a button to remove each run."""
        marks = [f"{name} is {height:.2f}" for name, height in bounds.items()]
        curves = [str(trial.curve) for trial in trials] or ["no curve yet"]
        text = f"Learning curves in {title}. {'; '.join([*curves, *marks])}."
        self.picture.value = (
            f'<img alt="{html.escape(text)}" width="{WIDTH}" height="{HEIGHT}" decoding="sync" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        )
        self.table.value = _table(trials)
        names = [trial.curve.name for trial in trials]
        if [button.tooltip for button in self.removers.children] != names:
            self.removers.children = tuple(
                _button(f"Remove {name}", partial(self.remove, name), tooltip=name)
                for name in names
            )
        batching = self.boxes["batching"]
        self.boxes["segment_length"].disabled = batching.disabled or batching.value == "tape"


def _boxes(settings: Any) -> dict[str, Any]:
    """Return an input per setting. Inputs accept any number, so that errors can be explained."""
    boxes = {
        "env": ipywidgets.Dropdown(options=_choices(settings.env), **described_box("Environment")),
        "agent": ipywidgets.Dropdown(options=tuple(AGENTS), **described_box("Agent")),
        "memory": ipywidgets.Dropdown(options=NAMES, **described_box("Memory")),
        "batching": ipywidgets.Dropdown(options=("tape", "segments"), **described_box("Batching")),
        "segment_length": ipywidgets.IntText(**described_box("Segment L")),
        "gamma": ipywidgets.FloatText(step=0.05, **described_box("Discount γ")),
        "learning_rate": ipywidgets.FloatText(step=0.001, **described_box("Learning rate")),
        "seeds": ipywidgets.IntText(**described_box("Seeds")),
        "blocks": ipywidgets.IntText(**described_box("Blocks")),
        "name": ipywidgets.Text(placeholder="from the settings", **described_box("Name of run")),
    }
    links: dict[str, traitlets.link] = {}

    def offer(change: dict) -> None:
        if change["new"] not in dict(boxes["env"].options).values():
            links["env"].unlink()  # setting the options temporarily selects the first one
            boxes["env"].options = _choices(change["new"])
            links["env"].link()

    settings.observe(offer, "env")  # must run before the link, which requires a valid option
    links |= {name: traitlets.link((settings, name), (box, "value")) for name, box in boxes.items()}
    return boxes


def _other(field: Any, value: Any) -> ipywidgets.DOMWidget:
    """Return an input for a setting, labeled with its option in `mmrl train`."""
    about = described_box(field.name.replace("_", "-"), "144px")
    if field.type is bool:
        return ipywidgets.Checkbox(value=value, indent=False, **about)
    return ipywidgets.Text(to_words(value), **about)


def _choices(env_id: str) -> list[tuple[str, str]]:
    return [(short(name), name) for name in dict.fromkeys([*ENVIRONMENTS, env_id])]


def described_box(text: str, width: str = "96px") -> dict:
    """Return the label and the layout of an input, as keyword arguments of its widget."""
    return {
        "description": text,
        "style": {"description_width": width},
        "layout": {"width": "268px", "max_width": "100%"},
    }


def _button(text: str, action, **options) -> ipywidgets.Button:
    button = ipywidgets.Button(description=text, layout={"width": "auto"}, **options)
    button.on_click(lambda _: action())
    return button


def _table(trials: Sequence[Trial]) -> str:
    """Return an HTML table of the runs, with their scores and times."""
    if not trials:
        return ""
    rows = "".join(_row(trial) for trial in trials)
    heads = ("run", "return [95 % interval]", "steps per seed", "first block", "later blocks")
    return (
        "<table><caption class='mmrl-notes'>Return: interquartile mean over seeds at the last "
        "evaluation. The first block includes compilation.</caption><thead><tr>"
        + "".join(f"<th scope='col'>{head}</th>" for head in heads)
        + f"</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(trial: Trial) -> str:
    curve, seconds = trial.curve, [report.seconds for report in trial.reports]
    swatch = f"<span class='swatch' style='color:{STYLES[curve.style]['color']}'>"
    cells = ["–"] * 4
    if seconds and curve.points:
        steps, _, (middle, low, high) = curve.points[-1]
        later = sum(seconds[1:]) / max(len(seconds) - 1, 1)
        cells = [
            f"{middle:.2f} [{low:.2f}, {high:.2f}]",
            f"{steps:,}",
            f"{seconds[0]:.1f} s",
            f"{later:.2f} s each" if seconds[1:] else "–",
        ]
    name = f"{swatch}{MARKS[curve.style]}</span> {html.escape(curve.name)}"
    return f"<tr><th scope='row'>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
