"""The notebooks run, and the site that is built of them: in a browser, as a reader would.

The site takes the outputs of the runs that are tested here, and runs nothing a second time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools"), str(ROOT / "tests" / "browser")]
import api  # noqa: E402
import build  # noqa: E402
import execute  # noqa: E402
import hyperparameters  # noqa: E402
import pages  # noqa: E402
import popgym_table  # noqa: E402
import reader  # noqa: E402
import tasks_table  # noqa: E402
import vendor  # noqa: E402
from chrome import Tab  # noqa: E402
from drive import Report, drive  # noqa: E402

from mmrl.agents.presets import PRESETS  # noqa: E402
from mmrl.envs.popgym import LEVELS  # noqa: E402

NOTEBOOKS = [path.stem for path in execute.notebooks()]
CHAPTERS = [f"notebooks/{name}" for name in NOTEBOOKS]
# The widgets of these pages are moved; `test_drive.py` moves every widget by itself.
MOVING = ["intro", *CHAPTERS[3::6]]
OTHERS = [
    "intro",
    "explore",
    "own",
    "ppo_lru",
    "dqn_tape_lru",
    "choosing",
    "models",
    "debugging",
    "inspect",
    "projects",
    "notation",
    "settings",
    "baselines",
    "tasks",
    "popgym",
    "runs",
    "scaling",
    "capstone",
    "leaderboard",
    "results",
    "claims",
    "teach",
    "grading",
]
OTHERS += ["stability", "accessibility", "errata", "reading", "bibliography", "search", "api/index"]
OTHERS += ["status", "_modules/mmrl/monoid/core"]
API = [f"api/{rung}" for rung in api.rungs()]
COUNT = re.compile(r"(\d+) of (\d+)")
PAGES = CHAPTERS + OTHERS + API
MOST_BYTES = 1_000_000  # a tenth when compressed; the longest pages list the API of a package


@pytest.mark.full
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_to_its_end(name: str):
    execute.execute(execute.NOTEBOOKS / f"{name}.ipynb")


@pytest.fixture(scope="session")
def site() -> Path:
    try:
        return build.build()
    except build.NotBuilt as error:
        pytest.fail(str(error), pytrace=False)


def html(site: Path, name: str) -> str:
    return (site / f"{name}.html").read_text("utf-8")


# The files of the site


@pytest.mark.full
def test_every_page_is_there_and_small(site: Path):
    large = {name for name in PAGES if len(html(site, name).encode()) >= MOST_BYTES}
    assert large == set()


@pytest.mark.full
def test_the_first_page_leads_to_the_introduction(site: Path):
    assert 'url=intro.html"' in html(site, "index")


@pytest.mark.full
def test_every_notebook_is_in_the_table_of_contents(site: Path):
    links = set(re.findall(r'href="(notebooks/\w+)\.html"', html(site, "intro")))
    assert links == set(CHAPTERS)


@pytest.mark.full
def test_no_page_loads_anything_from_elsewhere(site: Path):
    loads = re.compile(
        r"<(?:script|img|iframe|source|video|embed)\b[^>]*\bsrc=\"(?:https?:)?//[^\"]*|"
        r"<link\b(?=[^>]*\brel=\"(?:stylesheet|preload|icon|preconnect)[^\"]*\")[^>]*\bhref=\"(?:https?:)?//[^\"]*"
    )
    result = {
        f"{path.relative_to(site)}: {match}"
        for path in site.rglob("*.html")
        for match in loads.findall(path.read_text("utf-8"))
    }
    sheets = [*site.rglob("*.css")]
    result |= {
        str(p) for p in sheets if re.search(r"url\([\"']?(?:https?:)?//", p.read_text("utf-8"))
    }
    assert not result


@pytest.mark.full
def test_a_chapter_can_be_read_before_its_scripts_are_there(site: Path):
    scripts = re.compile(r'<script(?![^>]*\b(?:defer|async)\b)[^>]*\bsrc="([^"?]+)')
    for name in CHAPTERS:
        text = html(site, name)
        assert not [path for path in scripts.findall(text) if "vendor" in path or "mathjax" in path]
        assert "<h1>" in text, name


@pytest.mark.full
def test_every_result_is_shown_with_where_it_comes_from(site: Path):
    text = html(site, "results")
    for path in execute.ROOT.glob("book/results/*.jsonl"):
        assert f"book/results/{path.name}" in text
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            assert pages.html.escape(row["command"]) in text and row["device"] in text


# The pages in a browser


@pytest.fixture(scope="module")
def tab(chromium: Any) -> Iterator[Tab]:
    with closing(Tab(chromium)) as tab:
        yield tab


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return reader.axe(tmp_path_factory.mktemp("axe"))


LOOKS = [(1280, "light"), (320, "dark")]


def look(name: str) -> tuple[int, int, str]:
    """The width in which a page is opened, the other one, and its theme: one of two, by turns."""
    parity = PAGES.index(name) % 2
    (width, theme), (other, _) = LOOKS[parity], LOOKS[1 - parity]
    return width, other, theme


@pytest.fixture(scope="module")
def open_page(request: pytest.FixtureRequest, site: Path, tab: Tab) -> str:
    """The name of a page that is open, once for all tests of it: to open one takes seconds."""
    width, _, theme = look(request.param)
    reader.visit(tab, site / f"{request.param}.html", width, theme)
    return request.param


@pytest.mark.full
@pytest.mark.parametrize("open_page", PAGES, indirect=True, scope="module")
def test_a_page_is_whole(open_page: str, site: Path, tab: Tab, axe: str):
    """In one of two looks. Each widget is seen in both by tests of its own."""
    _, other, theme = look(open_page)
    contrast = open_page not in API[2:]  # of pages made from one template, two are enough
    result = reader.flaws(tab, site / f"{open_page}.html", other, theme, axe, contrast)
    assert {kind: flaw for kind, flaw in result.items() if flaw} == {}


@pytest.mark.full
@pytest.mark.parametrize("open_page", MOVING, indirect=True, scope="module")
def test_every_widget_is_moved_by_keyboard_and_mouse(
    open_page: str, tab: Tab, capsys: pytest.CaptureFixture
):
    tab.window(1280, 900, "light")
    tab.wait('document.querySelectorAll(".mmrl .mmrl-stage").length > 0')
    # Some controls of each: test_browser.py has all by keyboard, test_lab.py all kinds by mouse.
    result = drive(tab, most=2)
    check(result, capsys)
    # One of a chapter's asks before it shows.
    assert open_page == "intro" or any(one.question for one in result)
    assert tab.problems == []


def check(widgets: list[Report], capsys: pytest.CaptureFixture) -> None:
    """Assert that every control of every widget changes what is shown."""
    assert widgets
    with capsys.disabled():
        print("", *widgets, sep="\n  ")
    for widget in widgets:
        assert widget.controls and not widget.problems, widget


# What the pages are made of


DOCSTRING = """Return x_t = *a* • |b|, `x_t` of <name>.  Eq. 1.
    a  | b
    1    2

