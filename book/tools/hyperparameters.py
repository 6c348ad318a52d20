"""Sphinx directive that shows the settings of every agent, from its config and its presets."""

import html
from collections.abc import Mapping
from typing import Any

from docutils import nodes
from pages import scrolling, show
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Hyperparameters(SphinxDirective):
    """Directive that shows the defaults and the presets of every agent, with their sources."""

    def run(self) -> list[nodes.Node]:
        """Return a section with a table for each agent."""
        from mmrl.agents.presets import PRESETS  # imported here, because it loads JAX

        self.env.note_reread()
        return [self._section(agent, presets) for agent, presets in PRESETS.items()]

    def _section(self, agent: str, presets: Mapping[str, Any]) -> nodes.section:
        section = nodes.section(ids=[f"settings-of-{agent}"])
        section += nodes.title(text=agent)
        section += nodes.raw("", table(agent, presets), format="html")
        for name, preset in presets.items():
            section += nodes.paragraph("", "", nodes.literal(text=name), nodes.Text(": "))
            section[-1] += nodes.Text(f"{preset.source}.")
            items = [nodes.list_item("", words(note)) for note in preset.notes]
            section += nodes.bullet_list("", *items)
        return section


def table(agent: str, presets: Mapping[str, Any]) -> str:
    """Return a table with the default and the presets of each setting."""
    usual = vars(type(next(iter(presets.values())).config)())
    heads = ("setting", "default", *presets, "source")
    rows = [_row(name, value, presets) for name, value in usual.items()]
    return scrolling(f"Settings of {agent}", heads, rows, name=0)


def _row(name: str, usual: Any, presets: Mapping[str, Any]) -> list[str]:
    ours = {k: getattr(x.config, name) if name in x.places else None for k, x in presets.items()}
    places = dict.fromkeys(x.places[name] for x in presets.values() if name in x.places)
    usual = "automatic" if usual is None else usual
    cells = [_value(usual), *map(_value, ours.values()), "; ".join(places)]
    return [f"<code>{html.escape(name)}</code>", *map(html.escape, cells)]


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{size} {number}" for size, number in value) or "the memory's defaults"
    return f"{value:,}".replace(",", " ") if type(value) is int else show(value)


def words(text: str) -> nodes.paragraph:
    """Convert a string to a paragraph in which backticks enclose code."""
    parts = [
        nodes.literal(text=part) if i % 2 else nodes.Text(part)
        for i, part in enumerate(text.split("`"))
    ]
    return nodes.paragraph("", "", *parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("hyperparameters", Hyperparameters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
