"""A Sphinx extension: each file of results with what it shows, its figure, and its rows."""

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import execute
import pages
import sentences
from docutils import nodes
from reading import load
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)


class Study(NamedTuple):
    """What the course says of a file of results."""

    title: str
    page: str = ""  # which shows or tells it; its figure, if it is a chapter
    sentence: Callable[[sentences.Rows], str] | None = None
    undrawn: str = ""  # why there is no figure here


# By the name of the file, in the order of the page, which is the course's.
STUDIES = {
    "batching": Study("Tapes against segments", "notebooks/07_train_it", sentences.batching),
    "training_times": Study(
        "What a gradient step costs", "notebooks/07_train_it", sentences.training_times
    ),
    "seeds": Study(
        "What more seeds cost",
        "scaling",
        sentences.more_seeds,
        "There is no figure, because a table of the page says it.",
    ),
    "speed": Study(
        "How fast one agent is",
        "scaling",
        sentences.speed,
        "There is no figure, because a table of the page has these numbers.",
    ),
    "ffm": Study(
        "Fast and forgetful memory, coded and printed",
        "notebooks/03b_how_long_it_remembers",
        sentences.ffm,
        "There is no figure, because the chapter gives these scores in its text.",
    ),
    "returns_timing": Study(
        "How fast returns are computed",
        "notebooks/05_returns_are_monoids",
        sentences.returns_timing,
    ),
    "sensitivity": Study(
        "What trained agents look back at",
        "notebooks/08_what_truncation_costs",
        sentences.sensitivity,
    ),
    "r2d2": Study("Where replayed sequences start", "notebooks/09_r2d2", sentences.r2d2),
    "ppo": Study(
        "A scan, a walk, and no memory in PPO", "notebooks/10_ppo_with_memory", sentences.ppo
    ),
    "staleness": Study(
        "Learning from late rollouts", "notebooks/11_three_policies", sentences.staleness
    ),
    "ewma": Study("An average as proximal policy", "notebooks/11_three_policies", sentences.ewma),
    "invariance": Study(
        "The same returns from smaller batches",
        "notebooks/12_batch_size_invariance",
        sentences.invariance,
    ),
    "forgetting": Study(
        "Forgetting, and what stops it", "notebooks/14_clear", sentences.forgetting
    ),
    "minatar": Study(
        "Games one after another",
        "notebooks/14_clear",
        sentences.minatar,
        "There is no figure, because the chapter prints these scores and draws none of them.",
    ),
    "graphs": Study(
        "Compiled equations against programs by hand", "notebooks/17_compiling", sentences.graphs
    ),
    "baselines": Study(
        "Every agent with its defaults",
        "baselines",
        sentences.baselines,
        "There is no figure here, because a page of its own draws the course of every run.",
    ),
    "popgym": Study(
        "POPGym's tasks beside its paper",
        "popgym",
        sentences.popgym,
        "There is no figure here, because a page of its own has the scores, task by task.",
    ),
}


class Picture(NamedTuple):
    """A picture of a chapter, and what it says in its place."""

    png: bytes
    alt: str


class Results(SphinxDirective):
    """Every file of book/results: what it shows, its figure, where it is used, and its rows."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        order = [*STUDIES]
        files = sorted(path.stem for path in pages.RESULTS.glob("*.jsonl"))
        if not files:
            return [nodes.paragraph(text="No result has been published yet.")]
        files.sort(key=lambda name: order.index(name) if name in order else len(order))
        return [self._section(name) for name in files]

    def _section(self, name: str) -> nodes.section:
        rows = pages.read(f"{name}.jsonl")
        study = STUDIES.get(name) or Study(name.replace("_", " ").capitalize())
        section = nodes.section(ids=[nodes.make_id(name)])
        section += nodes.title(text=study.title)
        if study.sentence:
            section += nodes.paragraph(text=study.sentence(rows))
        places = list(dict.fromkeys([study.page] * bool(study.page) + readers(name)))
        section += self._figure(name, study, places)
        section += self._ways(name, places)
        folded = pages.table(f"{name}.jsonl", rows)
        said = f"<summary>{len(rows)} rows, and where they come from</summary>"
        section += nodes.raw("", f'<details class="rows">{said}{folded}</details>', format="html")
        return section

    def _figure(self, name: str, study: Study, places: list[str]) -> nodes.Node:
        """A picture in a file of its own, which Sphinx copies, or why there is none."""
        if study.undrawn:
            return nodes.paragraph(text=study.undrawn)
        drawn = picture(name, places[0]) if places else None
        if drawn is None:
            if study.page:
                logger.warning("%s shows no picture of the rows of %s", study.page, name)
            return nodes.paragraph(text="There is no figure: no chapter draws these rows.")
        path = Path(self.env.app.doctreedir) / "studies" / f"study_{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn.png)
        image = nodes.image(uri=self._from_sources(path), alt=drawn.alt)
        return nodes.paragraph("", "", image)

    def _ways(self, name: str, places: list[str]) -> nodes.paragraph:
        """Links to the pages that use the rows, and to their file."""
        path = pages.RESULTS / f"{name}.jsonl"
        ways = nodes.paragraph()
        for place in places:
            ways += nodes.Text(" and in " if len(ways) else "Used in ")
            ways += self._link(place)
        ways += nodes.Text(". " * bool(places))
        size = f"{path.stat().st_size / 1000:,.0f}".replace(",", " ")
        file = addnodes.download_reference("", "", reftarget=self._from_sources(path))
        file += [nodes.Text("Download "), nodes.literal(text=path.name)]
        file += nodes.Text(f", {size} kB")
        ways += [file, nodes.Text(".")]
        return ways

    def _link(self, page: str) -> addnodes.pending_xref:
        """A link that has the page's title."""
        about = {"refdomain": "std", "reftype": "doc", "reftarget": f"/{page}", "refwarn": True}
        link = addnodes.pending_xref(refdoc=self.env.docname, refexplicit=False, **about)
        link += nodes.inline(text=page)
        return link

    def _from_sources(self, path: Path) -> str:
        """A path as Sphinx wants it: / is the folder of the sources."""
        return f"/{os.path.relpath(path, self.env.srcdir)}"


def readers(name: str) -> list[str]:
    """The chapters whose code reads a file of results."""
    found = []
    for path in execute.chapters():
        cells = load(path)["cells"]
        if any(_reads(name, "".join(c["source"])) for c in cells if c["cell_type"] == "code"):
            found.append(f"{execute.NOTEBOOKS.name}/{path.stem}")
    return found


def picture(name: str, chapter: str) -> Picture | None:
    """The first picture of a chapter's run from the cell on that reads a file of results."""
    if chapter not in readers(name):
        return None
    text = (execute.NOTEBOOKS.parent / f"{chapter}.ipynb").read_text("utf-8")
    cells = [cell for cell in execute.read(text).cells if cell.cell_type == "code"]
    begin = next(i for i, cell in enumerate(cells) if _reads(name, cell.source))
    for cell in cells[begin:]:
        for output in cell.outputs:
            if png := output.get("data", {}).get("image/png"):
                return Picture(base64.b64decode(png), cell.metadata["mystnb"]["image"]["alt"])
    return None


def _reads(name: str, code: str) -> bool:
    return f'published("{name}")' in code


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("results", Results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