See `scan`:
- one
  more
- two

| id | Q* |
|---|---|
| `x` | 1 |
"""
EXAMPLE = f'''
import dataclasses
from typing import ClassVar
import jax
from jaxtyping import Array, Float

class Step:
    """A step."""

@dataclasses.dataclass
class Config:
    """Settings."""

    # all of them
    rate: float = 0.5  # per step, α
    dtype: type = Step

    def twice(self) -> float:
        """Return twice the rate."""
        return 2 * self.rate

    __float__: ClassVar = twice

def scan(xs: Float[Array, "time obs"], step: Step | None = None) -> Float[Array, " time"]:
    """{DOCSTRING}"""
'''


@pytest.fixture(scope="module")
def api_page(tmp_path_factory: pytest.TempPathFactory) -> BeautifulSoup:
    """The page of a module. In its own process, because jaxtyping is imported differently."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "example.py").write_text(EXAMPLE)
    (folder / "index.rst").write_text("Example\n=======\n\n.. automodule:: example\n   :members:\n")
    extensions = ["myst_parser", "pages", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
    config = folder / "conf.py"
    config.write_text(
        f"extensions = {extensions}\nautodoc_typehints_format = 'short'\n"
        "python_use_unqualified_type_names = True\nadd_module_names = False\n"
    )
    path = os.pathsep.join((str(folder), str(ROOT / "book" / "tools"), str(ROOT)))
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(folder), str(folder / "html")]
    process = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return BeautifulSoup((folder / "html" / "index.html").read_text("utf-8"), "html.parser")


def documentation(page: BeautifulSoup, name: str) -> Tag:
    heading = page.find("dt", id=f"example.{name}")
    assert isinstance(heading, Tag) and isinstance(heading.parent, Tag)
    return heading.parent


