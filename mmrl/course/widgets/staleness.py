"""The explorers of R2D2: rescaled returns, and stale recurrent states."""

from traitlets import Enum, Float, Int

from mmrl.course.widgets.base import Explorer, source, style


class RescalingExplorer(Explorer):
    """h(G), G = Σ_k γ^k r + γⁿ h⁻¹(q): R2D2's target step by step, and the effect of float32.

    h is `mmrl.returns.rescale`. The network predicts q = h(`x`) at the bootstrap, `n` steps ahead,
    and each step before it has the reward `reward`. `inverse` selects how float32 computes h⁻¹: as
    usually printed, or as `mmrl.returns.unrescale` does. `epsilon` is ε.
    """

    _esm = source("rescaling_explorer")
    _css = style()
    x = Float(100.0, min=-1e6, max=1e6).tag(sync=True)
    epsilon = Float(1e-3, min=1e-4, max=0.1).tag(sync=True)
    n = Int(5, min=1, max=20).tag(sync=True)
    gamma = Float(0.997, min=0.0, max=1.0).tag(sync=True)
    reward = Float(20.0, min=-100.0, max=100.0).tag(sync=True)
    inverse = Enum(("textbook", "stable"), "textbook").tag(sync=True)


class StalenessExplorer(Explorer):
    """ΔQ = ‖Q(ĥ; θ) - Q(h; θ)‖₂ / |max_a Q(h; θ)| for four starts ĥ.  Kapturowski et al. 2019.

    The geometric mean over five random networks of 16 units, each on one random episode: LSTMs
    whose forget gates, by their bias only, keep half for `half_life` steps, or LRUs whose λ do. The
    actor that stored the states had θ + `drift` · σ · z in place of each weight θ, which was drawn
    with standard deviation σ, and z is a normal draw; rates and angles of λ were multiplied by
    exp(`drift` · z). 40 steps are trained from step `start` of the episode on, after a burn-in over
    `burn_in` steps, or over all available ones. `highlight` is one of the starts.
    """

    _esm = source("staleness_explorer")
    _css = style()
    memory = Enum(("lstm", "lru"), "lstm").tag(sync=True)
    half_life = Float(20.0, min=1.0, max=100.0).tag(sync=True)
    drift = Float(0.1, min=0.0, max=0.5).tag(sync=True)
    burn_in = Int(20, min=0, max=40).tag(sync=True)
    start = Int(80, min=0, max=100).tag(sync=True)
    highlight = Enum(("all", "zero", "burn_in", "stored", "stored_burn_in"), "all").tag(sync=True)
