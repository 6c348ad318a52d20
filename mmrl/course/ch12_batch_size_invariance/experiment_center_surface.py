"""PPG-EWMA at the smallest batch size, for many centers of mass and weights of the KL penalty.

Reproduces Figure 18 of Hilton et al. (2022), which has two seeds: 256 environments divided by 256,
with all adjustments. As in the paper, the default setting is in a corner of the surface. Centers of
mass are smaller and weights are larger by factors of 2. The learning rate and the scale of the
returns are those of the cell "scale" in `batch_sizes`, which is measured again because rows of one
experiment cannot depend on another.
"""

import dataclasses

import numpy as np

from mmrl.course.ch12_batch_size_invariance import experiment_batch_sizes as batch_sizes
from mmrl.course.ch12_batch_size_invariance import experiment_invariance as invariance
from mmrl.course.ch12_batch_size_invariance.experiment_batch_sizes import Scale
from mmrl.course.experiments.fleet import env_steps
from mmrl.course.experiments.grid import Grid, Row, one_by_one, round_list, settings
from mmrl.course.invariance import rescale

SEEDS = (20, 21, 22, 23, 24)
SHRINK = (16, 8, 4, 2, 1)  # the center of mass is divided by these factors
GROW = (1, 2, 4, 8, 16)  # the weight is multiplied by these factors
FACTOR = 256  # c


@dataclasses.dataclass(frozen=True)
class Surface:
    """A task on which PPG-EWMA is trained with every center of mass and every weight."""

    task: str

    @property
    def name(self) -> str:
        """Name in the results."""
        return f"{self.task}, ppg, c = {FACTOR}, center of mass and weight"


def measure(cell: Surface, quick: bool, _: Row | None) -> Row:
    """Train agents with every center of mass and every weight, and return the row."""
    scale = batch_sizes.measure_scale(Scale(cell.task, "ppg"), quick)
    rate, seeds = scale["learning_rate"], SEEDS[:1] if quick else SEEDS
    config = batch_sizes.base(cell.task, "ppg", rate, quick)
    config = rescale(config, 16 if quick else FACTOR)
    weights = [config.kl_weight * x for x in GROW]
    centers = [config.prox_center / x for x in SHRINK]
    curves, seconds = [], []
    for weight in weights:
        agents = [
            (dataclasses.replace(config, kl_weight=weight, prox_center=center), seed)
            for center in centers
            for seed in seeds
        ]
        results = invariance.train(batch_sizes.TASKS[cell.task].env, "ppg", agents)
        curves.append(batch_sizes.finite_returns(results[0]))
        seconds.append(round(results[2] / len(agents), 2))
    best = scale["reached"] if scale["maximum"] is None else scale["maximum"]
    scores = (np.stack(curves) - scale["random"]) / (best - scale["random"])
    scores = scores.reshape(len(weights), len(centers), len(seeds), -1)
    areas = scores.mean(axis=-1)
    finals = scores[..., -max(scores.shape[-1] // 4, 1) :].mean(axis=-1)
    return {
        "cell": cell.name,
        "task": cell.task,
        "memory": config.memory,
        "weights": weights,
        "centers": centers,
        "learning_rate": rate,
        "tuning": scale["tuning"],
        "tuning_seeds": scale["tuning_seeds"],
        "seeds": list(seeds),
        "worst": scale["random"],
        "best": best,
        "env_steps": env_steps(config),
        "means": round_list(areas.mean(axis=-1)),  # mean areas, [weight, center]
        "areas": round_list(areas),  # [weight, center, seed]
        "finals": round_list(finals),
        "cpu_seconds": seconds,  # per agent, [weight]
        "settings": settings(config),
        "quick": quick,
    }


def summarize(row: Row) -> str:
    """Summarize a row by the range of its mean areas."""
    return f"mean areas from {np.min(row['means']):.2f} to {np.max(row['means']):.2f}"


def agents(row: Row) -> int:
    """Return the number of agents of a row with one value of the weight."""
    return len(row["centers"]) * len(row["seeds"]) * len(row["weights"])


GRID = Grid(
    "center_surface",
    [Surface("Breakout"), Surface("SpaceInvaders")],
    one_by_one(measure),
    summarize,
    agents=agents,
    small=[Surface("Breakout")],
    limit=14_400.0,
    about="PPG-EWMA with the smallest batches: center of mass against the KL penalty's weight.",
    decides="whether the center of mass and the penalty's weight compensate for each other",
    turn=30,
)
