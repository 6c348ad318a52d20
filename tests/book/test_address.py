"""Where the course is installed from: one address, and never a stranger's package.

On the package index the name `mmrl` belongs to another project.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

import mmrl
from mmrl.runs import zoo

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools")]
import address  # noqa: E402
from release import build, call, fresh, install  # noqa: E402

GITHUB = "https://github.com/somebody/course"
ELSEWHERE = "https://codeberg.org/somebody/course"
NAME = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"]
# What the cell prints without a wheel, as the first page shows it.
SCREEN = re.findall(
    r"^```text\n(An exception.*?)\n```$",
    (ROOT / "book" / "intro.md").read_text("utf-8"),
    re.S | re.M,
)[0]
# Everything of which a student or a developer reads the text.
SOURCES = ("*.md", "*.toml", "*.cff", "Makefile", "book/*.*", "book/tools/*")
SOURCES += ("notebooks/*.ipynb", "mmrl/**/*.py", "mmrl/**/*.mjs")
INSTALL_FILES = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE", "CITATION.cff")
INSTALL_FILES += ("CHANGELOG.md", "mmrl", "notebooks", "book")


def texts() -> dict[Path, str]:
    paths = {path for pattern in SOURCES for path in ROOT.glob(pattern) if path.is_file()}
    return {path.relative_to(ROOT): path.read_text("utf-8") for path in sorted(paths)}


def copy(folder: Path) -> Path:
    """What can be installed, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    ignore = shutil.ignore_patterns("_build", "api", "vendor", "__pycache__", ".ipynb_checkpoints")
    for name in INSTALL_FILES:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=ignore)
        else:
            shutil.copy(source, target)
    return folder


def publish(root: Path, where: str) -> None:
    """Write the address into its one place."""
    path = root / "pyproject.toml"
    section = f'[project.urls]\nRepository = "{where}"\n\n[project.scripts]'
    text = re.sub(r"^\[project\.urls\]\n(.+\n)+\n?", "", path.read_text("utf-8"), flags=re.M)
    path.write_text(text.replace("[project.scripts]", section if where else "[project.scripts]"))


# What is written


def test_every_copy_of_the_address_is_up_to_date():
    assert not [
        str(path.relative_to(ROOT))
        for path, text in address.copies().items()
        if path.read_text("utf-8") != text
    ], "run `make address`"


def test_no_other_address_of_the_repository_stands_anywhere():
    ours = {address.address()} - {""}
    pattern = re.compile(r"https?://[\w.-]+/[\w.-]+/mmrl(?:-jax)?\b(?:\.git)?|\bgit\+\w+:[^\s\"{]+")
    results = {
        (str(path), match) for path, text in texts().items() for match in pattern.findall(text)
    }
    assert not {(path, match) for path, match in results if match.removeprefix("git+") not in ours}


def test_nothing_is_installed_by_name_from_the_package_index():
    pattern = re.compile(
        rf"pip3? install\b[^\n`]*?[\s\"'\\](?:mmrl|{NAME})\b(?![^\n]*@ git\+)[^\n]*"
    )
    matches = {str(path): pattern.findall(text) for path, text in texts().items()}
    assert not {path: lines for path, lines in matches.items() if lines}


@pytest.mark.parametrize("where", [GITHUB, ELSEWHERE])
def test_an_address_that_is_set_reaches_every_copy_and_leaves_it_again(where: str, tmp_path: Path):
    root = copy(tmp_path)
    publish(root, "")
    address.write(root)
    before = {path: path.read_text("utf-8") for path in address.copies(root)}
    assert not [path for path, text in before.items() if where in text]
    publish(root, where)
    assert address.write(root) == sorted(before)
    assert address.write(root) == []
    assert all(path.read_text("utf-8").count(where) == 1 for path in before)
    publish(root, "")
    address.write(root)
    assert before == {path: path.read_text("utf-8") for path in before}


def test_buttons_need_an_address():
    assert address.theme_options("") == {}
    assert address.theme_options(GITHUB)["launch_buttons"] == {"colab_url": address.COLAB}
    assert address.theme_options(GITHUB)["repository_url"] == GITHUB
    # Colab cannot open it, and the theme would warn.
    gitlab = "https://gitlab.com/somebody/course"
    assert "launch_buttons" not in address.theme_options(gitlab)
    assert address.theme_options(gitlab)["repository_url"] == gitlab
    assert address.theme_options(ELSEWHERE) == {}  # the theme would stop the build


# What the cell does


