"""Where the library's pages and names have gone, so that the links of earlier editions lead on.

A source that is gone becomes a page that leads to its heir. A name that is gone from a page, as
`api/show.html#mmrl.show.batching.by_step`, is looked up by the page itself: see `SCRIPT`.
"""

import json
from pathlib import Path

from mmrl.course import moved as course

# Modules, and names out of modules that were split. A longer name goes before a shorter one.
MOVED = {
    "mmrl.checks": "mmrl.course.exercises",
    "mmrl.checks.laws": "mmrl.monoid.laws",
    "mmrl.checks.products": "mmrl.monoid.products",
    "mmrl.scan.schedule": "mmrl.schedules.schedule",
    "mmrl.scan.count": "mmrl.schedules.count",
    "mmrl.scan.Level": "mmrl.schedules.Level",
    "mmrl.runs.published": "mmrl.course.results.published",
    "mmrl.runs.experiments": "mmrl.course.experiments",
    "mmrl.agents.ppg": "mmrl.agents.ppo.ppg",
    "mmrl.agents.learner": "mmrl.agents.ppo.learner",
    "mmrl.agents.ppo.normalize": "mmrl.agents.normalize",
    "mmrl.agents.diagnostics": "mmrl.agents.ppo.diagnostics",
    "mmrl.agents.invariance": "mmrl.course.invariance",
    "mmrl.agents.ppo.invariance": "mmrl.course.invariance",
    "mmrl.agents.actors": "mmrl.agents.r2d2.actors",
    "mmrl.agents.staleness": "mmrl.course.instruments",
    "mmrl.agents.r2d2.staleness": "mmrl.course.instruments",
    "mmrl.agents.vtrace": "mmrl.agents.clear.vtrace",
    "mmrl.runs.revise": "mmrl.course.results.revise",
    "mmrl.agents.progress": "mmrl.course.continual.progress",
    "mmrl.agents.consolidation": "mmrl.course.continual.ewc",
    "mmrl.agents.continual": "mmrl.course.continual.cycles",
    **{
        f"mmrl.agents.clear.{name}": f"mmrl.course.continual.{name}"
        for name in ("cycles", "ewc", "progress")
    },
    "mmrl.agents.r2d2.staleness.staleness": "mmrl.course.instruments.replay_delta_q",
    "mmrl.agents.r2d2.staleness.Staleness": "mmrl.course.instruments.DeltaQ",
    "mmrl.course.figures.r2d2.staleness": "mmrl.course.figures.r2d2.replayed",
    "mmrl.runs.AGENTS": "mmrl.agents.AGENTS",
    "mmrl.runs.Agent": "mmrl.agents.Agent",
    "mmrl.runs.find": "mmrl.agents.find",
    "mmrl.nets.MLP": "mmrl.nets.mlp",
    **{
        f"mmrl.replay.segments.{name}": f"mmrl.course.ch06_segments_and_tapes.segments.{name}"
        for name in ("mask", "pad", "rows", "split")
    },
    "mmrl.agents.common.repeatable": "mmrl.agents.repeatable",
    "mmrl.agents.common.build": "mmrl.agents.checks.check_net",
    "mmrl.agents.common.action_size": "mmrl.agents.checks.action_size",
    "mmrl.agents.common.actor_critic": "mmrl.agents.policies.actor_critic",
    "mmrl.agents.common.mode": "mmrl.agents.policies.mode",
    **{
        f"mmrl.replay.tape.{name}": f"mmrl.replay.priorities.{name}"
        for name in ("episode_priority", "set_alpha", "set_priority")
    },
    "mmrl.nets.sensitivity": "mmrl.course.instruments.sensitivity",
    "mmrl.show.curves.tuning_note": "mmrl.course.results.tuning_note",
    **{
        f"mmrl.pdg.{old}": f"mmrl.pdg.{new}"
        for new, olds in {
            "expr": ("normal",),
            "graph": ("domain",),
            "sets": ("polyhedra",),
            "language": ("program",),
            "language.autodiff": ("autodiff", "transport"),
            "language.indexing": ("indexing",),
            "language.ops": ("ops",),
            "language.tensor": ("tensor",),
            "passes": ("rewrite",),
            "run": ("compiler", "runtime"),
            "schedule": ("certificate",),
            "schedule.code": ("generate", "syntax"),
            "schedule.frees": ("frees",),
            "verify": ("validate",),
            "verify.naive": ("check", "naive"),
        }.items()
        for old in olds
    },
    "mmrl.show.curves": "mmrl.show",
    "mmrl.show.training": "mmrl.course.widgets.training",
    "mmrl.show.widgets": "mmrl.course.widgets",
    "mmrl.envs.render": "mmrl.course.drawings",
    **{
        f"mmrl.envs.continual.{name}": f"mmrl.course.continual.schedules.{name}"
        for name in ("separate", "simultaneous", "sequential", "probed")
    },
    **{
        f"mmrl.show.{name}": f"mmrl.course.figures.{name}"
        for name in (
            *("batching", "forgetting", "graphs", "invariance", "memory", "policies", "r2d2"),
            "sensitivity",
        )
    },
    **{
        f"mmrl.{page}.{old.rpartition('.')[2]}": f"mmrl.course.{new}"
        for old, new in course.MOVED.items()
        for page in ("show", "course.figures")
        if old.startswith("figures.")
    },
    **{
        f"mmrl.course.{old}": f"mmrl.course.{new}"
        for old, new in course.MOVED.items()
        if "." not in old
    },
}
# Of sources that are gone: the file that holds most of what was there.
SOURCES = {
    "mmrl.monoid": "mmrl.monoid.core",
    "mmrl.agents.ppo": "mmrl.agents.ppo.ppo",
    "mmrl.agents.r2d2": "mmrl.agents.r2d2.r2d2",
    "mmrl.agents.clear": "mmrl.agents.clear.clear",
}
SCRIPT = """<script>
(() => {
  const id = decodeURIComponent(location.hash.slice(1));
  if (!id || document.getElementById(id)) return;
  const moved = @MOVED@;
  const found = moved.find(([old]) => id === old || id.startsWith(old + "."));
  if (found) location.replace(found[1] + id.slice(found[0].length));
})();
</script>
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="1; url=@TO@"></head>
<body><main><h1>Moved</h1><p>This page is now <a href="@TO@">@NAME@</a>.</p></main></body>
</html>
"""


