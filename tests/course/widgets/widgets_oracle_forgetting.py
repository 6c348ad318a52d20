"""What the explorer of forgetting must compute: descent in matrices, optima by least squares."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

RATE = 0.1


def valleys() -> Iterator[dict[str, Any]]:
    """θ after every step, the best θ for all, and what is kept."""
    plain = {"protocol": "sequential", "steps": 7, "cycles": 2, "replay": 0.0, "ewc": 0.0}
    settings = (
        (2, 45.0, 0.0, {}),
        (3, 30.0, 0.7, {}),
        (3, 70.0, 0.4, {"replay": 0.5}),
        (2, 20.0, 0.0, {"replay": 1.0, "cycles": 1}),
        (3, 25.0, 0.0, {"ewc": 3.0}),
        (3, 25.0, 1.2, {"ewc": 10.0, "diagonal": False, "replay": 0.25}),
        (3, 60.0, 1.0, {"protocol": "simultaneous", "ewc": 2.0}),
        (2, 0.0, 1.0, {}),
    )
    for count, angle, conflict, change in settings:
        how = {**plain, "diagonal": True, **change}
        normals = np.array([normal(k * math.radians(angle)) for k in range(count)])
        targets = np.zeros(count)
        targets[-1] = conflict
        start = 1.2 * normal(0) + 2.4 * normal(math.pi / 2)
        thetas, order = descend(normals, targets, start, how)
        joint = start + np.linalg.lstsq(normals, targets - normals @ start, rcond=1e-9)[0]
        progress = 1 - ((thetas @ normals.T - targets) / (normals @ start - targets)) ** 2
        report = [tell(progress[:, k], order, k) for k in range(count)]
        case = dict(count=count, angle=angle, conflict=conflict, settings=how, start=start)
        yield case | dict(thetas=thetas, joint=joint, told=report)


def normal(angle: float) -> np.ndarray:
    """The side of a valley, which for the first one points 105 degrees up."""
    up = math.radians(105)
    return np.array([math.cos(up - angle), math.sin(up - angle)])


def descend(normals: Any, targets: Any, start: Any, how: dict[str, Any]) -> tuple[Any, list[int]]:
    """θ, from before all steps, and the task of each step, -1 where it is all of them."""
    count, n = len(normals), how["steps"]
    together = how["protocol"] == "simultaneous"
    order = np.repeat(np.tile(np.arange(count), how["cycles"]), n)
    theta, anchor, fisher, thetas = start, start, np.zeros((2, 2)), [start]
    for t, task in enumerate(order):
        sample = np.bincount(order[: t + 1], minlength=count) / (t + 1)
        shares = (1 - how["replay"]) * np.eye(count)[task] + how["replay"] * sample
        shares = np.full(count, 1 / count) if together else shares
        gradient = normals.T @ (shares * (normals @ theta - targets))
        theta = theta - RATE * gradient
        if not together:  # θ' such that θ' = θ - η λ F (θ' - θ*)
            pull = RATE * how["ewc"] * fisher
            theta = anchor + np.linalg.solve(np.eye(2) + pull, theta - anchor)
        thetas.append(theta)
        if (t + 1) % n == 0:
            new = np.outer(normals[task], normals[task])
            fisher = fisher + (np.diag(np.diag(new)) if how["diagonal"] else new)
            anchor = theta
    return np.array(thetas), [-1] * (count * n * how["cycles"]) if together else order.tolist()


def tell(progress: Any, order: list[int], task: int) -> dict[str, float | None]:
    """Now, at the end of its latest stage, and how much of that is kept."""
    steps = [t + 1 for t, current in enumerate(order) if current == task]
    now = float(progress[-1])
    stage = float(progress[steps[-1]]) if steps else None
    return {"now": now, "stage": stage, "kept": now / stage if stage and stage > 1e-9 else None}


VECTORS = {"valleys": valleys}
