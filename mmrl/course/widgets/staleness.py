"""The traits of R2D2's two explorers: of rescaled returns, and of stale recurrent states."""

from traitlets import Enum, Float, Int

from mmrl.course.widgets.base import Explorer, source, style


class RescalingExplorer(Explorer):
    """h(G), G = Σ_k γ^k r + γⁿ h⁻¹(q): R2D2's target step by step, and float32's share in it.

    h is `mmrl.returns.rescale`. The network says q = h(`x`) where it is bootstrapped, `n` steps
    ahead, and each step until then is rewarded by `reward`. `inverse` chooses how float32 computes
    h⁻¹: as usually printed, or as `mmrl.returns.unrescale` does. `epsilon` is ε.
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

    Five random networks of 16 units, each on one random episode, by their geometric mean: LSTMs
    whose forget gates, by their bias alone, keep half for `half_life` steps, or LRUs whose λ do.
    The actor that stored the states had θ + `drift` · σ · z in place of each weight θ, which was
    drawn with standard deviation σ, and z is a normal draw; rates and angles of λ were multiplied
    by exp(`drift` · z). 40 steps are trained from step `start` of the episode on, after a burn-in
    over `burn_in` steps, or over all that there are. `highlight` is one of the starts.
    """

    _esm = source("staleness_explorer")
    _css = style()
    memory = Enum(("lstm", "lru"), "lstm").tag(sync=True)
    half_life = Float(20.0, min=1.0, max=100.0).tag(sync=True)
    drift = Float(0.1, min=0.0, max=0.5).tag(sync=True)
    burn_in = Int(20, min=0, max=40).tag(sync=True)
    start = Int(80, min=0, max=100).tag(sync=True)
    highlight = Enum(("all", "zero", "burn_in", "stored", "stored_burn_in"), "all").tag(sync=True)
