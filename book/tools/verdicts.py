"""Verdicts on claims of the five papers, computed by the expressions in `book/claims`.

A claim consists of cases, each of which has an estimate with an interval. Two conditions on this
interval decide a case: one for "holds" and one for "does not hold". A case is undecided if one of
the following is true, and the first of them is reported as the reason: a score is missing; a check
in `unless` fails (for example, because the best arm of the case does not learn the task); there are
too few seeds; or neither condition is true. The level of a confidence interval is 1 - 0.05 /
(number of cases), so that all confidence intervals of a claim contain their true values with
probability at least 95 %. Intervals of times and counts are not confidence intervals and have no
level: see `estimates.Within`.

The cases are computed separately for each kind of device, so that no case compares rows of a CPU
with rows of a GPU. If both devices have rows for a case, the rows of the CPU are used. In claims
about times (`by_device`), each device has separate cases instead.

    holds              every case holds
    holds in part      some cases hold, and at most as many do not; others may be undecided
    does not hold      more cases do not hold than hold
    undecided          no case is decided, or there are no rows
    not testable here  there are no rows, and this project cannot measure them

If `some` is True, the claim is that at least one case holds. It holds if any case holds, does not
hold if every case does not, and is undecided otherwise.
"""

import datetime
import functools
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import evidence
from estimates import Estimate, Interval
from ledgers import Row, Rows

FOLDER = Path(__file__).parent.parent / "claims"
WORDS = ("holds", "holds in part", "does not hold", "undecided", "not testable here")
HOLDS, PART, FAILS, OPEN, UNTESTABLE = WORDS
ERROR = 0.05  # probability that any confidence interval of a claim misses the true value
DEVICES = {"CPU": "", "GPU": "gpu_"}  # prefixes of tables; the first device has priority


class Claim(NamedTuple):
    """A claim of a paper, and the expressions that decide it."""

    id: str
    paper: str
    title: str
    section: str  # key in the paper's `sections`
    quote: str  # quotation from the paper
    written: datetime.date  # date on which the conditions were written
    figures: Sequence[str] = ()
    distance: str = ""  # differences from the paper's setup, in addition to its `setting`
    # Names of experiments whose rows are evaluated. Without tables, a claim has no expressions.
    tables: Sequence[str] = ()
    let: str = ""  # Python statements that define variables
    each: str = "{}"  # expression of the cases, {name: {arm: row}}
    by_device: bool = False  # True if each device has separate cases
    unless: Sequence[str] = ()  # expressions for the reason why a case is undecided, or ""
    effect: str = ""  # expression of the estimate
    measure: str = ""  # description of the estimate, with its unit
    held: str = ""  # condition on `low`, `middle` and `high` for "holds"
    failed: str = ""  # condition for "does not hold"
    held_unless: Sequence[str] = ()  # expressions for the reason why "holds" is rejected
    failed_unless: Sequence[str] = ()  # expressions for the reason why "does not hold" is rejected
    of: int = 0  # number of cases in the paper, if only some of them are measured
    some: bool = False  # True if the claim is that at least one case holds
    missing: str = ""  # description of the missing rows
    here: bool = True  # False if this project cannot measure the missing rows


class Case(NamedTuple):
    """A case of a claim, with its outcome."""

    name: str
    word: str  # "holds", "does not hold" or "undecided"
    why: str  # reason why the case is undecided, as "reason: details", or ""
    interval: Interval | None
    rows: list[Row]
    reach: frozenset[str] = frozenset()  # outcomes that an interval of this width could have

    @property
    def reason(self) -> str:
        """The reason why the case is undecided, without its details."""
        return self.why.partition(":")[0]


class Verdict(NamedTuple):
    """The outcome of a claim."""

    claim: Claim
    word: str
    cases: list[Case]

    @property
    def rows(self) -> list[Row]:
        """The distinct rows on which the verdict is based."""
        return list({id(row): row for case in self.cases for row in case.rows}.values())

    def count(self, word: str) -> int:
        """Return the number of cases with this outcome."""
        return sum(case.word == word for case in self.cases)

    @property
    def reach(self) -> frozenset[str]:
        """The outcomes that some case could have if its estimate were different."""
        return frozenset(word for case in self.cases for word in case.reach)

    def reasons(self) -> Counter[str]:
        """Count the reasons why cases are undecided."""
        return Counter(case.reason for case in self.cases if case.why)


class ClaimError(ValueError):
    """Exception for a claim that is incomplete or contradicts itself."""


@functools.cache
def papers() -> dict[str, dict[str, Any]]:
    """Return the papers, keyed by name, with their sections and numbers of figures."""
    return tomllib.loads((FOLDER / "papers.toml").read_text("utf-8"))


