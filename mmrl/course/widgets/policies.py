"""Explorers of the behavior, the proximal and the current policy, after Hilton et al. 2022."""

from traitlets import Bool, Enum, Float, Int

from mmrl.course.widgets.base import Explorer, source, style


class RubberBandExplorer(Explorer):
    """Explorer for θ and θ_prox of a Gaussian policy, with the full batch size and with 1/c of it.

    The policy N(θ, σ²) samples actions in the plane and maximizes a reward. It learns from 4096
    actions, 16 at a time, whose random numbers are equal in every run. An iteration has eight
    batches, and data are `staleness` iterations old.

    `proximal` selects the proximal policy: the behavior policy, the policy at the start of the
    iteration, a moving average with center of mass `center` (in steps), or none. `band` selects how
    θ is kept close to it, by the penalty β KL[π_prox, π] with `weight` β or by clipping with
    `epsilon`. c is 2^`halvings`. If `change` is "batch", the batch size is divided by c. If it is
    "band", the center of mass is divided by c, and β is multiplied by c.
    """

    _esm = source("rubber_band_explorer")
    _css = style()
    proximal = Enum(("behavior", "recent", "ewma", "none"), "ewma").tag(sync=True)
    band = Enum(("kl", "clip"), "kl").tag(sync=True)
    optimizer = Enum(("adam", "sgd"), "adam").tag(sync=True)
    change = Enum(("batch", "band"), "batch").tag(sync=True)
    halvings = Int(3, min=0, max=4).tag(sync=True)
    center = Float(8.0, min=0.0, max=64.0).tag(sync=True)
    weight = Float(1.0, min=0.0, max=4.0).tag(sync=True)
    epsilon = Float(0.2, min=0.02, max=1.0).tag(sync=True)
    learning_rate = Float(0.04, min=0.001, max=0.1).tag(sync=True)
    staleness = Int(0, min=0, max=16).tag(sync=True)
    adjust_learning_rate = Bool(True).tag(sync=True)
    adjust_center = Bool(True).tag(sync=True)


class ClipExplorer(Explorer):
    """Explorer for the decoupled objective of one action and for its gradient in log π.

    `mmrl.losses` defines the objective. `log_ratio` is log π - log μ, where μ is the behavior
    policy. If `proximal` is "apart", `log_proximal` is log π_p - log μ. "behavior" uses π_p = μ, as
    in PPO, and "policy" uses π_p = π, the result of β_prox = 0. If `form` is "kl", the penalty is
    β (log π - log π_p)² / 2 with `weight` β.
    """

    _esm = source("clip_explorer")
    _css = style()
    form = Enum(("clip", "kl"), "clip").tag(sync=True)
    proximal = Enum(("behavior", "apart", "policy"), "apart").tag(sync=True)
    log_ratio = Float(0.6, min=-1.5, max=1.5).tag(sync=True)
    log_proximal = Float(0.5, min=-1.5, max=1.5).tag(sync=True)
    advantage = Float(1.0, min=-2.0, max=2.0).tag(sync=True)
    epsilon = Float(0.2, min=0.0, max=1.0).tag(sync=True)
    weight = Float(1.0, min=0.0, max=4.0).tag(sync=True)
    importance_max = Float(100.0, min=1.0, max=100.0).tag(sync=True)


class BatchCalculator(Explorer):
    """Calculator of hyperparameters that compensate for dividing the batch size by c = 2^`power`.

    Each rule of Hilton et al. 2022 can be switched off. `batch` is the size of the optimization
    batch in examples, and an iteration has `minibatches` of these batches. `center` is the center
    of mass of the proximal average in steps, and `phases` is PPG's N_π. `average` selects the
    average whose weights are plotted against age in examples. The initial values are the defaults
    of the paper.
    """

    _esm = source("batch_calculator")
    _css = style()
    power = Int(4, min=-6, max=8).tag(sync=True)
    optimizer = Enum(("adam", "sgd"), "adam").tag(sync=True)
    batch = Int(8192, min=1).tag(sync=True)
    minibatches = Int(8, min=1).tag(sync=True)
    learning_rate = Float(5e-4, min=1e-5, max=0.1).tag(sync=True)
    center = Float(8.0, min=0.0, max=64.0).tag(sync=True)
    advantage_decay = Float(0.0, min=0.0, max=0.99).tag(sync=True)
    phases = Int(32, min=1, max=64).tag(sync=True)
    beta1 = Float(0.9, min=0.0, max=0.99).tag(sync=True)
    beta2 = Float(0.999, min=0.9, max=0.999).tag(sync=True)
    adjust_learning_rate = Bool(True).tag(sync=True)
    adjust_center = Bool(True).tag(sync=True)
    adjust_advantages = Bool(True).tag(sync=True)
    adjust_phases = Bool(True).tag(sync=True)
    adjust_betas = Bool(False).tag(sync=True)
    average = Enum(("proximal", "advantages", "beta1", "beta2"), "proximal").tag(sync=True)
