"""Verdicts on planted claims and rows: how cases are formed, decided and combined."""

import datetime
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / "book" / "tools")]
import evidence  # noqa: E402
import ledgers  # noqa: E402
import verdicts  # noqa: E402
from ledgers import Row, Rows  # noqa: E402
from verdicts import Claim, ClaimError, Verdict  # noqa: E402

# Two arms on tasks whose chance is 0 and whose best return is 1

EXAMPLE = Claim(
    id="planted",
    paper="r2d2",
    title="a is better than b",
    section="Method",
    figures=[],
    quote="",
    written=datetime.date(2026, 1, 1),
    tables=["planted"],
    let="tasks = dict.fromkeys(row['task'] for row in planted)",
    each='{x: {arm: planted.one(task=x, arm=arm) for arm in "ab"} for x in tasks}',
    unless=["no_learning(final(a), final(b))", "ceiling(area(a), area(b))"],
    effect="difference(area(a), area(b))",
    measure="",
    held="low > 0",
    failed="low <= 0 and high < SMALL",
    held_unless=["edge(b)"],
    failed_unless=["edge(a)"],
    missing="two arms.",
)


def arms(task: str, a: float, b: float, seeds: int = 6, spread: float = 0.02) -> list[Row]:
    """Return a row per arm, whose seeds spread evenly around its mean return."""
    offsets = spread * np.linspace(-1, 1, seeds)
    ends = {"a": a + offsets, "b": b + offsets[::-1]}
    return [
        {"cell": f"{task}, {arm}", "task": task, "arm": arm, "worst": 0.0, "best": 1.0}
        | {"returns": [[x, x] for x in map(float, end)]}
        for arm, end in ends.items()
    ]


def verdict(*pairs: list[Row], **changes: Any) -> Verdict:
    return verdicts.judge(EXAMPLE._replace(**changes), {"planted": Rows(itertools.chain(*pairs))})


BETTER, EQUAL, WORSE = arms("1", 0.9, 0.7), arms("2", 0.8, 0.8), arms("3", 0.6, 0.8)
VAGUE = arms("4", 0.8, 0.75, spread=0.15)


@pytest.mark.parametrize(
    ("pairs", "word"),
    [
        ([BETTER], "holds"),
        ([EQUAL], "does not hold"),
        ([WORSE], "does not hold"),
        ([VAGUE], "undecided"),
        ([BETTER, WORSE], "holds in part"),
        ([BETTER, VAGUE], "holds in part"),
        ([EQUAL, VAGUE], "does not hold"),
        ([BETTER, EQUAL, WORSE], "does not hold"),
        ([BETTER, arms("5", 0.9, 0.7), WORSE], "holds in part"),
    ],
)
def test_a_verdict_combines_the_cases(pairs: list[list[Row]], word: str):
    assert verdict(*pairs).word == word


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (arms("1", 0.4, 0.1), "the best arm does not learn"),
        (arms("1", 0.999, 0.997, spread=0.0005), "every arm is at the ceiling"),
        (arms("1", 0.9, 0.7, seeds=3), "there are too few seeds"),
        (arms("1", 0.4, 0.1, seeds=3), "the best arm does not learn"),  # and few seeds
        (arms("1", float("nan"), 0.1, seeds=3), "a score is missing"),
        (arms("1", 0.8, 0.75, spread=0.15), "the interval is compatible with both"),
        (arms("1", float("nan"), 0.7), "a score is missing"),
    ],
)
def test_a_study_that_cannot_decide_reports_the_reason(pair: list[Row], reason: str):
    result = verdict(pair)
    assert result.word == "undecided" and result.cases[0].why.startswith(reason)
    assert result.reasons() == {result.cases[0].reason: 1}
    assert verdict(pair, arms("5", 0.9, 0.7, seeds=10)).word == "holds in part"


def test_the_number_of_cases_raises_the_number_of_seeds_that_is_needed():
    pairs = [arms(str(i), 0.9, 0.7, seeds=4) for i in range(2)]
    assert verdict(pairs[0]).word == "holds"  # 2 / 70 = 0.029
    assert verdict(*pairs).word == "undecided"  # 0.05 / 2 = 0.025
    assert all(case.why.startswith("there are too few seeds: 4") for case in verdict(*pairs).cases)


