"""Every claim of `claims.toml` holds for the published rows, and its passage has its numbers."""

from typing import Any

import pytest

from tests.helpers import claims, passages
from tests.helpers.claims import Claim
from tests.helpers.tables import read, tables

CLAIMS = claims.claims()
READS = [(claim, table) for claim in CLAIMS for table in claims.read_by(claim, read())]


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    return tables(read())


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claim_holds(claim: Claim, rows: dict[str, Any]):
    try:
        wrong = claims.complaints(claim, rows)
    except Exception as error:
        error.add_note(claims.message(claim, ["cannot be evaluated: is a row missing?"]))
        raise
    assert not wrong, claims.message(claim, wrong)


def fails(claim: Claim, rows: dict[str, Any]) -> bool:
    """True if a claim was evaluated, and is wrong."""
    try:
        return bool(claims.complaints(claim, rows))
    except Exception:  # a key that was changed selects no row
        return False


@pytest.mark.parametrize(("claim", "table"), READS, ids=lambda x: getattr(x, "id", x))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_claim_fails_if_its_rows_change(claim: Claim, table: str, rows: dict[str, Any]):
    others = (tables({table: other}) for other in claims.changed_rows(read()[table]))
    assert any(fails(claim, rows | other) for other in others)


def test_message_names_claim_passage_and_numbers(rows: dict[str, Any]):
    (claim,) = (claim for claim in CLAIMS if claim.id == "10: what a carried state is worth")
    cell = "RepeatPreviousPaper, lru, 16 steps forgotten"
    change = {"interquartile_mean": 0.123, "interval_95": [0.1, 1.0]}
    other = [row | change if row["cell"] == cell else row for row in rows["ppo"]]
    wrong = claims.complaints(claim, rows | tables({"ppo": other}))
    text = claims.message(claim, wrong)
    for part in (claim.id, claim.page, "Measured", "`apart(forgotten, carried)` is false"):
        assert part in text
    assert "the rows give 16, 0.99, 0.12; the passage lacks 0.12\n" in text
    assert "0.74" in text.partition("and contains")[2]


def test_numbers_of_a_passage_have_one_form():
    text = "by 12 000 and 1,500 (-0.5 to 0.3), 7%, a fifth, Two-thirds, half, none of four, 1.1-1.7"
    text += ", thirteen percent"
    expected = "by 12000 and 1500 (−0.5 to 0.3), 7 %, 1/5, 2/3, 1/2, 0 of 4, 1.1-1.7, 13 %"
    assert passages.normal(text) == expected


def test_number_is_not_part_of_another_number():
    claim = CLAIMS[0]._replace(let="", holds=[], page="README.md", section="On a GPU")
    for number, result in {"16": True, "6": False, "26": True, "200": False, "2.6": False}.items():
        assert bool(claims.complaints(claim._replace(numbers=[number]), {})) != result
