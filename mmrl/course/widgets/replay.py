"""Explorers of CLEAR's V-trace targets and of its reservoir."""

from traitlets import Bool, Enum, Float, Int

from mmrl.course.widgets.base import END, Explorer, Series, source, style

# An example with sparse rewards and an inaccurate critic. The last value is the bootstrap value.
REWARDS = (0.0, 0.0, 1.0, 0.0, 0.0, -0.5, 0.0, 0.0, 1.0, 0.0, 0.5, 1.0)
VALUES = (1.2, 1.3, 1.2, 0.8, 0.9, 0.6, 1.1, 1.3, 1.5, 0.7, 0.9, 1.0, 0.6)
RATIOS = (1.0, 0.5, 2.0, 1.0, 1.5, 3.0, 0.2, 1.0, 2.5, 0.6, 1.2, 1.8)


class VtraceExplorer(Explorer):
    """Explorer for `mmrl.returns.vtrace` on one unroll.

    V-trace is the recurrence v̂_s - V_s = a_s + b_s (v̂_{s+1} - V_{s+1}), a = ρ δ, b = γ λ c. The
    explorer shows the first 16 of `rewards`; `values` has an additional entry, the bootstrap value.
    Shorter arrays are repeated.

    `policy` selects how far π is from the behavior policy μ. If it is "own", `ratios` contains
    π / μ at each step. `rho_max` or `c_max` = 4 disables clipping. If `terminates` is True, an
    episode ends after two thirds of the unroll. `step` is the index of the selected step.
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
    """Explorer for a reservoir that samples unrolls of three consecutive tasks.

    A reservoir of size k keeps the unrolls with the k largest random keys, and `seed` determines
    the keys. Each task provides 40 unrolls, which are dealt round-robin to `parts` workers.
    `arrivals` is the number of unrolls so far; `END` stands for all of them.

    As in `mmrl.replay.reservoir`, each worker has a reservoir of size capacity // parts. If `merge`
    is True, each worker has a reservoir of size `capacity`, and the largest keys over all workers
    are kept. `runs` is the number of reservoirs with other seeds, which test whether every unroll
    is kept equally often. If `compare` is True, a first-in, first-out buffer of the same size is
    shown as well.
    """

    _esm = source("reservoir_explorer")
    _css = style()
    arrivals = Int(END, min=0).tag(sync=True)
    capacity = Int(24, min=8, max=60).tag(sync=True)
    parts = Int(1, min=1, max=8).tag(sync=True)
    merge = Bool(False).tag(sync=True)
    runs = Int(200, min=0, max=1000).tag(sync=True)
    seed = Int(12, min=1, max=50).tag(sync=True)
    compare = Bool(True).tag(sync=True)
