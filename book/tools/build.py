"""Build the site: fetch what pages load, run the notebooks that need it, then Sphinx.

`make book` runs this, and the tests of the site call `build`. Whatever did not change is kept: a
second call takes no time, and a change of text some seconds.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import api
import execute
import vendor
import yaml

BOOK = Path(__file__).parent.parent
SITE = BOOK / "_build" / "html"
STAMP = BOOK / "_build" / "stamp"
TOC = BOOK / "_build" / "toc.yml"
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
    with execute.lock(BOOK / "_build" / "lock"):
        key = _key()
        if not (STAMP.exists() and STAMP.read_text() == key):
            STAMP.unlink(missing_ok=True)
            api.write()
            _sphinx(_toc())
            STAMP.write_text(key)
    return SITE


def _key() -> str:
    """What the pages depend on, beside the library."""
    digest = hashlib.sha256(execute.library_key().encode() + vendor.stamp().encode())
    made = ("_build", "vendor", "api", "__pycache__")
    paths = [*BOOK.rglob("*"), *execute.NOTEBOOKS.rglob("*"), api.ROOT / "README.md"]
    for path in sorted(paths):
        if path.is_file() and not set(made) & set(path.parts):
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _toc() -> bool:
    """Write the table of contents, without chapters that are not there. Whether it is complete."""
    toc = yaml.safe_load((BOOK / "_toc.yml").read_text("utf-8"))
    gone = [c["file"] for part in toc["parts"] for c in part["chapters"] if not _source(c)]
    for part in toc["parts"]:
        part["chapters"] = [chapter for chapter in part["chapters"] if _source(chapter)]
        for chapter in part["chapters"]:
            if chapter["file"] == "api/index":
                chapter["sections"] = [{"file": f"api/{rung}"} for rung in api.rungs()]
    toc["parts"] = [part for part in toc["parts"] if part["chapters"]]
    TOC.write_text(yaml.safe_dump(toc, allow_unicode=True, sort_keys=False), "utf-8")
    for name in gone:
        print(f"Not in the site, because there is no such file: {name}", flush=True)
    return not gone


def _source(chapter: dict[str, Any]) -> bool:
    return any((BOOK / f"{chapter['file']}{suffix}").exists() for suffix in (".md", ".ipynb"))


def _sphinx(complete: bool) -> None:
    program = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command = [*program, "build", str(BOOK), "--all", "--toc", str(TOC)]
    command += ["-q", "-W", "--keep-going"] if complete else ["-q"]
    done = subprocess.run(command, env=execute.environment(), capture_output=True, text=True)
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line or "ERROR" in line]
    if done.returncode:
        raise NotBuilt("\n".join(warnings) or done.stdout[-4000:] + done.stderr[-4000:])
    for line in warnings:
        print(line, flush=True)


if __name__ == "__main__":
    try:
        print(f"The site is finished. Open {build() / 'index.html'} in a browser.")
    except NotBuilt as error:
        sys.exit(f"The site could not be built.\n{error}")
