"""What the inspector of recurrences must show: the same loops in float64, without any JAX."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mmrl import schedules
from mmrl.course.widgets import recurrences
from mmrl.pdg.passes import recognize

FUNCTIONS: dict[str, Any] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "where": np.where,
    "maximum": np.maximum,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def states(name: str, length: int) -> list[float]:
    """The states of a case, by the code that it shows."""
    case, example = recurrences.CASES[name], recurrences.examples()[name]
    inputs = recurrences.inputs(case, length)
    arguments = ", ".join(["x", *inputs])
    body = example["code"].replace("\n", "\n    ")
    space = dict(FUNCTIONS)
    exec(f"def step({arguments}):\n    {body}", space)
    x, result = case.x0, {}
    for t in reversed(range(length)) if case.reverse else range(length):
        x = space["step"](x, *(u[t].astype(np.float64) for u in inputs.values()))
        result[t] = np.real(x[0] if isinstance(x, tuple) else x)
    return [float(result[t]) for t in range(length)]


def element(name: str, t: int) -> tuple[list[Any], list[Any]]:
    """(a, b) of a step: as the compiler computes them, and as the words say."""
    case = recurrences.CASES[name]
    inputs = {key: u[t] for key, u in recurrences.inputs(case, 16).items()}
    start = jax.tree.map(lambda x: np.asarray(x, "c8" if isinstance(x, complex) else "f4"), case.x0)
    result = recognize(case.step, start, *inputs.values()).element(*inputs.values())
    lines = [np.array(eval(text, dict(FUNCTIONS) | inputs)) for text in (case.a, case.b)]
    if isinstance(case.x0, tuple):  # a row vector times a matrix: transposed
        lines = [lines[0].T, lines[1][None]]
    return jax.tree.leaves(result), lines


def tree_views() -> Iterator[dict[str, Any]]:
    """The trees of every length, and what is to be seen of each example."""
    titles = {name: case.title for name, case in recurrences.CASES.items()}
    examples = {name: recurrences.examples()[name] for name in sorted(titles)}  # as in a saved file
    for name, example in recurrences.examples().items():
        for length in recurrences.LENGTHS:
            rows = schedules.schedule(length, "hillis_steele")
            work, depth = schedules.count(length, "hillis_steele")
            levels = [np.stack(pairs, 1).tolist() for pairs in rows]
            tree = {"T": length, "levels": levels, "work": work, "depth": depth}
            part = slice(-length, None) if example["reverse"] else slice(length)
            gap = np.abs(np.float32(example["loop"]) - np.float32(example.get("tree", 0.0)))[
                part
            ].max()
            inputs = recurrences.inputs(recurrences.CASES[name], length)
            xs = [u.astype(float) for u in inputs.values()]
            order = {"mixed": examples, "order": list(titles.items())}
            yield tree | order | {"shown": example, "gap": gap.astype(float), "inputs": xs}


VECTORS = {"inspected": tree_views}
