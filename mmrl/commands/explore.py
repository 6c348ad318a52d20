"""`mmrl explore`: the training explorer and the widgets as a separate page."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import tyro

HOME = pathlib.Path(__file__).parents[1] / "course" / "app"


@dataclasses.dataclass(frozen=True)
class Options:
    """Open the course's app in a browser: train an agent, watch it play, compare, share a link.

    The app runs on this machine until Ctrl-C, loads only local files, and saves in the current
    folder. A link of the app contains its settings, and opens on any machine that runs this
    command.
    """

    port: int = 8866
    """Port of the page, http://localhost:PORT/; if it is taken, the next free one."""
    browser: bool = True
    """Open the page in a browser at once."""


def main(arguments: Sequence[str]) -> int:
    """Serve the app until Ctrl-C. Raise `ValueError` if Voilà is not installed."""
    options = tyro.cli(Options, args=arguments, prog="mmrl explore")
    if not 1 <= options.port < 2**16:
        raise ValueError(f"`port` must be from 1 to 65535; got {options.port}.")
    os.environ |= surroundings()
    try:
        from voila.app import Voila
    except ModuleNotFoundError as error:
        if error.name != "voila":
            raise
        raise ValueError(
            "The app needs Voilà. Run `pip install -c requirements.lock -e '.[app]'` in a clone, "
            "or `make explore` there."
        ) from None
    browser = [] if options.browser else ["--no-browser"]
    Voila.launch_instance(argv=[*words(), f"--port={options.port}", *browser])
    return 0


def surroundings() -> dict[str, str]:
    """Return the environment of the server and of its kernels."""
    paths = [str(HOME / "jupyter"), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    return {
        "JUPYTER_PATH": os.pathsep.join(paths),
        "JUPYTER_PREFER_ENV_PATH": "1",  # this Python's kernel, before all others
        "MMRL_EXPLORE_FOLDER": os.getcwd(),
    }


def words() -> list[str]:
    """Return the notebook and the options for Voilà.

    Two minutes after a page is closed, its kernel ends, with any training in it. Voilà's own option
    for this does not work with its server (voila-dashboards/voila#1458).
    """
    kept = {"cull_idle_timeout": 120, "cull_interval": 20}  # in seconds, for closed pages
    culling = [f"--MappingKernelManager.{name}={value}" for name, value in kept.items()]
    return [str(HOME / "explore.ipynb"), "--template=mmrl", "--theme=light", *culling]
