"""Build the site by fetching browser files, running notebooks and running Sphinx.

    python book/tools/build.py                         the complete site (`make book`)
    python book/tools/build.py 02_monoids_and_scans    a preview of one chapter

Only notebooks that have changed are run. If nothing has changed, a build returns immediately, and
after a change to the text it takes a few seconds.
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
# Environment variables that shorten the runs of notebooks and make their results meaningless.
FAST = ("MMRL_FAST",)


class NotBuilt(Exception):
    """Exception for a failed build, with the reason as its message."""


def build() -> Path:
    """Build the complete site and return its folder. Raises `NotBuilt` if the build fails."""
    _prepare(execute.notebooks())
    with lock(BOOK / "_build" / "lock"):
        key = _key()
        if not (STAMP.exists() and STAMP.read_text() == key):
            STAMP.unlink(missing_ok=True)
            shutil.rmtree(SITE, ignore_errors=True)  # removes pages whose sources were deleted
            api.write()
            _sphinx("-W", "--keep-going")
            STAMP.write_text(key)
    return SITE


def page(chapter: str) -> Path:
    """Build a site that contains only one chapter, and return its folder.

    Links to other pages do not work, so Sphinx's warnings are not treated as errors. Raises
    `NotBuilt` for an unknown chapter, or if the build fails.
    """
    notebook = execute.NOTEBOOKS / f"{chapter}.ipynb"
    if not notebook.exists():
        names = ", ".join(path.stem for path in execute.notebooks())
        raise NotBuilt(f"`chapter` must be one of {names}; got {chapter!r}.")
    _prepare([notebook])
    folder = BOOK / "_build" / "page" / chapter
    with lock(folder.parent / "lock"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        contents = folder / "_toc.yml"
        contents.write_text(f"format: jb-book\nroot: notebooks/{chapter}\n", "utf-8")
        _sphinx("--toc", str(contents), "--path-output", str(folder))
    return folder / "_build" / "html"


def _prepare(notebooks: list[Path]) -> None:
    """Fetch the files that the pages load, and run the notebooks that have changed."""
    if flags := [name for name in FAST if os.environ.get(name)]:
        raise NotBuilt(f"The site shows full runs only: unset {', '.join(flags)}.")
    try:
        vendor.vendor()
        print("Running the notebooks", flush=True)
        execute.execute_all(notebooks)
    except (vendor.Unreachable, execute.ExecutionError) as error:
        raise NotBuilt(str(error)) from None


def _key() -> str:
    """Return a digest of all files that the pages depend on."""
    parts = (execute.library_key(), execute.hurry(), vendor.stamp())
    digest = hashlib.sha256("\0".join(parts).encode())
    outputs = ("_build", "vendor", "api", "__pycache__")
    paths = [*BOOK.rglob("*"), *execute.NOTEBOOKS.rglob("*")]
    paths += [api.ROOT / "README.md", api.ROOT / "pyproject.toml"]
    for path in sorted(paths):
        if path.is_file() and not set(outputs) & set(path.parts):
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _sphinx(*options: str) -> None:
    program = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command = [*program, "build", str(BOOK), "--all", "-q", *options]
    process = subprocess.run(
        command, env=execute.environment(computing=False), capture_output=True, text=True
    )
    warnings = [
        line for line in process.stderr.splitlines() if "WARNING" in line or "ERROR" in line
    ]
    if process.returncode:
        raise NotBuilt("\n".join(warnings) or process.stdout[-4000:] + process.stderr[-4000:])


if __name__ == "__main__":
    try:
        site = page(sys.argv[1]) if sys.argv[1:] else build()
        print(f"The site is finished. Open {site / 'index.html'} in a browser.")
    except NotBuilt as error:
        sys.exit(f"The site could not be built.\n{error}")
