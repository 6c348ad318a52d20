"""Batch-size invariance: settings that change with the batch size.  Hilton et al. 2022, Section 4.

The optimization batch (of a gradient step) and the iteration batch are both divided by c, by using
c times fewer parallel environments. The adjustments then keep everything as it was per environment
step: the weight of a gradient step, the age of the proximal policy, the sample that normalizes
advantages, and, in PPG, the phase batch.
"""

import dataclasses
import math
from fractions import Fraction
from typing import TypeVar

from mmrl.agents.ppo import ppo

AnyConfig = TypeVar("AnyConfig", bound=ppo.Config)


def rescale(
    config: AnyConfig,
    c: int | Fraction,
    *,
    adam: bool = True,
    prox: bool = True,
    advantages: bool = True,
    phases: bool = True,
    betas: bool = False,
) -> AnyConfig:
    """Return the config with batches c times smaller; each adjustment can be switched off.

        adam        learning rate / √c, and / c for plain descent
        prox        center of mass of the proximal policy's average · c, in gradient steps
        advantages  span of the advantages' moments · c, in iterations
        phases      iterations per policy phase N_π · c: the phase batch stays
        betas       β₁ and β₂ of Adam to the power 1/c, which the paper mostly leaves out

    A block has c times the iterations, so that it plays the same number of steps. The auxiliary
    phase keeps the size of its minibatches and its learning rate. Fractions enlarge batches. The
    adjustments assume one policy epoch: with more epochs, the same few steps would be learned many
    times in a row.

    Raises `ValueError` if c is not positive, or if environments, iterations or auxiliary
    minibatches would not be whole numbers.
    """
    if c <= 0:
        raise ValueError(f"`c` must be positive; got {c}.")
    new: dict[str, int | float] = {
        "environments": _whole("environments", Fraction(config.environments) / c),
        "block": _whole("block", Fraction(config.block) * c),
    }
    factor = float(c)
    if adam:
        power = 0.5 if config.optimizer == "adam" else 1.0
        new["learning_rate"] = config.learning_rate / factor**power
    if prox:
        new["prox_center"] = config.prox_center * factor
    if advantages:
        new["advantage_decay"] = _stretch(config.advantage_decay, factor)
    if betas:
        new |= {"beta1": config.beta1 ** (1 / factor), "beta2": config.beta2 ** (1 / factor)}
    if "policy_iterations" in {field.name for field in dataclasses.fields(config)}:
        name = "policy_iterations" if phases else "auxiliary_minibatches"
        size = Fraction(getattr(config, name))
        new[name] = _whole(name, size * c if phases else size / c)
    return dataclasses.replace(config, **new)


def _stretch(decay: float, factor: float) -> float:
    """Return the decay of an average whose span (1 + d) / (1 - d) is `factor` times as long."""
    if decay == 1:
        return decay
    span = factor * (1 + decay) / (1 - decay)
    return max((span - 1) / (span + 1), 0.0)


def _whole(name: str, value: Fraction) -> int:
    if value.denominator != 1:
        below, above = math.floor(value), math.ceil(value)
        raise ValueError(
            f"`c` must leave `{name}` whole; it would be {value}, between {below} and {above}."
        )
    return int(value)
