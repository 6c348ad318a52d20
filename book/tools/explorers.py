"""Sphinx directive that shows a widget of the course on a page that is not a notebook.

    ```{explorer} LiveAgent
    ```

inserts the widget in its initial state. The script `static/mount.js` then runs it in the browser.
The widget `PolicyPlayer` also takes an agent and a number of steps:

    ```{explorer} PolicyPlayer zoo/RepeatFirstEasy-dqn-lru
    :steps: 20
    ```
"""

import html
import json
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mmrl.course import widgets
from mmrl.course.widgets import training

# Traits that only ipywidgets uses.
FOREIGN = ("layout", "tabbable", "tooltip")


def data_of(name: str, *arguments: str, **options: Any) -> dict[str, Any]:
    """Return the JavaScript module, the style sheet and the traits of a widget as JSON values."""
    widget = getattr(widgets, name, None) or getattr(training, name)
    instance = widget(*arguments, **options)
    state = instance.get_state()
    traits = {k: v for k, v in state.items() if not k.startswith("_") and k not in FOREIGN}
    return {"esm": instance._esm, "css": instance._css, "traits": traits}


class Explorer(SphinxDirective):
    """Directive that inserts a widget."""

    required_arguments = 1
    optional_arguments = 1
    option_spec = {"steps": directives.positive_int}  # noqa: RUF012  (as in docutils)

    def run(self) -> list[nodes.Node]:
        """Return a placeholder element, and a script element with the data of the widget."""
        self.env.note_reread()
        widget = data_of(*self.arguments, **self.options)
        text = json.dumps(widget, allow_nan=False).replace("</", "<\\/")
        lacking = f"{html.escape(self.arguments[0])} needs JavaScript."
        place = f'<div class="mmrl-mount"><noscript>{lacking}</noscript></div>'
        data = f'<script type="application/json" class="mmrl-explorer">{text}</script>'
        return [nodes.raw("", place + data, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_js_file("mount.js", loading_method="defer")
    app.add_directive("explorer", Explorer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
