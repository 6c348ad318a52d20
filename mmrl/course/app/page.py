"""Page of the app, which shows training and play, or a single widget."""

import difflib
import html
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import ipywidgets
import traitlets

from mmrl.course import links, widgets
from mmrl.course.widgets.base import Explorer
from mmrl.course.widgets.training import LiveAgent, PolicyPlayer, TrainingExplorer
from mmrl.course.widgets.training.panel import ROWS, described_box
from mmrl.course.widgets.training.watch import Watch
from mmrl.runs import Run, Setup

# Environment variable: the folder in which `mmrl explore` was called, and where results are saved.
FOLDER = "MMRL_EXPLORE_FOLDER"
ADDRESS = "http://localhost:8866/"  # default address of `mmrl explore`
OF_VOILA = ("theme", "template", "token")
TRAINING = "Training"
LOOK = """
.mmrl-app { overflow: visible; color-scheme: light dark; max-width: 1500px; }
.mmrl-app h1 { margin: 0 16px 0 0; font: 600 20px/1.3 system-ui, "DejaVu Sans", sans-serif; }
.mmrl-app > *, .mmrl-app .widget-vbox { overflow: visible; min-width: 0; }
.mmrl-app-train { display: grid !important; gap: 12px; align-items: start; overflow: visible;
  grid-template-columns: repeat(auto-fit, minmax(min(540px, 100%), 1fr)); }
.mmrl-app .mmrl { max-width: none; }
.mmrl-app input[readonly] { width: 100%; padding: 4px 6px; border: 1px solid var(--line);
  background: var(--paper); color: var(--ink); font: inherit; }
.mmrl-app code { overflow-wrap: anywhere; }
.mmrl-app a { color: var(--blue); }
.mmrl-app [role="alert"]:not(:empty) { padding: 6px 10px; border-left: 4px solid var(--orange); }
"""


def gallery() -> dict[str, type[Explorer]]:
    """Return the widget classes of the course, keyed by class name."""
    players = {cls.__name__: cls for cls in (LiveAgent, PolicyPlayer) if issubclass(cls, Explorer)}
    return dict(sorted({**widgets.EXPLORERS, **players}.items()))


def settings(cls: type[Explorer]) -> dict[str, Any]:
    """Return the defaults of the settings that a link may contain, keyed by name.

    These settings are the widget's synchronized traits whose values are numbers, booleans, or one
    of several names.
    """
    kinds = (traitlets.Int, traitlets.Float, traitlets.Bool, traitlets.Enum)
    own = cls.class_own_traits(sync=True).items()
    return {name: trait.default_value for name, trait in own if isinstance(trait, kinds)}


class App(ipywidgets.VBox):
    """App for training an agent, watching it play and sharing a link to its settings.

    `setup` contains the initial settings. When a new run starts, the last three runs in the same
    environment stay visible. If a `widget` is given, the app shows this widget instead of the
    training view. `trouble` is an error message about the link that opened the app, and `address`
    is the address of the page.
    """

    def __init__(
        self,
        setup: Setup = links.START,
        *,
        widget: Explorer | None = None,
        trouble: str = "",
        address: str = ADDRESS,
    ):
        ipywidgets.VBox.__init__(self)
        self.address, self._made = address, {}
        self.explorer = TrainingExplorer(
            config=setup.config, env=setup.env, seeds=len(setup.seeds), keep=3
        )
        self.watch = Watch(self.explorer)
        self.shared = ipywidgets.HTML()
        title = ipywidgets.HTML("<h1>mmrl explorer</h1>")
        self.said = ipywidgets.HTML(f"<div role='alert'>{html.escape(trouble)}</div>")
        options = [TRAINING, *gallery()]
        names = [(_words(name), name) for name in options]
        self.show = ipywidgets.Dropdown(options=names, **described_box("Show"))
        head = ipywidgets.Box((title, self.show), layout=ROWS)
        self._place = ipywidgets.Box(layout={"width": "100%", "display": "block"})
        share = ipywidgets.Button(description="Write a link", layout={"width": "auto"})
        share.on_click(lambda _: self.share())
        self.children = (
            ipywidgets.HTML(f"<style>{LOOK}</style>", layout={"display": "none"}),
            _frame(head, self.said),
            self._place,
            _frame(ipywidgets.Box((share,)), self.shared),
        )
        self._training = ipywidgets.Box((self.explorer, _frame(self.watch)))
        self._training.add_class("mmrl-app-train")
        self.add_class("mmrl-app")
        if widget is not None:
            self._made[type(widget).__name__] = widget
            self.show.value = type(widget).__name__
        self._choose()
        self.show.observe(lambda _: self._choose(), "value")

    @property
    def widget(self) -> Explorer | None:
        """The visible widget, or None if the training view is visible."""
        return self._made.get(self.show.value)

    def share(self) -> str:
        """Show a link to the current view and return it.

        If the settings are invalid or too large for a laptop, show the reason and return "".
        """
        more = ""
        try:
            if self.widget is None:
                setup = self.explorer.setup
                links.check_room(Run(setup))  # a link must be one that `explore` accepts
                query, command = links.query(setup), links.command(setup)
                more = f"<p>The same in a terminal: <code>{html.escape(command)}</code></p>"
            else:
                query = _query(self.widget)
        except ValueError as error:
            self.shared.value = f"<div role='status'>{html.escape(str(error))}</div>"
            return ""
        link = f"{self.address}?{query}"
        text = html.escape(link)
        self.shared.value = (
            f"<div role='status'><p><a href='{text}' target='_blank'>Open this link</a>, or copy "
            f"it: <input readonly aria-label='Link' value='{text}'></p>{more}</div>"
        )
        return link

    def _choose(self) -> None:
        name = str(self.show.value)
        if name != TRAINING and name not in self._made:
            self._made[name] = gallery()[name]()
        self._place.children = (self.widget or self._training,)
        self.shared.value = ""