@pytest.mark.parametrize(
    ("edge_arm", "pair", "word"),
    [
        ("b", BETTER, "undecided"),  # the loser might gain from another rate
        ("a", BETTER, "holds"),
        ("a", EQUAL, "undecided"),
        ("b", EQUAL, "does not hold"),
    ],
)
def test_an_arm_at_the_end_of_its_grid_decides_only_against_itself(
    edge_arm: str, pair: list[Row], word: str
):
    rates = {"tuning": {"0.1": 0.0, "0.2": 0.0, "0.3": 0.0}}
    rows = [row | rates | {"learning_rate": 0.3 if row["arm"] == edge_arm else 0.2} for row in pair]
    assert verdict(rows).word == word


def test_equal_arms_near_the_best_return_do_not_refute_a_gain():
    change = {"failed_unless": ["full(high, area(b))"]}
    high, low = arms("1", 0.97, 0.97, spread=0.01), arms("2", 0.97, 0.96, spread=0.0001)
    assert verdict(EQUAL, **change).word == "does not hold"
    assert verdict(high).word == "does not hold" and verdict(high, **change).word == "undecided"
    assert verdict(low, **change).word == "holds"
    assert verdict(arms("3", 0.9, 0.97), **change).word == "does not hold"  # worse, not equal


def test_two_rows_of_one_arm_are_an_error():
    rows = Rows(row | {"memory": "lru"} for row in (*BETTER, BETTER[0]))
    with pytest.raises(ValueError, match=r"`rows` must .*'1, a'"):
        evidence.by(rows, "arm", one="a", other="b")
    assert evidence.by(rows[:2], "arm", one="a", other="b")


def test_a_claim_about_more_cases_than_were_measured_holds_in_part():
    assert verdict(BETTER, of=1).word == "holds"
    assert verdict(BETTER, of=2).word == "holds in part"


def test_one_case_is_enough_for_a_claim_about_some():
    assert verdict(BETTER, WORSE, some=True).word == "holds"
    assert verdict(EQUAL, WORSE, some=True).word == "does not hold"
    assert verdict(EQUAL, VAGUE, some=True).word == "undecided"


def test_a_claim_without_rows_needs_what_is_missing():
    assert verdict().word == "undecided" and verdict().cases == []
    assert verdict(here=False).word == "not testable here"
    assert verdict(BETTER, here=False).word == "holds"
    with pytest.raises(ClaimError, match=r"`planted` .*`missing`"):
        verdict(missing="")


def test_conditions_that_are_both_true_are_an_error():
    with pytest.raises(ClaimError, match=r"`planted`: `held` and `failed` .*'1'"):
        verdict(BETTER, failed="high > 0")


EQUALITY = {"held": "-0.1 < low and high < 0.1", "failed": "high < -0.1 or low > 0.1"}
SAME_TIME = {"held": "0.8 < low and high < 1.25", "failed": "high < 0.8 or low > 1.25"}


@pytest.mark.parametrize(
    ("pair", "changes", "outcomes"),
    [
        (BETTER, {}, {"holds", "does not hold"}),
        (BETTER, EQUALITY, {"holds", "does not hold"}),
        (VAGUE, EQUALITY, {"does not hold"}),  # wider than 0.2
        (arms("1", 0.4, 0.3, spread=0.15), EQUALITY, {"does not hold"}),  # learns nothing
        (arms("1", 0.9, 0.7, seeds=3), {}, set()),
        (BETTER, SAME_TIME | {"effect": "time_ratio(3.0, times=1)"}, {"holds", "does not hold"}),
        (BETTER, SAME_TIME | {"effect": "time_ratio(3.0, times=2)"}, {"does not hold"}),
        (BETTER, {"effect": "exact(3)", "held": "low == 1", "failed": "low > 2"}, None),
        (BETTER, {"held": "low > 9", "failed": "low < -9"}, set()),
    ],
)
def test_the_outcomes_within_reach_depend_on_the_width_of_the_interval(
    pair: list[Row], changes: dict[str, str], outcomes: set[str] | None
):
    assert verdict(pair, **changes).reach == (
        {"holds", "does not hold"} if outcomes is None else outcomes
    )


