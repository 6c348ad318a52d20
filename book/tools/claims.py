"""Write the verdicts on claims of the five papers to book/claims.md and README.md.

    python book/tools/claims.py

The verdicts are computed from book/claims and book/results. A test checks that both files are up to
date.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import verdicts
from estimates import NOISE
from evidence import REASONS, SMALL
from ledgers import BOOK, Row, published_tables
from verdicts import FAILS, HOLDS, OPEN, WORDS, Case, Claim, Verdict

PAGE = BOOK / "claims.md"
README = BOOK.parent / "README.md"
BEGIN = "## Summary\n"  # the page above this line is written by hand


def lines(outcomes: Iterable[Verdict]) -> Iterator[str]:
    """Yield a table that counts the verdicts of each paper."""
    counts = {paper: Counter[str]() for paper in verdicts.papers()}
    for verdict in outcomes:
        counts[verdict.claim.paper][verdict.word] += 1
    yield f"| paper | claims | {' | '.join(WORDS)} |"
    yield "|---" * (len(WORDS) + 2) + "|"
    for paper, count in counts.items():
        cells = [verdicts.papers()[paper]["name"], count.total(), *(count[x] for x in WORDS)]
        yield f"| {' | '.join(map(str, cells))} |"


def page(text: str, outcomes: list[Verdict]) -> str:
    """Return the page with everything below `BEGIN` replaced."""
    parts = [text.partition(BEGIN)[0] + BEGIN, "\n".join(lines(outcomes)), _dates(outcomes)]
    for paper, about in verdicts.papers().items():
        own = [verdict for verdict in outcomes if verdict.claim.paper == paper]
        parts.append(_paper(about, own))
        parts += map(_claim, own)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _dates(outcomes: list[Verdict]) -> str:
    """State how many claims have rows that are newer than their decision rules."""
    claims = [verdict for verdict in outcomes if verdict.rows]
    newer = sum(_newer(verdict) > 0 for verdict in claims)
    if not newer:
        return (
            "Every decision rule on this page was written after its rows were measured, so no "
            "verdict is a prediction."
        )
    return f"Rows were measured after the decision rule for {newer} of {len(claims)} claims."


def _newer(verdict: Verdict) -> int:
    """Count the rows that were measured after the decision rule was written."""
    return sum(row["date"][:10] > str(verdict.claim.written) for row in verdict.rows)


def _paper(about: dict[str, Any], own: list[Verdict]) -> str:
    links = (f"[{x.partition('_')[0]}](notebooks/{x}.ipynb)" for x in about["chapters"])
    rows = [
        f"| {verdict.claim.title} | {place(verdict.claim)} | {verdict.word} |" for verdict in own
    ]
    table = "\n".join(["| claim | where | verdict |", "|---|---|---|", *rows])
    return (
        f"## {about['name']}\n\nSource: {about['source']} {{cite}}`{about['key']}`. See chapters "
        f"{', '.join(links)}.\n\n{about['setting']}\n\n{table}"
    )


def place(claim: Claim) -> str:
    """Format the section and the figures of a claim."""
    number = len(claim.section) <= 3
    kind = "Appendix" if claim.section.isalpha() else "Section"
    first = f"{kind} {claim.section}" if number else f"“{claim.section}”"
    figures = " and ".join(claim.figures)
    return first + f", Figure{'s' * (len(claim.figures) > 1)} {figures}" * bool(figures)


def _claim(verdict: Verdict) -> str:
    """Return the section of the page about one claim."""
    claim = verdict.claim
    title = verdicts.papers()[claim.paper]["sections"][claim.section]
    source = f"{place(claim)}: *{title}*" if title != claim.section else place(claim)
    items = [f"- Estimate: {claim.measure}."]
    items += [*_rule(verdict)] if claim.tables else []
    items += [f"- Data: {_rows(verdict)}" if verdict.rows else "- Data: none."]
    items += [f"- Differences from the paper: {claim.distance}"] * bool(claim.distance)
    items += [f"- Measurements still needed: {claim.missing}"]
    words = [
        f"### {claim.title}",
        f"**{verdict.word.capitalize()}.** {_counts(verdict)}",
        f"> “{claim.quote}”\n>\n> {source}",
        "\n".join(items),
    ]
    return "\n\n".join(words + [_cases(verdict.cases)] * bool(verdict.cases))


def _rule(verdict: Verdict) -> Iterator[str]:
    """Yield list items that describe the interval of a claim's estimate and the decision rule."""
    claim = verdict.claim
    yield f"- Interval: {_interval(verdict)}."
    condition, counterpart = (x.replace("SMALL", f"{SMALL:g}") for x in (claim.held, claim.failed))
    ends = "" if "exact(" in claim.effect else ", for an interval from `low` to `high`"
    yield f"- Decision{ends}: a case holds if `{condition}`, and does not hold if `{counterpart}`."
    if claim.some:
        yield "- One case that holds is enough for this claim."
    if limit := _limit(verdict):
        yield f"- Limit of the data: {limit}, whatever its estimate."
    yield from (f"- {sentence}" for sentence in _exceptions(claim))