def explore(link: str = "") -> App:
    """Open the app with the settings in a link or in the page's address.

    `link` is the part of a link after the "?". If the link is invalid, the app opens with the
    default settings and shows the reason.
    """
    if FOLDER in os.environ:
        os.chdir(os.environ[FOLDER])
    page = os.environ.get("VOILA_REQUEST_URL", "")
    address = urlunsplit((*urlsplit(page)[:3], "", "")) if page else ADDRESS
    query = link or os.environ.get("QUERY_STRING") or urlsplit(page).query
    try:
        values = links.pairs(query.rpartition("?")[2])
        values = {name: words for name, words in values.items() if name not in OF_VOILA}
        if "show" in values:
            return App(widget=_widget(values), address=address)
        app = App(links.read(values) if values else links.START, address=address)
        assert app.explorer.setup  # raises an error for runs that are too large for a laptop
        return app
    except ValueError as error:
        return App(trouble=f"This link cannot be opened: {error}", address=address)


def _widget(values: Mapping[str, str]) -> Explorer:
    """Build the widget named in a link. Raises `ValueError` for invalid names and values."""
    name = values["show"]
    if name not in gallery():
        near = ", ".join(difflib.get_close_matches(name, gallery(), 3, 0.0))
        raise ValueError(f"`show` must name a widget; got {name!r}. Nearest: {near}.")
    cls = gallery()[name]
    widget, names = cls(), settings(cls)
    for key in values.keys() - {"show"}:
        if key not in names:
            raise ValueError(
                f"`{key}` must be a setting of {name}, one of {', '.join(names)}. {links.REMEDY}"
            )
        value = links.from_words(key, values[key], type(names[key]))
        try:
            setattr(widget, key, value)
        except traitlets.TraitError:
            meaning = _meaning(cls.class_traits()[key])
            raise ValueError(f"`{key}` must be {meaning}; got {value!r}. {links.REMEDY}") from None
    return widget


def _meaning(trait: traitlets.TraitType) -> str:
    if isinstance(trait, traitlets.Enum):
        return f"one of {', '.join(trait.values or ())}"
    low, high = (getattr(trait, end, None) for end in ("min", "max"))
    return f"at least {low}" if high is None else f"from {low} to {high}"


def _query(widget: Explorer) -> str:
    # Anywidget creates a subclass per instance, which has the name of the public class.
    name = type(widget).__name__
    usual = settings(gallery()[name])
    now = {key: getattr(widget, key) for key in usual}
    other = {key: links.to_words(value) for key, value in now.items() if value != usual[key]}
    return urlencode({"show": name, **other})


def _frame(*children: ipywidgets.Widget) -> ipywidgets.VBox:
    box = ipywidgets.VBox(children)
    for name in ("mmrl", "mmrl-training"):
        box.add_class(name)
    return box


def _words(name: str) -> str:
    """Split the name of a class into words."""
    words = re.findall("[A-Z][a-z]*", name)
    return " ".join([words[0], *(word.lower() for word in words[1:])])