def test_a_claim_reaches_what_any_of_its_cases_reaches():
    assert verdict(VAGUE, BETTER, **EQUALITY).reach == {"holds", "does not hold"}


def test_rows_are_paired_by_fields():
    rows = [{"task": "x", "arm": "a"}, {"task": "y", "arm": "a"}]
    others = [{"task": "x", "arm": "b"}, {"task": "z", "arm": "b"}]
    assert list(evidence.matches(rows, others, "task")) == [(rows[0], others[0])]
    assert not list(evidence.matches(rows, others, "task", "arm"))
    with pytest.raises(ValueError, match=r"`others` .* of task; got two rows for \('x',\)"):
        list(evidence.matches(rows, [*others, others[0]], "task"))


def test_a_field_that_no_row_has_is_an_error():
    assert Rows()(task="x") == [] and Rows(BETTER)(task="x") == []
    with pytest.raises(ValueError, match=r"`fields` must .*'tasks'"):
        Rows(BETTER)(tasks="1", arm="a")


def test_replay_that_forgets_is_reported():
    assert evidence.forgets(np.array([0.9, 0.9, 0.91])) == ""
    assert "0.60" in evidence.forgets(np.array([0.6, 0.6]))
    assert evidence.forgets(np.array([0.9, np.nan])) == "a score is missing"


@pytest.mark.parametrize("scores", [[np.nan] * 5, [0.9], []])
def test_scores_without_an_interval_are_reported_as_such(scores: list[float]):
    whole = np.full(5, 0.99)
    for reason in (evidence.no_learning, evidence.ceiling):
        assert reason(whole, np.array(scores)).startswith(("a score is missing", "there are too"))


def test_a_table_without_published_results_is_an_error():
    with pytest.raises(ClaimError, match=r"`planted`: `tables` must .*'plantd'"):
        verdict(BETTER, tables=["plantd"])


def test_rows_of_two_devices_are_never_compared():
    claim = EXAMPLE._replace(each='by(planted, "arm", a="a", b="b")')
    on_cpu, on_gpu = Rows([*BETTER, EQUAL[0]]), Rows([*WORSE, EQUAL[1]])
    apart = verdicts.judge(claim, {"planted": on_cpu, "gpu_planted": on_gpu})
    assert [(case.name, case.word) for case in apart.cases] == [
        ("1", "holds"),
        ("3", "does not hold"),
    ]
    files = [{row["table"] for row in case.rows} for case in apart.cases]
    assert files == [{"planted"}, {"gpu_planted"}]

    both = {"planted": Rows(BETTER), "gpu_planted": Rows(arms("1", 0.6, 0.8))}
    assert [case.word for case in verdicts.judge(claim, both).cases] == ["holds"]  # of the CPU
    separate = verdicts.judge(claim._replace(by_device=True), both)
    assert [(case.name, case.word) for case in separate.cases] == [
        ("CPU, 1", "holds"),
        ("GPU, 1", "does not hold"),
    ]


def test_a_row_that_is_not_unique_is_reported_with_its_fields():
    for rows, count in ((Rows(), 0), (Rows([*BETTER, *BETTER]), 2)):
        with pytest.raises(ValueError, match=f"'arm': 'a'.*got {count}"):
            rows.one(arm="a")


def test_scores_of_sampled_actions_replace_greedy_ones_on_each_device():
    row = {"cell": "x", "retained": [0.1], "sampled": {"retained": [0.9]}}
    result = ledgers.tables(
        {"forgetting": [row], "gpu_forgetting": [row], "other": [{"cell": "y"}]}
    )
    assert result["forgetting"] == result["gpu_forgetting"]
    assert result["gpu_forgetting"][0]["retained"] == [0.9] and result["other"] == [{"cell": "y"}]