@functools.cache
def claims() -> list[Claim]:
    """Return the claims of all papers."""
    result = []
    for paper in papers():
        entries = tomllib.loads((FOLDER / f"{paper}.toml").read_text("utf-8"))
        date = entries.pop("written")
        result += [
            Claim(**{"id": k, "paper": paper, "written": date} | x) for k, x in entries.items()
        ]
    return result


def judge(claim: Claim, tables: Mapping[str, Rows]) -> Verdict:
    """Compute the verdict on a claim. Raises `ClaimError` if the claim is invalid."""
    arms: dict[str, tuple[dict[str, Any], Mapping[str, Any]]] = {}
    for device, prefix in DEVICES.items():
        scope = _scope(claim, tables, prefix)
        for name, own in eval(claim.each, scope).items():
            arms.setdefault(f"{device}, {name}" if claim.by_device else name, (scope, own))
    if not arms:
        _check_absence(claim)
        return Verdict(claim, OPEN if claim.here else UNTESTABLE, [])
    alpha = ERROR / len(arms)
    cases = [
        _case(claim, name, own, {**scope, **own}, alpha) for name, (scope, own) in arms.items()
    ]
    return Verdict(claim, _combine(claim, cases), cases)


def _scope(claim: Claim, tables: Mapping[str, Rows], prefix: str) -> dict[str, Any]:
    """Return the variables of a claim's expressions, with the rows of one device.

    Each row has an additional field `table`, the name of its file.
    """
    rows = {}
    for name in claim.tables:
        if name not in tables:
            raise ClaimError(
                f"claim `{claim.id}`: `tables` must name published results; got {name!r}."
            )
        file = prefix + name
        rows[name] = Rows({**row, "table": file} for row in tables.get(file, ()))
    scope = {**vars(evidence), **rows}
    exec(claim.let, scope)
    return scope


def _check_absence(claim: Claim) -> None:
    """Raise `ClaimError` if a claim without rows does not describe the missing rows."""
    if not claim.missing:
        raise ClaimError(
            f"claim `{claim.id}` must have rows or `missing`; `each` returns no cases."
        )


def _case(
    claim: Claim, name: str, arms: Mapping[str, Any], scope: dict[str, Any], alpha: float
) -> Case:
    """Decide one case of a claim."""
    rows = [row for row in arms.values() if isinstance(row, dict)]
    estimate: Estimate = eval(claim.effect, scope)
    few = estimate.few(alpha)
    reasons = (eval(code, scope) for code in claim.unless)
    why = estimate.missing() or next(filter(None, reasons), "") or few
    possible = frozenset() if few else reach(claim, scope, estimate.others(alpha))
    if why:
        return Case(name, OPEN, why, None, rows, possible)
    interval = estimate.interval(alpha)
    variables = scope | interval._asdict()
    holds, fails = (bool(eval(code, variables)) for code in (claim.held, claim.failed))
    if holds and fails:
        raise ClaimError(f"claim `{claim.id}`: `held` and `failed` are both true of {name!r}.")
    if not holds and not fails:
        why = "the interval is compatible with both verdicts"
        return Case(name, OPEN, why, interval, rows, possible)
    word, doubts = (HOLDS, claim.held_unless) if holds else (FAILS, claim.failed_unless)
    why = next(filter(None, (eval(code, variables) for code in doubts)), "")
    return Case(name, OPEN if why else word, why, interval, rows, possible)


def reach(claim: Claim, scope: Mapping[str, Any], intervals: Iterable[Interval]) -> frozenset[str]:
    """Return the outcomes that a claim's conditions give for any of the intervals."""
    rules = {HOLDS: compile(claim.held, "held", "eval")}
    rules[FAILS] = compile(claim.failed, "failed", "eval")
    variables, words = dict(scope), set()
    for interval in intervals:
        variables |= interval._asdict()
        words |= {word for word in rules.keys() - words if eval(rules[word], variables)}
        if len(words) == len(rules):
            break
    return frozenset(words)


def _combine(claim: Claim, cases: list[Case]) -> str:
    """Combine the outcomes of the cases to a verdict."""
    counts = Counter(case.word for case in cases)
    if claim.some and (counts[HOLDS] or counts[FAILS] == len(cases)):
        return HOLDS if counts[HOLDS] else FAILS
    if counts[FAILS] > counts[HOLDS] and not claim.some:
        return FAILS
    if counts[HOLDS]:
        return HOLDS if counts[HOLDS] == len(cases) >= claim.of else PART
    return OPEN
