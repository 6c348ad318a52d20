"""Verdicts on the papers' claims follow from rows, and the page and README show them."""

import ast
import importlib
import inspect
import io
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools")]
import claims  # noqa: E402
import evidence  # noqa: E402
import ledgers  # noqa: E402
import verdicts  # noqa: E402
from estimates import Interval  # noqa: E402
from ledgers import Row, Rows  # noqa: E402
from verdicts import Claim, Verdict  # noqa: E402

from mmrl.course import experiments  # noqa: E402

CLAIMS = verdicts.claims()
WAITING: set[str] = set()  # claims whose tables have rows, but none of the kind they need
UNTRAINED = {"padding"}  # experiments that train no agents
OTHER_EFFECTS = re.compile(r"\b(time_ratio|log_time_ratios|exact)\(")
LEARNING = [x for x in CLAIMS if set(x.tables) - UNTRAINED and not OTHER_EFFECTS.search(x.effect)]
WITH_TABLES = [claim for claim in CLAIMS if claim.tables]


@pytest.fixture(scope="module")
def rows() -> dict[str, Rows]:
    return ledgers.published_tables()


@pytest.fixture(scope="module")
def all_verdicts(rows: dict[str, Rows]) -> list[Verdict]:
    return [verdicts.judge(claim, rows) for claim in CLAIMS]


# The claims


def test_every_paper_has_claims():
    assert len(CLAIMS) == len({claim.id for claim in CLAIMS}) >= 25
    assert {claim.paper for claim in CLAIMS} == set(verdicts.papers())
    assert len(verdicts.papers()) == 5


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_names_a_section_that_exists(claim: Claim):
    paper = verdicts.papers()[claim.paper]
    assert claim.section in paper["sections"]
    assert all(1 <= int(figure) <= paper["figures"] for figure in claim.figures)
    assert claim.quote and claim.title and claim.measure
    assert claim.missing and paper["setting"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_has_a_decision_rule_exactly_if_it_has_tables(claim: Claim):
    rule = (claim.each != "{}", claim.effect, claim.held, claim.failed)
    assert all(rule) if claim.tables else not any(rule)
    assert set(claim.tables) <= set(experiments.EXPERIMENTS)
    assert claim.by_device == ("time_ratio" in claim.effect)


def test_rows_on_a_second_device_do_not_change_a_verdict(
    all_verdicts: list[Verdict], rows: dict[str, Rows]
):
    on_cpu = {name: table for name, table in rows.items() if not name.startswith("gpu_")}
    copies = {f"gpu_{name}": table for name, table in on_cpu.items()}
    for result in all_verdicts:
        if not result.claim.by_device:
            for tables in (on_cpu | copies, dict.fromkeys(on_cpu, Rows()) | copies):
                again = verdicts.judge(result.claim, tables)
                assert [case[:4] for case in again.cases] == [case[:4] for case in result.cases]


@pytest.mark.parametrize("claim", WITH_TABLES, ids=lambda claim: claim.id)
def test_a_decision_rule_gives_both_outcomes_for_estimates_without_noise(claim: Claim):
    values = [*np.linspace(-2, 2, 401), *np.logspace(-6, 6, 241)]
    scope = {**vars(evidence), "growth": 16.0}
    outcomes = verdicts.reach(claim, scope, [Interval(x, x, x) for x in values])
    assert outcomes == {"holds", "does not hold"}


def names(code: str) -> Iterator[str]:
    """Yield the strings in an expression that must be fields of rows or values of fields."""
    for node in ast.walk(tree := ast.parse(code.strip())):
        if isinstance(node, ast.JoinedStr):
            node.values = [x for x in node.values if not isinstance(x, ast.Constant)]
        if isinstance(node, ast.Dict):
            node.keys = []
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    yield from (node.value for node in nodes if isinstance(node.value, str) and node.value != "_")


def literals(module: str) -> set[str]:
    """Return all strings in the source of an experiment, and of the course's modules it imports."""
    importlib.import_module(module)
    strings, waiting, done = set[str](), [module], set[str]()
    while waiting:
        name = waiting.pop()
        if name in done or name not in sys.modules or not name.startswith("mmrl.course."):
            continue
        done.add(name)
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[name]))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
            if isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    return strings