def _limit(verdict: Verdict) -> str:
    """Describe the outcomes that no case can have, given its number of seeds and its noise."""
    if not verdict.cases or {HOLDS, FAILS} <= verdict.reach:
        return ""
    if not verdict.reach:
        return "no case has enough seeds to be decided"
    word = "hold" if HOLDS not in verdict.reach else "count against the claim"
    return f"the intervals are so wide that no case can {word}"


def _interval(verdict: Verdict) -> str:
    """Describe the interval of an estimate."""
    if "exact(" in verdict.claim.effect:
        return "none, because the estimate is a count without noise"
    if "time_ratio(" in verdict.claim.effect:
        return (
            f"a factor of {NOISE} in either direction for each time that enters the estimate. This "
            "is an allowance that we chose, not a confidence interval"
        )
    count = max(1, len(verdict.cases))
    level = f"{100 * (1 - verdicts.ERROR / count):.2f}".rstrip("0").rstrip(".")
    return f"a {level} % confidence interval over seeds" + " for each case" * (count > 1)


def _exceptions(claim: Claim) -> Iterator[str]:
    """Yield sentences that state when a case is undecided despite its interval."""
    kinds = {
        "A case": claim.unless,
        "A case that would otherwise count as 'holds'": claim.held_unless,
    }
    kinds |= {"A case that would otherwise count as 'does not hold'": claim.failed_unless}
    for subject, codes in kinds.items():
        if reasons := [reason for code in codes for reason in _reasons(code)]:
            yield f"{subject} is undecided if {', or if '.join(reasons)}."


def _reasons(code: str) -> Iterator[str]:
    """Yield a clause for each reason that the expression `code` can return."""
    tree = ast.parse(code, mode="eval").body
    for part in [tree.body, tree.orelse] if isinstance(tree, ast.IfExp) else [tree]:
        if isinstance(part, ast.Call):
            yield f"{REASONS[ast.unparse(part.func)]} (`{ast.get_source_segment(code, part)}`)"
        elif isinstance(part, ast.Constant) and part.value:
            yield str(part.value)


def _counts(verdict: Verdict) -> str:
    """Describe the number of cases with each outcome, and the reasons why cases are undecided."""
    if not verdict.cases:
        return "There are no data."
    reasons = verdict.reasons()
    counts = [(x, n) for x in (HOLDS, FAILS, OPEN) if (n := verdict.count(x))]
    cases = len(verdict.cases)
    if len(counts) == len(reasons) == 1:
        where = {1: "There is only one case, and in it", 2: "In both cases"}
        text = f"{where.get(cases, f'In all {cases} cases')}, {next(iter(reasons))}"
    elif len(counts) == 1:
        subject = {1: "The only case", 2: "Both cases"}.get(cases, f"All {cases} cases")
        text = f"{subject} {_outcome(counts[0][0], cases)}"
    else:
        text = f"Of {cases} cases, {_join([f'{n} {_outcome(word, n)}' for word, n in counts])}"
    if len(reasons) == 1 < len(counts):
        text += f", because {next(iter(reasons))}"
    elif len(reasons) > 1:
        parts = [f"in {n} case{'s' * (n > 1)}, {reason}" for reason, n in reasons.most_common()]
        text += f": {'; '.join(parts)}"
    return (
        text + "." + f" The paper's claim covers {verdict.claim.of} cases." * (verdict.claim.of > 0)
    )


