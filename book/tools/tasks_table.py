"""Sphinx directive that shows the POPGym tasks with drawings, sizes and scores."""

import functools
import html
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from docutils import nodes
from pages import origin, read, scrolling
from popgym_table import LEVELS, number
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mmrl.checks.tracing import random_action
from mmrl.course.drawings import episode_svg
from mmrl.course.experiments.experiment_popgym import BOUNDS, MEMORIES
from mmrl.envs import popgym
from mmrl.rollout import collect, start

CHANCE, SCORES = "chance.jsonl", "popgym.jsonl"
HEADS = ("task", "observation", "state", "actions", "steps", "chance", "best measured")
HEADS += tuple(f"{bound}, 3M" for bound in BOUNDS)
MISSING = '<span class="visually-hidden">not measured</span>'
FRAME = 12  # step of the episode that is drawn


class Tasks(SphinxDirective):
    """Directive that shows a table of all tasks and levels, and a drawing of each task."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        chance = {row["cell"]: row for row in read(CHANCE)}
        content = table(chance, read(SCORES))
        parts = [content, origin(CHANCE, list(chance.values()))] if chance else [content]
        return [
            nodes.raw("", part, format="html") for part in [*parts, *map(figure, popgym.LEVELS)]
        ]


def table(chance: Mapping[str, Any], scores: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with a row for each level of each task."""
    by_cell = {row["cell"]: row for row in scores}
    cells = [_level(task, x, chance, by_cell) for task in popgym.LEVELS for x in LEVELS]
    return scrolling("Tasks of POPGym", HEADS, cells, name=0)


def _level(
    task: str, level: str, chance: Mapping[str, Any], scores: Mapping[str, Any]
) -> list[str]:
    env = popgym.SPECS[f"popgym-{task}{level}-v0"]()
    actions = f"{env.actions}" if hasattr(env.action_space(), "n") else "1 torque"
    name = re.sub("(?<=[a-z])(?=[A-Z])", "<wbr>", f"{task}{level}")
    sizes = [f"{env.obs_size}", f"{env.twin().state_size}", actions, f"{env.num_steps}"]
    random = chance.get(f"{task}{level}")
    chances = f"{number(random['chance'])} ± {random['error']:.2f}" if random else MISSING
    rows = [scores.get(f"{task}{level}, {m}, 3M") for m in (*MEMORIES, *BOUNDS)]
    ours = [x for x in rows[: len(MEMORIES)] if x]
    best = max(ours, key=lambda row: row["mmer"], default=None)
    words = f"{number(best['mmer'])} ({best['memory'].upper()})" if best else MISSING
    bounds = [number(x["mmer"]) if x else MISSING for x in rows[len(MEMORIES) :]]
    return [name, *sizes, chances, words, *bounds]


def figure(task: str) -> str:
    """Return a figure of a task, with a drawing and the first line of its docstring."""
    build = popgym.LEVELS[task].build
    words = html.escape((build.__doc__ or "").split("\n")[0])
    return f"<figure>{picture(task)}<figcaption>{task}. {words}</figcaption></figure>"


@functools.cache
def picture(task: str) -> str:
    """Draw a step of an episode with random actions on the Easy level of a task."""
    env_id = f"popgym-{task}Easy-v0"
    env = popgym.SPECS[env_id]()

    def policy(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
        return state, random_action(env.action_space(), key)

    @jax.jit
    def play(key: Any) -> Any:
        carry = start(env, env.default_params, None, key)
        return collect(policy, env, env.default_params, carry, key, FRAME + 1)[1]

    steps = jax.device_get(play(jax.random.key(0)))
    last = int(steps.last.argmax()) if steps.last.any() else FRAME
    return episode_svg(env_id, steps, frame=last)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("tasks", Tasks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
