"""A page that mounts widgets as a notebook would, but without a kernel: a stub holds the traits.

`python tests/browser/page.py ScanPlayer dark > page.html` writes one to look at.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from chrome import Browser, Tab

FOLDER = Path(__file__).parent
# All that a page waits for happens at once: nothing in it depends on how busy the machine is.
TIME = {"policy": "pauseIfNetworkFetchesPending", "budget": 100_000}


def page(widgets: Sequence[Any], theme: str = "light", script: str = "") -> str:
    """The whole page: one widget after another, each examined by `script` and removed.

    Without a script they stay. The page's policy refuses every request, so that none goes unseen.
    """
    mounts = [{"esm": widget._esm, "traits": traits(widget)} for widget in widgets]
    parts = {
        "THEME": theme,
        "CSS": widgets[0]._css,
        "WIDGETS": json.dumps(mounts, allow_nan=False).replace("</", "<\\/"),
        "SCRIPT": script,
        "REMOVE": json.dumps(bool(script)),
    }
    text = (FOLDER / "page.html").read_text("utf-8")
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def traits(widget: Any) -> dict[str, Any]:
    """What travels to the browser, but for what belongs to ipywidgets."""
    foreign = ("layout", "tabbable", "tooltip")
    state = widget.get_state()
    return {k: v for k, v in state.items() if not k.startswith("_") and k not in foreign}


def visit(browser: Browser, html: str, path: Path) -> list[dict[str, Any]]:
    """What the script reported of each widget, after the page ran to its end in virtual time.

    Fails on an error in the page, a trait that does not exist, or a request.
    """
    path.write_text(html, "utf-8")
    with closing(Tab(browser)) as tab:  # a new one: its clock stands still afterwards
        tab.window(1280)
        clock, errors = tab.page.context.new_cdp_session(tab.page), []
        clock.on("Emulation.virtualTimeBudgetExpired", lambda event: errors.append(event))
        tab.open(path.as_uri())
        clock.send("Emulation.setVirtualTimePolicy", TIME)
        while not errors:
            tab.page.wait_for_timeout(10)
        report = tab.run('document.getElementById("report").textContent')
    assert report, f"the page reported nothing: {tab.problems}"
    result = json.loads(report)
    assert result["problems"] == []
    return result["reports"]


if __name__ == "__main__":
    from mmrl.course import widgets

    name, *theme = sys.argv[1:]
    print(page([getattr(widgets, name)()], *theme))
