"""Write the repository's address wherever a file needs it; `make address` runs this.

The source of the address is `Repository` in the `[project.urls]` of pyproject.toml. The site reads
it from there. The cells that install the course on Colab, README.md and CITATION.cff hold copies,
which this script writes. While there is no address, no page links to one, and the cells install a
wheel that the reader has uploaded.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from reading import load

ROOT = Path(__file__).parent.parent.parent
PUBLISHED = """\
import sys

if "google.colab" in sys.modules:
    %pip install -q "{name}[notebooks] @ git+{address}"
"""
UPLOADED = """\
import sys
from glob import glob

if "google.colab" in sys.modules:
    wheels = glob("{file}-*.whl")
    if not wheels:
        sys.exit("Upload the wheel of the course: `pip wheel --no-deps .` in a clone makes it.")
    %pip install -q "./{{wheels[0]}}[notebooks]"
"""
HOSTS = "https://github.com/", "https://gitlab.com/"  # hosts that the theme supports
COLAB = "https://colab.research.google.com"


def address(root: Path = ROOT) -> str:
    """Return the address where the sources are published, or "" if there is none yet."""
    return _project(root).get("urls", {}).get("Repository", "")


def site(root: Path = ROOT) -> str:
    """Return the address where the site is published, or "" if there is none yet."""
    return _project(root).get("urls", {}).get("Documentation", "")


def cell(where: str, root: Path = ROOT) -> str:
    """Return the second cell of every notebook, which installs the course on Colab."""
    name = _project(root)["name"]
    if where:
        return PUBLISHED.format(name=name, address=where).strip()
    return UPLOADED.format(file=name.replace("-", "_")).strip()


def theme_options(where: str) -> dict[str, Any]:
    """Return the options from which the theme builds its repository and launch buttons."""
    if not where.startswith(HOSTS):
        return {}
    options = {"repository_url": where, "repository_branch": "main", "use_repository_button": True}
    if where.startswith(HOSTS[0]):  # Colab opens files from GitHub only
        options["launch_buttons"] = {"colab_url": COLAB}
    return options


def copies(root: Path = ROOT) -> dict[Path, str]:
    """Return the text that each file with a copy of the address should have."""
    where = address(root)
    texts = {path: _notebook(path, cell(where, root)) for path in root.glob("notebooks/*.ipynb")}
    clone = f"git clone {where} mmrl && cd mmrl\n" if where else ""
    code = f'repository-code: "{where}"\n' if where else ""
    readme, citation = root / "README.md", root / "CITATION.cff"
    texts[readme] = _line(readme, "git clone ", clone, before="make demo ")
    texts[citation] = _line(citation, "repository-code: ", code, before="license: ")
    return texts


def write(root: Path = ROOT) -> list[Path]:
    """Update all copies, and return the files that were out of date."""
    renewed = {path: text for path, text in copies(root).items() if path.read_text("utf-8") != text}
    for path, text in renewed.items():
        path.write_text(text, "utf-8")
    return sorted(renewed)


def _project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]


def _notebook(path: Path, source: str) -> str:
    data = load(path)
    (setup,) = (c for c in data["cells"] if "setup" in c["metadata"].get("tags", []))
    setup["source"] = source.splitlines(keepends=True)
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _line(path: Path, beginning: str, line: str, *, before: str) -> str:
    """Return the text of a file with `line` above the line that begins with `before`."""
    place = rf"^({re.escape(beginning)}.*\n)?(?={re.escape(before)})"
    return re.sub(place, lambda _: line, path.read_text("utf-8"), count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    for path in write():
        print(f"Renewed {path.relative_to(ROOT)}")
