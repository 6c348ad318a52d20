"""Explorers of scans, returns, resets, segments, memories and attention."""

import numpy as np
from traitlets import Bool, Enum, Float, Int

from mmrl.course.widgets.base import END, Explorer, Series, source, style
from mmrl.memory.s5 import diagonalise, hippo


class ScanPlayer(Explorer):
    """Player for the scan h_t = x_0 • … • x_t, with the methods of `mmrl.schedules`.

    The player uses the first `length` of `values`, at most 16. `level` is the number of finished
    levels, or `END` for all. `gain` is the factor a of the monoid "affine", or the decay of "max".
    """

    _esm = source("scan_player")
    _css = style()
    values = Series((3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3))
    method = Enum(("sequential", "hillis_steele", "blelloch", "chunked"), "hillis_steele").tag(
        sync=True
    )
    monoid = Enum(("words", "sum", "affine", "max"), "words").tag(sync=True)
    length = Int(8, min=2, max=16).tag(sync=True)
    chunk = Int(4, min=2, max=8).tag(sync=True)
    gain = Float(0.5, min=0.1, max=1.0).tag(sync=True)
    level = Int(END, min=0).tag(sync=True)


class ReturnsExplorer(Explorer):
    """Explorer for the weights of r_k and V(s_k) in the targets of `mmrl.returns` at step 0.

    The episode is truncated, not terminated, after `length` steps. `log_ratios` contains
    log(π(a_k | s_k) / μ(a_k | s_k)), by default samples of a normal distribution, and `spread`
    scales them.
    """

    _esm = source("returns_explorer")
    _css = style()
    kind = Enum(("discounted", "n_step", "lambda_return", "gae", "vtrace"), "lambda_return").tag(
        sync=True
    )
    gamma = Float(0.95, min=0.0, max=1.0).tag(sync=True)
    lam = Float(0.8, min=0.0, max=1.0).tag(sync=True)
    n = Int(5, min=1, max=24).tag(sync=True)
    spread = Float(0.7, min=0.0, max=2.0).tag(sync=True)
    rho_max = Float(1.0, min=0.0, max=4.0).tag(sync=True)
    c_max = Float(1.0, min=0.0, max=4.0).tag(sync=True)
    length = Int(20, min=4, max=24).tag(sync=True)
    log_ratios = Series(
        (0.5, -0.9, 1.2, 0.1, -1.4, 0.8, -0.3, 1.7, -0.6, 0.2, -1.1, 0.9, 0.4, -0.2, 1.1, -1.8)
    )


class ResetExplorer(Explorer):
    """Explorer for the information that leaks between episodes in h_t = a h_{t-1} + x_t.

    The explorer shows the first 24 of `values`, in three episodes. `first` and `second` are the
    steps at which the second and the third episode begin. The mode "select" is
    `mmrl.monoid.Resettable`, and "multiply" is Eq. 22 of Morad et al. 2024 as printed. If `poison`
    is True, the first episode contains a NaN.
    """

    _esm = source("reset_explorer")
    _css = style()
    values = Series([{1: 1.0, 3: 0.6, 10: 0.8, 18: 0.5}.get(t, 0.0) for t in range(24)])
    mode = Enum(("none", "multiply", "select"), "none").tag(sync=True)
    first = Int(8, min=1, max=22).tag(sync=True)
    second = Int(16, min=2, max=23).tag(sync=True)
    gain = Float(0.9, min=0.0, max=1.0).tag(sync=True)
    poison = Bool(False).tag(sync=True)


class SegmentsExplorer(Explorer):
    """Explorer for the padding, cuts and batches of segments, in comparison with a tape.

    `lengths` contains the lengths of the episodes, of which the first 24 are shown. `segment` is
    the length L of a segment, and `batch` is the batch size B, both in steps.
    """

    _esm = source("segments_explorer")
    _css = style()
    lengths = Series((37, 8, 52, 21, 5, 30, 14, 3))
    segment = Int(10, min=2, max=60).tag(sync=True)
    batch = Int(60, min=20, max=160).tag(sync=True)


class MemoryExplorer(Explorer):
    """Explorer for the eigenvalues λ = exp(-rate + i turn) of LRU, S5 and FFM at initialization.

    The explorer shows half-lives and impulse responses. Values that are initialized at random are
    spaced evenly over their ranges: `low` ≤ |λ| ≤ `high` and phases up to `phase` (LRU), Δ from
    `step_low` to `step_high` (S5), and α from `alpha_low` to `alpha_high` with periods from 2 to
    `period` steps (FFM). `unit` selects an eigenvalue, from 0 (shortest memory) to 100.

    To show other eigenvalues, use `MemoryExplorer(real=λ.real, imag=λ.imag, family="given")`.
    """

    _esm = source("memory_explorer")
    _css = style()
    family = Enum(("lru", "s5", "ffm", "given"), "lru").tag(sync=True)
    low = Float(0.9, min=0.0, max=1.0).tag(sync=True)
    high = Float(0.999, min=0.0, max=1.0).tag(sync=True)
    phase = Float(6.28, min=0.0).tag(sync=True)
    step_low = Float(1e-3, min=1e-4, max=1.0).tag(sync=True)
    step_high = Float(1e-1, min=1e-4, max=1.0).tag(sync=True)
    alpha_low = Float(1e-6, min=1e-6, max=2.0).tag(sync=True)
    alpha_high = Float(0.5, min=1e-6, max=2.0).tag(sync=True)
    period = Float(1000.0, min=2.0, max=1e4).tag(sync=True)
    unit = Int(80, min=0, max=100).tag(sync=True)
    horizon = Int(100, min=10, max=400).tag(sync=True)
    real, imag = Series(), Series()
    frequencies = Series(np.imag(diagonalise(hippo(32))[0]))


class AttentionExplorer(Explorer):
    """Explorer for the attention matrix φ(q_t)·φ(k_s) / Σ_s φ(q_t)·φ(k_s).

    `LinearAttention` computes with this matrix implicitly and does not build it. `symbols` are up
    to 24 integers from 0 to 25. Each symbol has a fixed vector of length `scale`, which is both its
    key and its query. The feature "softmax" is standard attention, whose state grows with the
    number of steps.
    """

    _esm = source("attention_explorer")
    _css = style()
    symbols = Series((0, 1, 2, 0, 3, 1, 1, 4, 2, 0, 3, 5, 1, 2, 0, 4))
    feature = Enum(("elu", "relu", "softmax"), "elu").tag(sync=True)
    scale = Float(4.0, min=0.0).tag(sync=True)
    key_size = Int(8, min=1, max=32).tag(sync=True)
    step = Int(14, min=0).tag(sync=True)
