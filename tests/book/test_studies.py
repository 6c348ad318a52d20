"""The page of results: each sentence says what the rows say, and each study is all there."""

import base64
import html
import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "book" / "tools"))
import build as make  # noqa: E402
import execute  # noqa: E402
import pages  # noqa: E402
from studies import STUDIES  # noqa: E402

Rows = list[dict[str, Any]]
CARDS = "RepeatPreviousPaper"


def rows_of(name: str) -> Rows:
    text = (ROOT / "book" / "results" / f"{name}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def sentence(name: str, rows: Rows | None = None) -> str:
    say = STUDIES[name].sentence
    assert say
    return say(rows_of(name) if rows is None else rows)


def test_every_published_file_has_a_study():
    assert {path.stem for path in ROOT.glob("book/results/*.jsonl")} == set(STUDIES)
    for name, study in STUDIES.items():
        said = sentence(name)
        assert re.search(r"\d", said) and said.endswith(").")
        assert re.findall(r"[.?!] ", said) == [], f"{name} has more than one sentence"
        assert study.title and study.page


# A changed row changes its sentence; that the sentences are right is in claims.toml.


def set_in(cell: str, *path: Any, to: Any) -> Callable[[Rows], None]:
    """Changes one number of the row of a cell."""

    def change(rows: Rows) -> None:
        (at,) = (row for row in rows if row["cell"] == cell)
        for key in path[:-1]:
            at = at[key]
        assert at[path[-1]] != to
        at[path[-1]] = to

    return change


def double(*path: Any) -> Callable[[Rows], None]:
    """Changes one number of the first row, which has no name."""

    def change(rows: Rows) -> None:
        at: Any = rows[0]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] *= 20

    return change


