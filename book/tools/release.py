"""Build a release and test it in fresh environments; `make release` runs this script.

The script builds an sdist, and a wheel from the sdist. It installs each of them in a fresh
environment with the versions in requirements.lock and without access to this checkout. There it
imports every public name, reads the published rows and the zoo, and runs `mmrl doctor`. If all
checks pass, the files are copied to dist/. The script does not tag or upload a release, but prints
the remaining steps.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
LIMIT = 600  # time limit of a command in seconds, sufficient even if the cache of uv is empty
UV = (sys.executable, "-m", "uv", "--no-config")
CHECKS = """
import pydoc, sys
from mmrl.course.results import RESULTS
from mmrl.runs import zoo

for name in sys.stdin.read().split():
    assert pydoc.locate(name) is not None, name
print(len(zoo.names()), *sorted(path.name for path in RESULTS.glob("*.jsonl")))
"""


def versions(root: Path = ROOT) -> dict[str, str]:
    """Return the version in each file. In the changelog, it is the newest version."""
    texts = {
        "mmrl/__init__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## \[(\d[^\]]*)\]",
    }
    numbers = {}
    for name, pattern in texts.items():
        match = re.search(pattern, (root / name).read_text("utf-8"), re.MULTILINE)
        numbers[name] = match[1] if match else "none"
    return numbers


def lacking(root: Path = ROOT) -> list[str]:
    """Return the steps that the maintainer must take before the version can be tagged."""
    version, text = versions(root)["mmrl/__init__.py"], (root / "CHANGELOG.md").read_text("utf-8")
    new = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    steps = []
    if new and re.search(r"^- ", new[1], re.MULTILINE):
        steps.append(f"CHANGELOG.md: move the entries of [Unreleased] to [{version}].")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        steps.append(f"CHANGELOG.md: date it, as in `## [{version}] - 2026-01-31`.")
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=root, text=True):
        steps.append("git: commit all changes.")
    if subprocess.check_output(["git", "tag", "--list", f"v{version}"], cwd=root, text=True):
        steps.append(f"git: v{version} is tagged already; bump the version in all three files.")
    return steps


def call(*command: str | Path, folder: Path, text: str = "", **variables: str) -> str:
    """Run a command without access to this checkout, and return its standard output."""
    names = ("PYTHONPATH", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST")
    env = {k: v for k, v in os.environ.items() if k not in names} | variables
    streams = {"input": text, "capture_output": True, "text": True}
    process = subprocess.run([*map(str, command)], cwd=folder, env=env, timeout=LIMIT, **streams)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.strip()


def build(root: Path, folder: Path) -> tuple[Path, Path]:
    """Build the sdist of a checkout, and the wheel from the sdist."""
    call(*UV, "build", "--out-dir", folder, root, folder=folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def fresh(python: str | Path, folder: Path) -> Path:
    """Create an environment in `folder`, and return its Python."""
    call(*UV, "venv", "--no-project", "--python", python, "fresh", folder=folder)
    return folder / "fresh" / "bin" / "python"


def install(
    python: Path, arguments: list[str], folder: Path, limits: Path = ROOT / "requirements.lock"
) -> None:
    """Install packages with the constraints in `limits`, with uv or, if uv fails, with pip."""
    constraint = ("--constraint", limits)
    try:
        call(*UV, "pip", *arguments, "--python", python, *constraint, folder=folder)
    except AssertionError:
        call(
            sys.executable, "-m", "pip", "--python", python, *arguments, *constraint, folder=folder
        )


def missing(wheel: Path) -> set[str]:
    """Return the files of mmrl that are missing in the wheel."""
    paths = {path for path in (ROOT / "mmrl").rglob("*") if path.is_file()}
    files = {p.relative_to(ROOT).as_posix() for p in paths if p.parent.name != "__pycache__"}
    return files - set(zipfile.ZipFile(wheel).namelist())


def check(package: Path, folder: Path) -> None:
    """Install an sdist or a wheel in a fresh environment, and test the library there."""
    folder.mkdir()
    python = fresh(sys.executable, folder)
    install(python, ["install", "-q", str(package)], folder)
    program = python.parent / "mmrl"
    expected = f"mmrl {versions()['mmrl/__init__.py']}"
    assert call(program, "--version", folder=folder) == expected, (
        f"{package.name} is not {expected}"
    )
    entries = re.findall(r"^mmrl[\w.]+", (ROOT / "tests" / "public.txt").read_text("utf-8"), re.M)
    # Members of classes are not tested separately.
    names = [name for name in entries if name.rpartition(".")[0] not in entries]
    command = (python, "-W", "error::RuntimeWarning", "-c", CHECKS)
    output = call(*command, folder=folder, text=" ".join(names))
    rows = sorted(path.name for path in (ROOT / "book" / "results").glob("*.jsonl"))
    agents = len([*(ROOT / "mmrl" / "zoo").glob("*.npz")])
    assert output.split() == [str(agents), *rows], (
        f"{package.name} does not contain the same rows and agents as the checkout: {output}"
    )
    print(call(program, "doctor", folder=folder), flush=True)


def main() -> int:
    """Build and check a release, and print the remaining steps."""
    numbers = versions()
    if len(set(numbers.values())) > 1:
        listing = ", ".join(f"{v} in {name}" for name, v in numbers.items())
        sys.exit(f"All files must state the same version; got {listing}.")
    version = numbers["mmrl/__init__.py"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = build(ROOT, folder)
        if absent := missing(packages[1]):
            sys.exit(f"{packages[1].name} lacks {', '.join(sorted(absent))}.")
        for number, one in enumerate(packages):
            print(f"== {one.name}, {one.stat().st_size / 1e6:.1f} MB, in a fresh environment")
            check(one, folder / str(number))
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for one in packages:
            shutil.copy(one, DIST)
    steps = lacking()
    print(f"Both packages work; they are in {DIST.name}/. Nothing has been tagged or uploaded.")
    print("Before you tag the release:" if steps else "Next steps:", *steps, sep="\n- ")
    if not steps:
        print(f"- git tag v{version}, and push the tag\n- .venv/bin/uv publish dist/*")
    return 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]
    sys.exit(main())