@pytest.mark.parametrize("claim", WITH_TABLES, ids=lambda claim: claim.id)
def test_cases_are_selected_by_fields_and_values_that_rows_have(
    claim: Claim, rows: dict[str, Rows]
):
    own = [row for name in claim.tables for row in rows[name]]
    fields = {name for row in own for name in row}
    for name in claim.tables:
        if not rows[name]:  # not measured yet, so use what the experiment's source can write
            fields |= literals(experiments.EXPERIMENTS[name])
    values = {value for row in own for value in row.values() if isinstance(value, str)}
    strings = {name for code in (claim.let, claim.each) for name in names(code)}
    if claim.id in WAITING:
        assert strings == {"cell", "residuals"}
    else:
        assert strings <= fields | values | {" ", "cut"}


def test_a_claim_can_be_judged_while_some_rows_are_missing(rows: dict[str, Rows]):
    draw = random.Random(0)

    def thinned(table: Rows) -> Rows:  # every field of the table remains in some row
        kept, fields = Rows(), set[str]()
        for row in table:
            if draw.random() < 0.4 or row.keys() - fields:
                kept.append(row)
                fields |= row.keys()
        return kept

    for _ in range(6):
        some = {name: thinned(table) for name, table in rows.items()}
        assert all(verdicts.judge(claim, some).word in verdicts.WORDS for claim in CLAIMS)


def test_with_greedy_actions_clear_is_about_as_good_as_learning_at_once():
    (claim,) = (claim for claim in CLAIMS if claim.id == "clear-like-simultaneous")
    greedy = dict.fromkeys(experiments.EXPERIMENTS, Rows())
    greedy |= {name: Rows(table) for name, table in ledgers.read().items()}
    assert "all three cases would hold" in claim.distance
    assert [case.word for case in verdicts.judge(claim, greedy).cases] == 3 * ["holds"]


@pytest.mark.parametrize("claim", LEARNING, ids=lambda claim: claim.id)
def test_a_claim_about_learning_requires_that_an_arm_learns(claim: Claim):
    assert any(code.startswith("no_learning(") for code in claim.unless)


def test_most_claims_are_about_learning():
    assert len(LEARNING) >= 39


def row_without_learning(row: Row) -> Row:
    """Return the row of agents that learned nothing."""
    fields = ("returns", "areas", "finals", "cumulative", "scores")
    return row | {x: (-np.ones_like(np.array(row[x], float))).tolist() for x in fields if x in row}


def test_agents_that_learn_nothing_decide_nothing(rows: dict[str, Rows]):
    failures = {name: Rows(map(row_without_learning, table)) for name, table in rows.items()}
    words = {claim.id: verdicts.judge(claim, failures).word for claim in LEARNING}
    assert set(words.values()) <= {"undecided", "not testable here"}


def test_every_claim_can_be_evaluated(all_verdicts: list[Verdict], rows: dict[str, Rows]):
    assert {result.word for result in all_verdicts} <= set(verdicts.WORDS)
    empty = {
        result.claim.id
        for result in all_verdicts
        if not result.cases and any(rows.get(name) for name in result.claim.tables)
    }
    assert empty == WAITING, "`each` selects none of the rows of its tables"


# The page


def test_the_page_and_the_readme_show_the_verdicts(all_verdicts: list[Verdict]):
    remedy = "run `python book/tools/claims.py`"
    text = claims.PAGE.read_text("utf-8")
    assert text == claims.page(text, all_verdicts), remedy
    table = "\n".join(claims.lines(all_verdicts))
    readme = claims.README.read_text("utf-8")
    assert table in readme, remedy
    assert claims.with_lines(readme.replace(table, "| paper | claims |\n|---|"), table) == readme
    with pytest.raises(ValueError, match=r"'claims'.*got 0"):
        claims.with_lines(readme.replace("| paper | claims |", "| paper | verdicts |"), table)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999.7, "1000"),
        (12345.6, "12346"),
        (-0.01234, "−0.0123"),
        (1.234e-5, "0.0000123"),
        (1, "1"),
        (-0.0, "0"),
    ],
)
def test_numbers_have_no_exponent(value: float, text: str):
    assert claims.number(value) == text


