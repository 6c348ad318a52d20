"""Copy the repository's address from pyproject.toml to the files that contain it.

`make address` runs this script. The address is the entry `Repository` of `[project.urls]` in
pyproject.toml, which the site also reads. The script updates the cells that install the course on
Colab, README.md and CITATION.cff. If the address is missing, the pages do not link to a repository,
and the cells install a wheel, which the reader must upload to Colab first.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from reading import load

ROOT = Path(__file__).parent.parent.parent
FROM_REPOSITORY = """\
import sys

if "google.colab" in sys.modules:
    %pip install -q "{name}[colab] @ git+{address}"
"""
FROM_UPLOAD = """\
import sys
from glob import glob

if "google.colab" in sys.modules:
    wheels = sorted(glob("{file}-*-any.whl"))
    if not wheels:
        sys.exit(
            "This session must contain a file `{file}-*-any.whl`, got none.\\n"
            "1. Take this file from your teacher, or run `pip wheel --no-deps .` in a clone.\\n"
            "2. Click the folder at the left edge of this page, and upload the file.\\n"
            "3. Run this cell again."
        )
    %pip install -q "./{{wheels[-1]}}[colab]"
"""
HOSTS = "https://github.com/", "https://gitlab.com/"  # hosts that the theme supports
COLAB = "https://colab.research.google.com"


def address(root: Path = ROOT) -> str:
    """Return the address of the repository, or "" if it is not published yet."""
    return _project(root).get("urls", {}).get("Repository", "")


def site(root: Path = ROOT) -> str:
    """Return the address of the site, or "" if it is not published yet."""
    return _project(root).get("urls", {}).get("Documentation", "")


def cell(where: str, root: Path = ROOT) -> str:
    """Return the second cell of every notebook, which installs the course on Colab."""
    name = _project(root)["name"]
    if where:
        return FROM_REPOSITORY.format(name=name, address=where).strip()
    return FROM_UPLOAD.format(file=name.replace("-", "_")).strip()


def theme_options(where: str) -> dict[str, Any]:
    """Return the theme options that enable the repository and launch buttons."""
    if not where.startswith(HOSTS):
        return {}
    options = {"repository_url": where, "repository_branch": "main", "use_repository_button": True}
    if where.startswith(HOSTS[0]):  # Colab opens files from GitHub only
        options["launch_buttons"] = {"colab_url": COLAB}
    return options


def copies(root: Path = ROOT) -> dict[Path, str]:
    """Return the up-to-date contents of each file that contains the address."""
    where = address(root)
    texts = {path: _notebook(path, cell(where, root)) for path in root.glob("notebooks/*.ipynb")}
    clone = f"git clone {where} mmrl && cd mmrl\n" if where else ""
    code = f'repository-code: "{where}"\n' if where else ""
    readme, citation = root / "README.md", root / "CITATION.cff"
    texts[readme] = _line(readme, "git clone ", clone, before="make demo ")
    texts[citation] = _line(citation, "repository-code: ", code, before="license: ")
    return texts


def write(root: Path = ROOT) -> list[Path]:
    """Update all files that contain the address, and return those that were out of date."""
    outdated_copies = {
        path: text for path, text in copies(root).items() if path.read_text("utf-8") != text
    }
    for path, text in outdated_copies.items():
        path.write_text(text, "utf-8")
    return sorted(outdated_copies)


def _project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]


def _notebook(path: Path, source: str) -> str:
    data = load(path)
    (setup,) = (c for c in data["cells"] if "setup" in c["metadata"].get("tags", []))
    setup["source"] = source.splitlines(keepends=True)
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _line(path: Path, beginning: str, line: str, *, before: str) -> str:
    """Return the contents of a file, with `line` inserted above the line that begins with `before`.

    If that place already has a line that begins with `beginning`, `line` replaces it.
    """
    place = rf"^({re.escape(beginning)}.*\n)?(?={re.escape(before)})"
    return re.sub(place, lambda _: line, path.read_text("utf-8"), count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    for path in write():
        print(f"Renewed {path.relative_to(ROOT)}")