def on_colab(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments that the cell gives to pip, in a folder of Colab."""
    commands: list[str] = []
    code = re.sub(r"%pip (.*)", r"pip(f'\1')", source)
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.chdir(folder)
    exec(code, {"pip": lambda line: commands.extend(shlex.split(line))})
    return commands


def test_without_an_address_the_cell_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Colab and browsers rename a file that is there already, and pip cannot read the new name.
    (tmp_path / "mmrl_jax-0.2.0-py3-none-any (1).whl").touch()
    with pytest.raises(SystemExit, match=r"`mmrl_jax-\*-any\.whl`") as error:
        on_colab(address.cell(""), tmp_path, monkeypatch)
    assert SCREEN.endswith(f"SystemExit: {error.value.code}")
    for version in ("0.1.0", "0.2.0"):
        (tmp_path / f"mmrl_jax-{version}-py3-none-any.whl").touch()
    commands = on_colab(address.cell(""), tmp_path, monkeypatch)
    assert commands == ["install", "-q", "./mmrl_jax-0.2.0-py3-none-any.whl[colab]"]


@pytest.mark.parametrize("where", ["", GITHUB])
def test_outside_of_colab_the_cell_does_nothing(where: str):
    exec(re.sub(r"%pip (.*)", r"pip(f'\1')", address.cell(where)), {})


# In a fresh environment


def interpreter(version: str) -> str | None:
    """That of this version, on the path or of pyenv, whose commands run one version only."""
    folders = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(
        f"versions/{version}.*/bin"
    )
    for path in (shutil.which(f"python{version}", path=p) for p in (*map(str, folders), None)):
        if path and not subprocess.run([path, "--version"], capture_output=True).returncode:
            return path
    return None


def imports() -> str:
    """Every import of every chapter."""
    lines = set()
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "code" and "setup" not in cell["metadata"].get("tags", []):
                nodes = ast.walk(ast.parse("".join(cell["source"])))
                lines |= {
                    ast.unparse(n) for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)
                }
    return "\n".join(["import mmrl", *sorted(lines)])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the sdist, as `make release` builds it, and by pip alone where uv cannot see the index."""
    root, folder = copy(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("built")
    try:
        return build(root, folder)[1]
    except AssertionError:
        command = ("-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", folder, ".")
        call(sys.executable, *command, folder=root)
        return next(folder.glob("*.whl"))


@pytest.mark.full
@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_the_cell_installs_the_course_in_a_fresh_environment(
    version: str, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if not (path := interpreter(version)):
        pytest.skip(f"no Python {version}")
    python = fresh(path, tmp_path)
    shutil.copy(wheel, tmp_path)
    install(python, on_colab(address.cell(""), tmp_path, monkeypatch), tmp_path)
    # Rows carry versions, and the book's rows and the zoo came along.
    message = f"print(mmrl.__file__, mmrl.__version__, importlib.metadata.version({NAME!r}), "
    message += "provenance()['versions']['mmrl'], len(zoo.names()), RESULTS)"
    code = f"import importlib.metadata\n{imports()}\nfrom mmrl.runs import provenance, zoo\n"
    code += f"from mmrl.course.results import RESULTS\n{message}"
    file, *versions, agents, results = call(
        python, "-W", "error::RuntimeWarning", "-c", code, folder=tmp_path
    ).split()
    assert Path(file).is_relative_to(tmp_path / "fresh")
    assert versions == [mmrl.__version__] * 3 and int(agents) == len(zoo.names())
    ours = {path.name for path in (ROOT / "book" / "results").glob("*.jsonl")}
    assert {path.name for path in Path(results).glob("*.jsonl")} == ours
    assert call(python.parent / "mmrl", "--version", folder=tmp_path) == f"mmrl {mmrl.__version__}"


@pytest.mark.full
def test_the_cell_installs_the_course_from_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = copy(tmp_path / "course")
    publish(root, GITHUB)
    address.write(root)
    git = (
        "git",
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@localhost",
        "-c",
        "init.defaultBranch=main",
    )
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "All")):
        call(*git, *command, folder=root)
    notebook = json.loads((root / "notebooks" / "00_start_here.ipynb").read_text("utf-8"))
    setup = "".join(notebook["cells"][1]["source"])
    arguments = on_colab(setup, tmp_path, monkeypatch)
    target = ("--no-deps", "--target", str(tmp_path / "there"))
    # git finds the address in the folder.
    here = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": GITHUB}
    here |= {"GIT_CONFIG_KEY_0": f"url.{root.as_uri()}.insteadOf"}
    call(sys.executable, "-m", "pip", *arguments, *target, folder=tmp_path, **here)
    assert (tmp_path / "there" / "mmrl" / "course" / "published" / "ppo.jsonl").exists()
    assert (tmp_path / "there" / f"mmrl_jax-{mmrl.__version__}.dist-info").exists()