@pytest.mark.slow
def test_a_docstring_reads_as_it_was_written(api_page: BeautifulSoup):
    body = documentation(api_page, "scan").dd
    assert isinstance(body, Tag)
    first, second = (node.get_text() for node in body.find_all("p", recursive=False))
    assert first == "Return xt = a • |b|, x_t of <name>.  Eq. 1." and second == "See scan:"
    assert [node.get_text() for node in body.find_all("sub")] == ["t"]
    assert [node.get_text() for node in body.find_all("em")] == ["a"]
    assert [node.get_text() for node in body.find_all("code")] == ["x_t", "scan", "x"]
    assert body.pre and body.pre.get_text() == "a  | b\n1    2\n"
    assert [node.get_text() for node in body.find_all("li")] == ["one\nmore", "two"]
    rows = [[c.get_text() for c in row.find_all(["th", "td"])] for row in body.find_all("tr")]
    assert rows == [["id", "Q*"], ["x", "1"]]


@pytest.mark.slow
def test_a_signature_has_shapes_types_that_are_links_and_its_source(api_page: BeautifulSoup):
    heading = documentation(api_page, "scan").dt
    assert isinstance(heading, Tag)
    text = heading.get_text().strip()
    assert text.startswith("scan(xs: Float[Array, 'time obs'], step: Step | None = None) → Float[")
    links = {node.get_text(): node["href"] for node in heading.find_all("a")}
    assert links["Step"] == "#example.Step" and "example.html#scan" in links["[source]"]
    assert heading.select(".sig-name") and not heading.select(".pre")  # they make pages large


@pytest.mark.slow
def test_fields_of_a_class_are_shown_with_their_comments(api_page: BeautifulSoup):
    about = documentation(api_page, "Config")
    assert about.dt and about.dt.get_text().strip().startswith("class Config(rate=0.5, dtype=")
    assert about.pre and about.pre.get_text() == (
        "# all of them\nrate: float = 0.5  # per step, α\ndtype: type = Step\n"
    )
    assert not about.find("dt", id="example.Config.rate")


def test_results_of_any_shape_make_a_table():
    rows = [{"a": 1, "b": [0.123456] * 9, "command": "x <y>"}, {"c": None, "d": {"e": 2.0}}]
    text = pages.table("name.jsonl", rows)
    assert "x &lt;y&gt;" in text and "0.1235, 0.1235" in text and "(9)" in text and "e 2" in text
    assert "an unknown command" in text and text.count("<tr>") == 3
    assert pages.table("empty.jsonl", []).count("<tr>") == 1


def test_a_score_is_marked_where_it_is_below_the_best_published_one():
    def row(task: str, memory: str, value: float) -> dict[str, Any]:
        about = {"task": task, "level": "Easy", "memory": memory, "mmer": value}
        about["trials"] = [value - 0.1, value]
        return {"cell": f"{task}Easy, {memory}, 3M", "steps": "3M"} | about

    cases = [("RepeatFirst", "lru", 0.996), ("RepeatFirst", "s5", 0.989)]
    cases += [("Autoencode", "ffm", -0.001), ("CountRecall", "gru", 0.9)]
    cases += [("RepeatFirst", "none", 0.25), ("RepeatFirst", "state", 0.875)]
    rows = {one["cell"]: one for one in (row(*case) for case in cases)}
    lines = popgym_table.table("3M", "Easy", rows).split("<tr>")
    heads = [re.sub("<.*?>", "", line.partition("</th>")[0]) for line in lines]
    ours = [re.findall("<td>(.*?)</td>", line)[2:] for line in lines]
    cells = dict(zip(heads, ours, strict=True))
    first = cells["RepeatFirst"]
    assert first[0] == "<strong>1.00</strong><br><small>0.90 to 1.00</small>"
    assert first[1].startswith("0.99 <span") and first[2:4] == ["", ""]
    assert first[4].startswith("0.25<br>") and first[6] == "0.62" and cells["Autoencode"][6] == ""
    assert cells["Autoencode"][2].startswith("<strong>0.00")
    assert cells["CountRecall *"][3].startswith("0.90<br>")  # nothing to compare
    summary = popgym_table.so_far(rows)
    assert COUNT.findall(summary)[1] == ("2", "3") and "RepeatFirstEasy (S5)" in summary


