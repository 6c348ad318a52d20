"""A page that mounts widgets as a notebook would, but without a kernel: a stub holds the traits.

`python tests/browser/page.py ScanPlayer dark > page.html` writes one to look at.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
# Seconds after which a browser is taken to hang. No working one comes near, on any machine.
HUNG = 600
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# The last three keep Chromium itself from looking up addresses when it starts.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


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


def visit(chromium: str, html: str, folder: Path) -> list[dict[str, Any]]:
    """What the script reported of each widget, after the page ran in a headless Chromium.

    Fails on an error in the page, a trait that does not exist, or a request.
    """
    address = folder / "page.html"
    address.write_text(html, "utf-8")
    command = [chromium, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1280,900"]
    command += ["--dump-dom", "--virtual-time-budget=100000", address.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG)
    report = done.stdout.partition('<script type="application/json" id="report">')[2]
    assert report, f"the page reported nothing: {done.stderr[-2000:]}"
    found = json.loads(report.partition("</script>")[0])
    assert found["problems"] == []
    return found["reports"]


if __name__ == "__main__":
    from mmrl.course import widgets

    name, *theme = sys.argv[1:]
    print(page([getattr(widgets, name)()], *theme))
