"""`mmrl explore`: the training explorer and the widgets as a page of their own."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import tyro

HOME = pathlib.Path(__file__).parents[1] / "course" / "app"


@dataclasses.dataclass(frozen=True)
class Options:
    """Open the course's app in a browser: train an agent, watch it play, compare, share a link.

    It runs on this machine until Ctrl-C, loads nothing from elsewhere, and saves where it was
    called. A link of the app has its settings in it, and opens wherever this command runs.
    """

    port: int = 8866
    """Where the page is, http://localhost:PORT/; if that is taken, the next that is free."""
    browser: bool = True
    """Open it in a browser at once."""


def main(arguments: Sequence[str]) -> int:
    """Serve the app until Ctrl-C. Raises `ValueError` where Voilà is not installed."""
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
            "The app needs Voilà: pip install -c requirements.lock -e '.[app]' in a clone, "
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
        "JUPYTER_PREFER_ENV_PATH": "1",  # this Python's kernel, whatever others there are
        "MMRL_EXPLORE_FOLDER": os.getcwd(),
    }


def words() -> list[str]:
    """Return the notebook and Voilà's options.

    A page that was closed takes its kernel, and what trains there, with it after two minutes:
    Voilà's own way is refused by its server (voila-dashboards/voila#1458).
    """
    kept = {"cull_idle_timeout": 120, "cull_interval": 20}  # seconds, of pages that are closed
    culling = [f"--MappingKernelManager.{name}={value}" for name, value in kept.items()]
    return [str(HOME / "explore.ipynb"), "--template=mmrl", "--theme=light", *culling]