def test_every_level_of_every_task_has_a_row_and_every_family_a_picture():
    chance = {"RepeatFirstEasy": {"chance": -0.5, "error": 0.01}}
    scores = [{"cell": "RepeatFirstEasy, s5, 3M", "memory": "s5", "mmer": 0.75}]
    scores += [{"cell": "RepeatFirstEasy, state, 3M", "memory": "state", "mmer": 1.0}]
    lines = tasks_table.table(chance, scores).split("<tr>")[2:]
    assert len(lines) == 3 * len(LEVELS)
    cells = {re.sub("<.*?>", "", x.partition("</th>")[0]): x for x in lines}
    first = re.findall("<td>(.*?)</td>", cells["RepeatFirstEasy"])
    assert first[:4] == ["4", "8", "4", "51"] and first[4] == "−0.50 ± 0.01"
    assert first[5:] == ["0.75 (S5)", tasks_table.MISSING, "1.00"]
    assert "1 torque" in cells["PositionOnlyPendulumHard"]
    assert "<svg" in tasks_table.figure("RepeatFirst")


def test_scores_are_counted_that_reach_the_best_published_one():
    rows = pages.read("popgym.jsonl")
    comparable = [row for row in rows if row["task"] in popgym_table.GRU]
    comparable = [row for row in comparable if row["task"] != "CountRecall"]

    def best(row: dict[str, Any]) -> float:
        gru = popgym_table.GRU[row["task"]][("Easy", "Medium", "Hard").index(row["level"])]
        better = popgym_table.BETTER.get((row["task"], row["level"]))
        return max(gru, better.value if better else gru)

    count = sum(round(np.mean(row["trials"]), 2) >= round(best(row), 2) for row in comparable)
    summary = popgym_table.so_far({row["cell"]: row for row in rows})
    assert COUNT.findall(summary)[1] == (str(count), str(len(comparable)))


@pytest.mark.parametrize("agent", PRESETS)
def test_every_setting_stands_in_the_table_of_its_agent(agent: str):
    presets = PRESETS[agent]
    rows = hyperparameters.table(agent, presets).split("<tr>")[2:]
    paper = presets["paper"]
    names = [re.findall("<code>(.*)</code>", row)[0] for row in rows]
    cells = dict(zip(names, (re.findall("<td>(.*?)</td>", row) for row in rows), strict=True))
    assert names == [*vars(paper.config)]
    rates = [pages.show(type(paper.config)().learning_rate)]
    for preset in presets.values():  # some papers draw it at random
        has_rate = "learning_rate" in preset.places
        rates.append(pages.show(preset.config.learning_rate) if has_rate else "")
    assert cells["learning_rate"] == [*rates, paper.places.get("learning_rate", "")]
    silent = [name for name in names if not any(name in x.places for x in presets.values())]
    assert silent and all(not any(cells[name][1:]) for name in silent)


def test_rows_of_one_command_were_measured_from_the_first_date_to_the_last():
    dates = ("2026-03-02T10:00", "2026-01-05T10:00", "2026-02-07T10:00")
    text = pages.origin("x.jsonl", [{"command": "x", "date": date} for date in dates])
    assert "3 rows, 2026-01-05 to 2026-03-02, on" in text
    assert "1 rows, 2026-03-02, on" in pages.origin("x.jsonl", [{"date": dates[0]}])


@pytest.mark.slow
def test_every_module_of_the_ladder_has_a_page():
    for rung in api.rungs():
        assert all(f"automodule:: {name}" in api.page(rung) for name in api.modules(rung))
        assert f"]({rung}.md)" in api.index()
    entries = re.findall(
        r"file: api/(\w+)", (execute.ROOT / "book" / "_toc.yml").read_text("utf-8")
    )
    assert entries == ["index", *api.rungs()]


