"""Build the site: fetch what pages load, run the notebooks that need it, then Sphinx.

`make book` runs this, and the tests of the site call `build`. Whatever did not change is kept: a
second call takes no time, and a change of text some seconds.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import api
import execute
import vendor
from locks import lock

BOOK = Path(__file__).parent.parent
SITE = BOOK / "_build" / "html"
STAMP = BOOK / "_build" / "stamp"
# Settings that make runs shorter, and their numbers meaningless.
FAST = ("MMRL_FAST",)


class NotBuilt(Exception):
    """The site was not built; the message says why."""


def build() -> Path:
    """The folder of the finished site. Raises `NotBuilt` if there is none."""
    if found := [name for name in FAST if os.environ.get(name)]:
        raise NotBuilt(f"The site shows full runs only: unset {', '.join(found)}.")
    try:
        vendor.vendor()
        print("Running the notebooks", flush=True)
        execute.execute_all()
    except (vendor.Unreachable, execute.Failed) as error:
        raise NotBuilt(str(error)) from None
    with lock(BOOK / "_build" / "lock"):
        key = _key()
        if not (STAMP.exists() and STAMP.read_text() == key):
            STAMP.unlink(missing_ok=True)
            shutil.rmtree(SITE, ignore_errors=True)  # with pages that are gone from the sources
            api.write()
            _sphinx()
            STAMP.write_text(key)
    return SITE


def _key() -> str:
    """What the pages depend on, beside the library."""
    parts = (execute.library_key(), execute.hurry(), vendor.stamp())
    digest = hashlib.sha256("\0".join(parts).encode())
    made = ("_build", "vendor", "api", "__pycache__")
    paths = [*BOOK.rglob("*"), *execute.NOTEBOOKS.rglob("*")]
    paths += [api.ROOT / "README.md", api.ROOT / "pyproject.toml"]
    for path in sorted(paths):
        if path.is_file() and not set(made) & set(path.parts):
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _sphinx() -> None:
    program = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command = [*program, "build", str(BOOK), "--all", "-q", "-W", "--keep-going"]
    done = subprocess.run(
        command, env=execute.environment(computing=False), capture_output=True, text=True
    )
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line or "ERROR" in line]
    if done.returncode:
        raise NotBuilt("\n".join(warnings) or done.stdout[-4000:] + done.stderr[-4000:])


if __name__ == "__main__":
    try:
        print(f"The site is finished. Open {build() / 'index.html'} in a browser.")
    except NotBuilt as error:
        sys.exit(f"The site could not be built.\n{error}")
