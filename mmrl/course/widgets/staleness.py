"""Explorers of R2D2's rescaled returns and of stale recurrent states."""

from traitlets import Enum, Float, Int

from mmrl.course.widgets.base import Explorer, source, style


class RescalingExplorer(Explorer):
    """Explorer for R2D2's target h(Σ_k γ^k r + γⁿ h⁻¹(q)) and for its rounding errors in float32.

    h is `mmrl.returns.rescale` with `epsilon`. The network predicts q = h(`x`) at the bootstrap
    step, `n` steps ahead, and each step before it has the reward `reward`. `inverse` selects the
    formula for h⁻¹: "textbook", as it is usually printed, or "stable", as in
    `mmrl.returns.unrescale`.
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
    """Explorer for ΔQ = ‖Q(ĥ; θ) - Q(h; θ)‖₂ / |max_a Q(h; θ)| for four initial states ĥ.

    The measure is from Kapturowski et al. 2019. The explorer shows the geometric mean of ΔQ
    over five random networks of 16 units, each on a random episode. `half_life` is the number of
    steps after which an LSTM or an LRU retains half of its state. It sets the bias of the forget
    gate in an LSTM, and the modulus of λ in an LRU.

    The actor that stored the states had the weights θ + `drift` · σ · z, where σ is the standard
    deviation with which θ was initialized and z is a normal sample. The rates and phases of λ were
    multiplied by exp(`drift` · z). A sequence of 40 trained steps starts at step `start` of the
    episode, after a burn-in of `burn_in` steps or of all earlier steps if there are fewer.
    `highlight` selects one of the initial states.
    """

    _esm = source("staleness_explorer")
    _css = style()
    memory = Enum(("lstm", "lru"), "lstm").tag(sync=True)
    half_life = Float(20.0, min=1.0, max=100.0).tag(sync=True)
    drift = Float(0.1, min=0.0, max=0.5).tag(sync=True)
    burn_in = Int(20, min=0, max=40).tag(sync=True)
    start = Int(80, min=0, max=100).tag(sync=True)
    highlight = Enum(("all", "zero", "burn_in", "stored", "stored_burn_in"), "all").tag(sync=True)
