"""Batch-size invariance: hyperparameters that depend on the batch size.

Hilton et al. 2022, Section 4. With c times fewer parallel environments, both the optimization batch
(the samples of a gradient step) and the iteration batch are divided by c. The adjustments preserve
the following quantities per environment step: the size of a gradient step, the age of the proximal
policy, the sample that normalizes advantages, and, in PPG, the phase batch.
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
    beta2: bool = False,
) -> AnyConfig:
    """Divide the batch sizes of a config by c, and adjust its hyperparameters.

    Each adjustment can be switched off.

        adam        divide the learning rate by √c, or by c if the optimizer is not Adam
        prox        multiply the center of mass of the proximal policy's average by c
        advantages  multiply the span of the advantages' moving moments by c
        phases      multiply the iterations per policy phase N_π by c (PPG)
        betas       raise β₁ and β₂ of Adam to the power 1/c, which the paper mostly omits
        beta2       raise only β₂ to the power 1/c, as in Figure 6 of the paper

    A block has c times as many iterations, so that its number of steps does not change. The
    minibatch size and the learning rate of the auxiliary phase do not change. A fraction c < 1
    enlarges the batches. The adjustments assume one policy epoch, because with more epochs the
    agent would reuse the same few steps many times in a row.

    Raises `ValueError` if c is not positive, or if the number of environments, iterations or
    auxiliary minibatches would not be an integer.
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
        new["beta1"] = config.beta1 ** (1 / factor)
    if betas or beta2:
        new["beta2"] = config.beta2 ** (1 / factor)
    if "policy_iterations" in {field.name for field in dataclasses.fields(config)}:
        name = "policy_iterations" if phases else "auxiliary_minibatches"
        size = Fraction(getattr(config, name))
        new[name] = _whole(name, size * c if phases else size / c)
    return dataclasses.replace(config, **new)


def _stretch(decay: float, factor: float) -> float:
    """Return the decay d for which the span (1 + d) / (1 - d) is multiplied by `factor`."""
    if decay == 1:
        return decay
    span = factor * (1 + decay) / (1 - decay)
    return max((span - 1) / (span + 1), 0.0)


def _whole(name: str, value: Fraction) -> int:
    if value.denominator != 1:
        below, above = math.floor(value), math.ceil(value)
        raise ValueError(
            f"`c` must result in an integer `{name}`, got {value}, between {below} and {above}."
        )
    return int(value)
