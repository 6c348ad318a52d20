"""JupyterLab on a folder, with nothing of the user's own settings, until the block ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chrome import HUNG, Tab

SETTINGS = {
    # Cells that are out of sight stay on the page.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@contextmanager
def jupyter_lab(folder: Path) -> Iterator[str]:
    """The address of a server on `folder`, with its token."""
    own = folder / ".jupyter"
    for name, values in SETTINGS.items():
        path = own / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    places = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    environment = {**os.environ, **{f"JUPYTER_{place}": str(own / place) for place in places}}
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(own / "settings")
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(own / "workspaces")
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--port=0", "--allow-root"]
    command += ["--LabApp.expose_app_in_browser=True", f"--ServerApp.root_dir={folder}"]
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield _address(own / "RUNTIME_DIR", server, folder / "lab.log")
    finally:
        server.send_signal(signal.SIGTERM)  # it ends its kernels
        server.wait(timeout=HUNG / 1000)


def _address(runtime: Path, server: subprocess.Popen, log: Path) -> str:
    for _ in range(HUNG // 100):
        for path in runtime.glob("jpserver-*.json"):
            about = json.loads(path.read_text() or "{}")
            if about.get("url"):
                return f"{about['url']}lab?token={about['token']}"
        assert server.poll() is None, log.read_text()[-2000:]
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-2000:]}")


def run_all(tab: Tab, address: str, notebook: str) -> None:
    """Open a notebook and run all its cells, as *Run all cells* does."""
    tree = f"/lab/workspaces/test/tree/{notebook}?reset&"
    tab.open(address.replace("/lab?", tree), "globalThis.jupyterapp")
    tab.run("jupyterapp.restored.then(() => null)")
    tab.wait('document.querySelector(".jp-Notebook .jp-CodeCell")')
    # Before its kernel is there, JupyterLab would ask for one.
    kernel = "shown.find((w) => w.sessionContext)?.sessionContext.session?.kernel?.status"
    tab.wait(f"((shown) => {kernel} === 'idle')([...jupyterapp.shell.widgets('main')])")
    first = "[...jupyterapp.shell.widgets('main')].find((w) => w.sessionContext).id"
    tab.run(f"void jupyterapp.shell.activateById({first})")
    tab.run('void jupyterapp.commands.execute("notebook:run-all-cells")')
