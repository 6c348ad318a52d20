"""Explorers of CLEAR: targets from old data, and the sample of old data."""

from traitlets import Bool, Enum, Float, Int

from mmrl.course.widgets.base import END, Explorer, Series, source, style

# Rare rewards, and a critic that is only partly right; the last value is bootstrapped.
REWARDS = (0.0, 0.0, 1.0, 0.0, 0.0, -0.5, 0.0, 0.0, 1.0, 0.0, 0.5, 1.0)
VALUES = (1.2, 1.3, 1.2, 0.8, 0.9, 0.6, 1.1, 1.3, 1.5, 0.7, 0.9, 1.0, 0.6)
RATIOS = (1.0, 0.5, 2.0, 1.0, 1.5, 3.0, 0.2, 1.0, 2.5, 0.6, 1.2, 1.8)


class VtraceExplorer(Explorer):
    """v̂_s - V_s = a_s + b_s (v̂_{s+1} - V_{s+1}), a = ρ δ, b = γ λ c, on one unroll.

    Shows `mmrl.returns.vtrace` step by step, for the first 16 of `rewards`; `values` has one number
    more, which is bootstrapped. `policy` is the distance of π from the acting policy μ: "on",
    "near", "far", or "own", for which `ratios` contains π / μ of each step. Short arrays are
    repeated. If `rho_max` or `c_max` is 4, there is no clipping. With `terminates`, an episode ends
    after two thirds of the unroll. `step` is the selected one, from 0.
    """

    _esm = source("vtrace_explorer")
    _css = style()
    rewards = Series(REWARDS)
    values = Series(VALUES)
    ratios = Series(RATIOS)
    policy = Enum(("on", "near", "far", "own"), "far").tag(sync=True)
    step = Int(2, min=0).tag(sync=True)
    rho_max = Float(1.0, min=0.0, max=4.0).tag(sync=True)
    c_max = Float(1.0, min=0.0, max=4.0).tag(sync=True)
    gamma = Float(0.95, min=0.0, max=1.0).tag(sync=True)
    lam = Float(1.0, min=0.0, max=1.0).tag(sync=True)
    terminates = Bool(False).tag(sync=True)


class ReservoirExplorer(Explorer):
    """The unrolls with the k largest random numbers: a reservoir's sample of three tasks in turn.

    Each task provides 40 unrolls, `seen` of them so far, or `END` for all, dealt to `parts` workers
    in turn. As in `mmrl.replay.reservoir`, each part has capacity // parts places; with `merge`
    each has `capacity`, and the largest numbers of all parts are kept. `runs` reservoirs, with
    other random numbers, test whether every unroll is kept equally often. `seed` determines the
    numbers; `compare` adds the contents of a buffer of the same size that drops the oldest.
    """

    _esm = source("reservoir_explorer")
    _css = style()
    seen = Int(END, min=0).tag(sync=True)
    capacity = Int(24, min=8, max=60).tag(sync=True)
    parts = Int(1, min=1, max=8).tag(sync=True)
    merge = Bool(False).tag(sync=True)
    runs = Int(200, min=0, max=1000).tag(sync=True)
    seed = Int(12, min=1, max=50).tag(sync=True)
    compare = Bool(True).tag(sync=True)
