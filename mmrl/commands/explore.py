"""`mmrl explore`: open the training explorer and the widgets in a browser."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import tyro

HOME = pathlib.Path(__file__).parents[1] / "course" / "app"


@dataclasses.dataclass(frozen=True)
class Options:
    """Open the course's app in a browser, to train agents, watch them play, and compare runs.

    The app runs locally until you press Ctrl-C, and saves its files in the current folder. A link
    from the app contains all settings, and works on any machine where this command is running.
    """

    port: int = 8866
    """Port of the page, http://localhost:PORT/. If it is in use, the next free one is chosen."""
    browser: bool = True
    """Open the page in a browser."""


def main(arguments: Sequence[str]) -> int:
    """Serve the app until Ctrl-C. Raises `ValueError` if Voilà is not installed."""
    options = tyro.cli(Options, args=arguments, prog="mmrl explore")
    if not 1 <= options.port < 2**16:
        raise ValueError(f"`port` must be between 1 and 65535; got {options.port}.")
    os.environ |= surroundings()
    try:
        from voila.app import Voila
    except ModuleNotFoundError as error:
        if error.name != "voila":
            raise
        raise ValueError(
            "The app requires Voilà. In a clone of the repository, run `pip install -c "
            "requirements.lock -e '.[app]'`, or `make explore`."
        ) from None
    browser = [] if options.browser else ["--no-browser"]
    Voila.launch_instance(argv=[*words(), f"--port={options.port}", *browser])
    return 0


def surroundings() -> dict[str, str]:
    """Return the environment variables of the server and its kernels."""
    paths = [str(HOME / "jupyter"), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    return {
        "JUPYTER_PATH": os.pathsep.join(paths),
        "JUPYTER_PREFER_ENV_PATH": "1",  # prefer the kernel of this Python
        "MMRL_EXPLORE_FOLDER": os.getcwd(),
    }


def words() -> list[str]:
    """Return the command-line arguments of Voilà.

    With these arguments, the server shuts down a kernel two minutes after its page is closed, which
    also stops its training. Voilà's option for this does not work with its server
    (voila-dashboards/voila#1458).
    """
    times = {"cull_idle_timeout": 120, "cull_interval": 20}  # seconds, for closed pages
    culling = [f"--MappingKernelManager.{name}={value}" for name, value in times.items()]
    return [str(HOME / "explore.ipynb"), "--template=mmrl", "--theme=light", *culling]