def test_a_short_run_is_not_published(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MMRL_FAST", "1")
    with pytest.raises(build.NotBuilt, match="unset MMRL_FAST"):
        build.build()


def test_a_site_is_stale_when_the_library_or_the_book_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(build, "BOOK", tmp_path)
    monkeypatch.setattr(execute, "library_key", lambda: "one")
    first = build._key()
    assert build._key() == first
    monkeypatch.setattr(execute, "library_key", lambda: "two")
    second = build._key()
    (tmp_path / "intro.md").write_text("# One")
    assert len({first, second, build._key()}) == 3


@pytest.mark.slow
def test_npm_without_a_registry_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(vendor, "ARCHIVES", tmp_path)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_fetch_retry_mintimeout", "10")  # npm tries again all the same
    with pytest.raises(
        vendor.Unreachable, match=r"(?s)127\.0\.0\.1:9.*npm_config_registry="
    ) as error:
        vendor.unpack("requirejs@2.3.8", *vendor.PACKAGES["requirejs@2.3.8"], tmp_path)
    assert "Traceback" not in str(error.value)


def test_an_archive_that_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(vendor, "ARCHIVES", tmp_path)
    (tmp_path / "requirejs-2.3.8.tgz").write_bytes(b"something else")
    with pytest.raises(vendor.Unreachable, match="must have the hash"):
        vendor.unpack("requirejs@2.3.8", *vendor.PACKAGES["requirejs@2.3.8"], tmp_path)


@pytest.mark.slow
def test_a_notebook_is_run_once_and_its_text_may_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    monkeypatch.setattr(execute, "CACHE", tmp_path / "runs")
    notebook = new_notebook(cells=[new_markdown_cell("One"), new_code_cell("print(6 * 7)")])
    path = tmp_path / "sample.ipynb"

    def write() -> str:
        nbformat.write(notebook, path)
        return path.read_text("utf-8")

    assert execute.read(write()).cells[1].outputs == []
    assert execute.execute(path) and not execute.execute(path)
    notebook.cells[0].source = "Two"
    notebook.cells[1].metadata["tags"] = ["new"]
    text = write()
    assert not execute.execute(path)
    assert execute.read(text).cells[1].outputs[0].text == "42\n"
    run = execute.run_of(notebook)
    assert len(run.cells) == 2 and run.metadata["provenance"] == {}  # it does not import jax
    runs = tmp_path / "runs" / "sample" / execute._flags_key("sample")
    earlier = runs / f"{execute._code_key(notebook)}-earlier.ipynb"  # of another state of mmrl
    earlier.touch()
    assert not execute.execute(path) and not earlier.exists() and [*runs.iterdir()]
    with monkeypatch.context() as other:  # a run of the tests is not shown to readers
        other.setenv("NOTEBOOK_XLA_FLAGS", "--others")
        assert execute.read(text).cells[1].outputs == []
        execute.execute(path)
        assert execute.environment()["XLA_FLAGS"] == "--others"
        assert execute.environment(computing=False).get("XLA_FLAGS") == os.environ.get("XLA_FLAGS")
    assert execute._compiles("02_monoids_and_scans") and not execute._compiles("07_train_it")
    assert not execute.execute(path)  # each has its own
    with monkeypatch.context() as other:  # a run of what has another name now is not shown
        other.setattr(execute, "notebooks", list)
        shutil.copytree(tmp_path / "runs" / "sample", tmp_path / "runs" / "07_before")
        execute.execute_all()
        assert not (tmp_path / "runs" / "07_before").exists()
    for source, error in {"1 / 0": "cell 2.*ZeroDivisionError", "1 /": "is not Python"}.items():
        notebook.cells[1].source = source
        write()
        with pytest.raises(execute.ExecutionError, match=error):
            execute.execute(path)


@pytest.mark.slow
def test_a_run_depends_on_what_its_notebook_imports_and_on_nothing_else():
    def files(code: str) -> set[str]:
        return {path.relative_to(execute.ROOT).as_posix() for path in execute.sources(code)}

    agent = files("%matplotlib inline\nfrom mmrl.agents import dqn")
    assert agent >= {"mmrl/__init__.py", "mmrl/agents/common.py", "mmrl/replay/tape.py"}
    assert not [path for path in agent if path.startswith(("mmrl/pdg", "mmrl/course", "book"))]
    widgets = files("from mmrl.course.widgets import ScanPlayer")
    assert widgets >= {"mmrl/course/widgets/js/style.css", "mmrl/course/widgets/graphs.py"}
    assert "mmrl/pdg/build/graph.py" in widgets or "mmrl/pdg/graph/__init__.py" in widgets
    assert "book/results/r2d2.jsonl" in files("from mmrl.course.results import published_rows")
    assert "mmrl/course/ch05_returns_are_monoids/exercises.py" not in files(
        "import mmrl.course.widgets"
    )
    twice = [files("from mmrl.replay import tape") for _ in range(2)]  # modules are read once
    assert twice[0] == twice[1] >= {"mmrl/replay/tape.py", "mmrl/replay/ring.py"}
    assert not [path for path in twice[1] if path.startswith("mmrl/course")]