CHANGES = {
    "batching": set_in(f"{CARDS}, gru, segments of 10", "interval_95", to=[0.9, 1.0]),
    "training_times": double("seconds"),
    "seeds": double("env_steps_per_s"),
    "speed": double("env_steps_per_s"),
    "ffm": set_in("CountRecallEasy, ffm, tape", "interquartile_mean", to=0.1),
    "returns_timing": double("ms", "ours: one backward scan with resets"),
    "sensitivity": set_in(f"{CARDS}, lru, tape", "swap", 0, 9, to=0.0),
    "r2d2": set_in("RepeatPreviousLong, lstm, stored burn in", "interval_95", to=[0.5, 0.6]),
    "ppo": set_in("RepeatFirstEasy, none, 64 steps carried", "interquartile_mean", to=0.0),
    "staleness": set_in("Catch, recent, staleness 16", "interquartile_mean", 2, to=0.5),
    "ewma": set_in("PPG-EWMA against PPG", "area_difference", 1, to=0.2),
    "invariance": set_in("Breakout, ppo, every adjustment, c = 16", "returns", 0, -1, to=60.0),
    "forgetting": set_in("Catch, sequential, CLEAR", "sampled", "retained", 0, to=0.0),
    "minatar": set_in("MinAtar, sequential, CLEAR", "scores", 0, -1, 2, to=9.0),
    "graphs": set_in("bytes, n = 8, width = 4096", "bytes", "ours, m = 16", to=1),
    "baselines": set_in("CartPole-v1, dqn, lru", "learned_and_stayed", to=3),
    "popgym": set_in("RepeatFirstEasy, gru, 3M", "mmer", to=0.5),
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_sentence_changes_when_a_row_changes(name: str):
    rows = rows_of(name)
    before = sentence(name, rows)
    CHANGES[name](rows)
    assert sentence(name, rows) != before


# The page, of a small book whose chapters have titles and runs that are made up


def build(folder: Path, outputs: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """Build the page of results into a folder; what Sphinx warned of."""

    def run(text: str) -> Any:
        """What a chapter's run has: a picture wherever its source has an alt text, named by it."""
        import nbformat

        notebook = nbformat.reads(text, 4)
        for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
            cell.outputs = [nbformat.v4.new_output("stream", text="so much")]
            if outputs and "mystnb" in cell.metadata:
                png = {"image/png": base64.b64encode(cell.id.encode()).decode()}
                cell.outputs += [nbformat.v4.new_output("execute_result", data=png)]
        return notebook

    (folder / "notebooks").mkdir(parents=True)
    shutil.copytree(pages.RESULTS, folder / "results")
    (folder / "results" / "of_any_shape.jsonl").write_text('{"a": null, "b": [1, [2]]}\n{}\n')
    for page in (
        "baselines",
        "popgym",
        "scaling",
        *(f"notebooks/{x.stem}" for x in execute.chapters()),
    ):
        (folder / f"{page}.rst").write_text(f"Title of {page}\n{'=' * 60}\n")
    (folder / "index.rst").write_text(
        "Results\n=======\n\n.. results::\n\n.. toctree::\n   :glob:\n\n   *\n   notebooks/*\n"
    )
    monkeypatch.setattr(execute, "read", run)
    monkeypatch.setattr(pages, "RESULTS", folder / "results")
    warnings = io.StringIO()
    with docutils_namespace():
        builder = "html" if outputs else "dummy"
        places: Any = (folder, None, folder / "html", folder / "doctrees", builder)
        settings = {"extensions": ["studies"], "smartquotes": False}
        Sphinx(*places, settings, status=None, warning=warnings).build()
    return warnings.getvalue()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("book")
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert build(folder, outputs=True, monkeypatch=monkeypatch) == ""
    return folder


def section(built: Path, name: str) -> str:
    """The part of the page that is about a file."""
    text = (built / "html" / "index.html").read_text("utf-8")
    begin = text.index(f'<section id="{name.replace("_", "-")}">')
    return text[begin : text.index("</section>", begin)]


def drawn(name: str) -> tuple[str, str]:
    """(id, alt text) of the cell of a study's chapter that draws its rows, by its source."""
    text = (ROOT / f"{STUDIES[name].page}.ipynb").read_text("utf-8")
    reading = False
    for cell in json.loads(text)["cells"]:
        reading = reading or (
            cell["cell_type"] == "code" and f'published("{name}")' in "".join(cell["source"])
        )
        if reading and "mystnb" in cell["metadata"]:
            return cell["id"], cell["metadata"]["mystnb"]["image"]["alt"]
    raise AssertionError(f"{STUDIES[name].page} draws no rows of {name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_its_figure_or_says_why_not(name: str, built: Path):
    text, study = section(built, name), STUDIES[name]
    assert f"<h2>{study.title}<" in html.unescape(text)
    pictures = re.findall(r'<img alt="([^"]*)" src="([^"]*)" />', text)
    if study.undrawn:
        assert pictures == [] and study.undrawn in html.unescape(text)
        return
    ((alt, source),) = pictures
    cell, said = drawn(name)
    assert source == f"_images/study_{name}.png" and html.unescape(alt) == said
    assert (built / "html" / source).read_bytes() == cell.encode()
    assert "no figure" not in text


@pytest.mark.parametrize("name", [*STUDIES, "of_any_shape"])
def test_a_study_folds_its_rows_and_links_to_them(name: str, built: Path):
    text, source = section(built, name), built / "results" / f"{name}.jsonl"
    (folded,) = re.findall(r"<details.*</details>", text, re.DOTALL)
    rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()]
    assert f"<summary>{len(rows)} rows, and where they come from</summary>" in folded
    assert pages.table(source.name, rows) in folded
    (link,) = re.findall(r'<a class="[^"]*\bdownload\b[^"]*"[^>]*\bhref="([^"]*)"', text)
    file = built / "html" / link
    assert file.name == source.name and file.read_bytes() == source.read_bytes()
    assert text.index(link) < text.index("<details"), "a link that is folded away is not found"


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_says_what_it_shows_and_where_it_is_used(name: str, built: Path):
    text = html.unescape(section(built, name))
    assert f"<p>{sentence(name)}</p>" in text
    asked = f'published(\\"{name}\\")'
    chapters = {f"notebooks/{x.stem}" for x in execute.chapters() if asked in x.read_text("utf-8")}
    for page in {STUDIES[name].page, *chapters}:
        link = rf'<a class="reference internal" href="{page}.html"><span class="doc">(.*?)</span>'
        assert re.findall(link, text) == [f"Title of {page}"]


def test_studies_stand_in_their_order_and_others_behind_them(built: Path):
    text = (built / "html" / "index.html").read_text("utf-8")
    found = re.findall(r'<section id="([\w-]+)">', text)
    assert found == ["results", *(x.replace("_", "-") for x in STUDIES), "of-any-shape"]
    other = section(built, "of_any_shape")
    assert "There is no figure: no chapter draws these rows." in other and "Used in" not in other


@pytest.mark.slow
def test_a_chapter_without_its_picture_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    warnings = build(tmp_path / "book", outputs=False, monkeypatch=monkeypatch)
    wanted = [name for name, study in STUDIES.items() if not study.undrawn]
    assert re.findall(r"shows no picture of the rows of (\w+)", warnings) == wanted


@pytest.mark.full
def test_the_site_shows_the_pictures_of_its_chapters_and_gives_away_all_rows():
    site = make.build()
    text = (site / "results.html").read_text("utf-8")
    for name, study in STUDIES.items():
        if not study.undrawn:
            (alt,) = re.findall(rf'<img alt="([^"]+)" src="_images/study_{name}.png"', text)
            chapter = (site / f"{study.page}.html").read_text("utf-8")
            shown = re.findall(rf'<img alt="{re.escape(alt)}" src="../(_images/[^"]+)"', chapter)
            picture = (site / "_images" / f"study_{name}.png").read_bytes()
            assert picture in [(site / path).read_bytes() for path in shown], name
        (file,) = re.findall(rf'href="(_downloads/\w+/{name}.jsonl)"', text)
        assert (site / file).read_bytes() == (pages.RESULTS / f"{name}.jsonl").read_bytes()
