"""The page of results: each sentence says what the rows say, and each study is all there."""

import base64
import html
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "book" / "tools"))
import build as make  # noqa: E402
import execute  # noqa: E402
import pages  # noqa: E402

from tests.helpers import claims  # noqa: E402

PAGE = (ROOT / "book" / "results.md").read_text("utf-8")
STUDY = re.compile(r"^## (.+)\n\n((?:.+\n)+)\n```\{study\} (\w+)\n((?::.+\n)*)```$", re.MULTILINE)


class Study(NamedTuple):
    """A section of the page."""

    title: str
    text: str
    options: dict[str, str]

    @property
    def has_figure(self) -> bool:
        return "There is no figure" not in " ".join(self.text.split())


STUDIES = {
    name: Study(title, text, dict(re.findall(r":(\w+): (.+)", options)))
    for title, text, name, options in STUDY.findall(PAGE)
}


def test_every_published_file_has_a_study_and_a_claim_about_its_rows():
    assert {path.stem for path in ROOT.glob("book/results/*.jsonl")} == set(STUDIES)
    assert len(STUDIES) == PAGE.count("```{study}")
    names = {claim.section for claim in claims.claims() if claim.page == "book/results.md"}
    assert names == {study.title for name, study in STUDIES.items() if name != "popgym"}


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
        "tasks",
        "claims",
        "scaling",
        "inspect",
        "models",
        "own",
        "choosing",
        *(f"notebooks/{x.stem}" for x in execute.chapters()),
    ):
        (folder / f"{page}.rst").write_text(f"Title of {page}\n{'=' * 60}\n")
    blocks = "".join(
        f"{study.title}\n{'-' * 60}\n\n.. study:: {name}\n"
        + "".join(f"   :{option}: {value}\n" for option, value in study.options.items())
        + "\n"
        for name, study in (*STUDIES.items(), ("of_any_shape", Study("Of any shape", "", {})))
    )
    contents = ".. toctree::\n   :glob:\n\n   *\n   notebooks/*\n"
    (folder / "index.rst").write_text(f"Results\n=======\n\n{blocks}{contents}")
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
def book_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("book")
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert build(folder, outputs=True, monkeypatch=monkeypatch) == ""
    return folder


def section(folder: Path, name: str) -> str:
    """The part of the page that is about a file."""
    text = (folder / "html" / "index.html").read_text("utf-8")
    title = STUDIES[name].title if name in STUDIES else "Of any shape"
    begin = text.index(f'<section id="{nodes.make_id(title)}">')
    return text[begin : text.index("</section>", begin)]


def chapter(name: str) -> str:
    """The chapter that draws the rows of a study."""
    readers = [
        x.stem for x in execute.chapters() if f'published_rows(\\"{name}\\")' in x.read_text()
    ]
    return STUDIES[name].options.get("figure") or f"notebooks/{readers[0]}"


def figure_cell(name: str) -> tuple[str, str]:
    """(id, alt text) of the cell of a study's chapter that draws its rows, by its source."""
    text = (ROOT / f"{chapter(name)}.ipynb").read_text("utf-8")
    reading = False
    for cell in json.loads(text)["cells"]:
        reading = reading or (
            cell["cell_type"] == "code" and f'published_rows("{name}")' in "".join(cell["source"])
        )
        if reading and "mystnb" in cell["metadata"]:
            return cell["id"], cell["metadata"]["mystnb"]["image"]["alt"]
    raise AssertionError(f"{chapter(name)} draws no rows of {name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_its_figure_or_says_why_not(name: str, book_folder: Path):
    text, study = section(book_folder, name), STUDIES[name]
    assert f"<h2>{study.title}<" in html.unescape(text).replace("’", "'")
    pictures = re.findall(r'<img alt="([^"]*)" src="([^"]*)" />', text)
    if not study.has_figure:
        assert pictures == []
        return
    ((alt, source),) = pictures
    cell, alt_text = figure_cell(name)
    assert source == f"_images/study_{name}.png" and html.unescape(alt) == alt_text
    assert (book_folder / "html" / source).read_bytes() == cell.encode()


@pytest.mark.parametrize("name", [*STUDIES, "of_any_shape"])
def test_a_study_folds_its_rows_and_links_to_them(name: str, book_folder: Path):
    text, source = section(book_folder, name), book_folder / "results" / f"{name}.jsonl"
    (details,) = re.findall(r"<details.*</details>", text, re.DOTALL)
    rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()]
    assert f"<summary>{len(rows)} rows, and where they come from</summary>" in details
    assert pages.table(source.name, rows) in details
    (link,) = re.findall(r'<a class="[^"]*\bdownload\b[^"]*"[^>]*\bhref="([^"]*)"', text)
    file = book_folder / "html" / link
    assert file.name == source.name and file.read_bytes() == source.read_bytes()
    assert text.index(link) < text.index("<details"), "a link that is folded away is not found"


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_names_the_pages_that_use_it(name: str, book_folder: Path):
    text = html.unescape(section(book_folder, name))
    call = f'published_rows(\\"{name}\\")'
    chapters = {f"notebooks/{x.stem}" for x in execute.chapters() if call in x.read_text("utf-8")}
    pages = chapters | {*STUDIES[name].options.values()} - {"none"}
    assert pages
    for page in pages:
        link = rf'<a class="reference internal" href="{page}.html"><span class="doc">(.*?)</span>'
        assert re.findall(link, text) == [f"Title of {page}"]


def test_rows_that_no_chapter_reads_have_no_figure_and_no_links(book_folder: Path):
    other = section(book_folder, "of_any_shape")
    assert "<img" not in other and "Used in" not in other


@pytest.mark.slow
def test_a_chapter_without_its_picture_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    warnings = build(tmp_path / "book", outputs=False, monkeypatch=monkeypatch)
    expected = [name for name, study in STUDIES.items() if study.has_figure]
    assert re.findall(r"shows no picture of the rows of (\w+)", warnings) == expected


@pytest.mark.full
def test_the_site_shows_the_pictures_of_its_chapters_and_gives_away_all_rows():
    site = make.build()
    text = (site / "results.html").read_text("utf-8")
    for name, study in STUDIES.items():
        if study.has_figure:
            (alt,) = re.findall(rf'<img alt="([^"]+)" src="_images/study_{name}.png"', text)
            text_of = (site / f"{chapter(name)}.html").read_text("utf-8")
            matches = re.findall(rf'<img alt="{re.escape(alt)}" src="../(_images/[^"]+)"', text_of)
            picture = (site / "_images" / f"study_{name}.png").read_bytes()
            assert picture in [(site / path).read_bytes() for path in matches], name
        (file,) = re.findall(rf'href="(_downloads/\w+/{name}.jsonl)"', text)
        assert (site / file).read_bytes() == (pages.RESULTS / f"{name}.jsonl").read_bytes()