def _outcome(word: str, count: int) -> str:
    """Return the verb phrase that reports an outcome of `count` cases."""
    one, many = {
        HOLDS: ("holds", "hold"),
        FAILS: ("does not hold", "do not hold"),
        OPEN: ("is undecided", "are undecided"),
    }[word]
    return one if count == 1 else many


def _join(parts: list[str]) -> str:
    """Join the parts of a list with commas and "and"."""
    *rest, last = parts
    return ", ".join(rest) + ("," if len(rest) > 1 else "") + " and " * bool(rest) + last


def _rows(verdict: Verdict) -> str:
    """Describe the files, seeds, steps, devices and dates of the rows behind a verdict.

    Timings and counts have a single seed, which is not mentioned.
    """
    rows = verdict.rows
    files = dict.fromkeys(row["table"] for row in rows)
    seeds = {len(x) for row in rows if isinstance(x := row.get("seeds"), list)}
    steps = {x for row in rows if (x := trained_steps(row))}
    dates = sorted(row["date"][:10] for row in rows)
    newer = _newer(verdict)
    tables = " and ".join(f"`{name}`" for name in files)
    parts = [f"{len(rows)} row{'s' * (len(rows) > 1)} of the results {tables}"]
    parts += [f"{_span(seeds)} seeds"] if seeds - {1} else []
    parts += [f"{_span(steps)} steps"] if steps else []
    devices = dict.fromkeys(row["device"].replace("cpu, ", "", 1) for row in rows)
    parts += [" and ".join(name.replace(", ", " with ") for name in devices)]
    parts += [" to ".join(dict.fromkeys((dates[0], dates[-1])))]
    count = "no row was" if not newer else "one row was" if newer == 1 else f"{newer} rows were"
    rule = f"The decision rule was written on {verdict.claim.written}"
    return f"{'; '.join(parts)}. {rule}; {count} measured later."


def trained_steps(row: Row) -> int:
    """Return the number of environment steps of a row, or 0 if it does not contain them."""
    if steps := row.get("env_steps"):
        return steps[-1] if isinstance(steps, list) else steps
    sizes = ("environments", "rollout", "block", "blocks")
    settings = row.get("settings", {})
    return math.prod(settings[name] for name in sizes) if settings.keys() >= set(sizes) else 0


def _span(values: set[int]) -> str:
    ends = dict.fromkeys((min(values), max(values)))
    return " to ".join(f"{x:,}".replace(",", " ") for x in ends)


def _cases(cases: list[Case]) -> str:
    head = "| case | outcome | estimate | interval | reason |\n|---|---|---|---|---|"
    rows = [f"| {' | '.join(_cells(case))} |" for case in cases]
    summary = f"{len(cases)} case{'s' * (len(cases) > 1)}"
    inner = "\n".join([head, *rows])
    return f"<details>\n<summary>{summary}</summary>\n\n{inner}\n\n</details>"


def _cells(case: Case) -> list[str]:
    interval = case.interval
    middle = number(interval.middle) if interval else ""
    ends = f"{number(interval.low)} to {number(interval.high)}" if interval else ""
    return [case.name, case.word, middle, ends, case.why]


def number(value: float) -> str:
    """Format a number with at least three digits, no exponent, and a typographic minus sign."""
    short = float(f"{value:.3g}") + 0.0  # -0.0 becomes 0.0
    text = f"{value:.0f}" if abs(short) >= 1000 else np.format_float_positional(short, trim="-")
    return text.replace("-", "−")


def with_lines(readme: str, table: str) -> str:
    """Return the README with its table of verdicts replaced. Raise `ValueError` without one."""
    pattern = r"^\| paper \| claims \|.*\n(?:\|.*\n)+"  # the header and all its rows
    text, count = re.subn(pattern, lambda _: table + "\n", readme, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"`readme` must have one table with the column 'claims'; got {count}.")
    return text


def main() -> None:
    """Write both files."""
    rows = published_tables()
    outcomes = [verdicts.judge(claim, rows) for claim in verdicts.claims()]
    PAGE.write_text(page(PAGE.read_text("utf-8"), outcomes), "utf-8")
    table = "\n".join(lines(outcomes))
    README.write_text(with_lines(README.read_text("utf-8"), table), "utf-8")
    print(table)


if __name__ == "__main__":
    main()