def test_steps_of_a_row_follow_from_its_settings_if_it_has_no_such_field():
    row = {"settings": {"environments": 2, "rollout": 3, "block": 5, "blocks": 7, "width": 11}}
    assert claims.trained_steps(row) == 210
    assert claims.trained_steps(row | {"env_steps": [4, 8]}) == 8
    assert claims.trained_steps(row | {"env_steps": 6}) == 6
    assert claims.trained_steps({"settings": {"rollout": 3}}) == 0


def test_the_page_gives_a_claim_its_words_rows_and_cases(all_verdicts: list[Verdict]):
    text = claims.PAGE.read_text("utf-8")
    for result in all_verdicts:
        part = text.split(f"\n### {result.claim.title}\n")[1].split("\n### ")[0]
        assert f"**{result.word.capitalize()}.**" in part and result.claim.quote in part
        assert result.claim.missing in part
        has_limit = result.cases and result.reach < {"holds", "does not hold"}
        assert ("- Limit of the data:" in part) == bool(has_limit)
        assert all(f"| {case.name} | {case.word} |" in part for case in result.cases)


def test_the_verdicts_of_a_paper_are_counted(all_verdicts: list[Verdict]):
    head, _, *rest = claims.lines(all_verdicts)
    assert head.count("|") == len(verdicts.WORDS) + 3 and len(rest) == 5
    for line in rest:
        total, *counts = map(int, line.strip("| ").split(" | ")[1:])
        assert total == sum(counts)


# The links of the chapters


def site(folder: Path, section: str, text: str = "Text.") -> str:
    """Build a site of chapter 09 and a page of claims; return the warnings."""
    pages = {"index": "I\n=\n\n.. toctree::\n\n   claims\n   notebooks/09_r2d2\n"}
    pages["claims"] = "Claims\n======\n\nR2D2\n----\n\nText.\n"
    pages["notebooks/09_r2d2"] = f"R2D2\n====\n\n{section}\n{'-' * 40}\n\n{text}\n\nNext\n----\n"
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.rst").write_text(text)
    warnings = io.StringIO()
    with docutils_namespace():
        places: Any = (folder, None, folder / "html", folder / "doctrees", "html")
        extensions = {"extensions": ["claim_links", "page_links"]}
        Sphinx(*places, extensions, status=None, warning=warnings).build()
    return warnings.getvalue()


def test_a_chapter_links_to_the_claims_of_its_paper(tmp_path: Path):
    assert site(tmp_path, "What did not reproduce: much") == ""
    page = BeautifulSoup((tmp_path / "html/notebooks/09_r2d2.html").read_text(), "html.parser")
    (link,) = page.select("#what-did-not-reproduce-much > p > a")
    assert link["href"] == "../claims.html#r2d2"
    html = BeautifulSoup((tmp_path / "html/claims.html").read_text(), "html.parser")
    assert html.select("#r2d2")


def test_the_title_of_a_page_is_a_link(tmp_path: Path):
    text = "The page *Claims* lists all. *Claims* and the page *R2D2* do not."
    assert site(tmp_path, "What did not reproduce", text) == ""
    page = BeautifulSoup((tmp_path / "html/notebooks/09_r2d2.html").read_text(), "html.parser")
    (link,) = page.select("#what-did-not-reproduce > p > a:has(em)")
    assert link["href"] == "../claims.html" and link.text == "Claims"


def test_a_chapter_without_its_section_is_reported(tmp_path: Path):
    assert "What did not reproduce" in site(tmp_path, "Measured")


def test_every_chapter_of_a_paper_has_the_section():
    for paper in verdicts.papers().values():
        for chapter in paper["chapters"]:
            text = (ROOT / "notebooks" / f"{chapter}.ipynb").read_text("utf-8")
            assert '"## What did not reproduce' in text, chapter