def script() -> str:
    """The script by which a page of the library leads on from a name that is not there any more."""
    rows = [
        (old, f"{new.split('.')[1]}.html#{new}")
        for old, new in sorted(MOVED.items(), key=lambda row: -len(row[0]))
    ]
    return SCRIPT.replace("@MOVED@", json.dumps(rows))


def pages(site: Path) -> dict[str, str]:
    """Pages that an earlier edition had, and where each leads."""
    sources = [path.relative_to(site) for path in (site / "_modules").rglob("*.html")]
    names = {path.with_suffix("").as_posix() for path in sources}
    heirs: dict[str, str] = {}
    for old, new in {**MOVED, **SOURCES}.items():
        old, new = (f"_modules/{name.replace('.', '/')}" for name in (old, new))
        below = {name for name in names if name.startswith(f"{new}/")}
        heirs |= {old + name.removeprefix(new): name for name in {*below, *({new} & names)}}
    return heirs


def lead_on(site: Path) -> None:
    """Write the pages that lead on, and give the library's pages their script."""
    for old, new in pages(site).items():
        path = site / f"{old}.html"
        if path.exists() or not (site / f"{new}.html").exists():
            continue
        to = "../" * old.count("/") + f"{new}.html"
        text = PAGE.replace("@TO@", to).replace("@NAME@", new)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for rung in (site / "api").glob("*.html"):
        text = rung.read_text("utf-8")
        if "const moved" not in text:
            rung.write_text(text.replace("</body>", f"{script()}</body>"), "utf-8")
