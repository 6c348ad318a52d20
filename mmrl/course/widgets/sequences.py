"""Explorers of R2D2's replay buffer, its sequences and their priorities."""

from traitlets import Float, Int

from mmrl.course.widgets.base import Explorer, Series, source, style

# Example of |δ| in twelve sequences of 8 steps, for example constant, decaying or with a spike.
ERRORS = (
    *(0.1, 0.2, 0.1, 0.1, 0.2, 0.1, 0.1, 0.2),
    *(1.0, 0.9, 1.1, 1.0, 0.9, 1.0, 1.1, 1.0),
    *(0.1, 0.1, 0.2, 0.1, 2.4, 0.2, 0.1, 0.1),
    *(1.6, 1.2, 0.9, 0.7, 0.5, 0.4, 0.3, 0.2),
    *(0.3, 0.5, 0.2, 0.4, 0.3, 0.6, 0.2, 0.3),
    *(0.1, 0.1, 0.2, 0.3, 0.5, 0.8, 1.1, 1.5),
    *(0.2, 0.1, 0.2, 0.2, 0.1, 0.2, 0.1, 0.2),
    *(0.6, 0.5, 0.7, 0.6, 0.6, 0.5, 0.6, 0.7),
    *(0.1, 0.9, 0.1, 0.8, 0.1, 0.9, 0.1, 0.8),
    *(0.4, 0.3, 0.4, 0.2, 0.3, 0.4, 0.3, 0.2),
    *(0.2, 0.2, 1.3, 1.2, 0.2, 0.1, 0.2, 0.1),
    *(0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1, 0.1),
)


class SequenceCutter(Explorer):
    """Explorer for the sequences into which `mmrl.replay.sequences` cuts episodes.

    `lengths` contains the lengths of the episodes, of which the first three are shown, with at most
    30 steps each. `length`, `overlap` and `burn_in` are arguments of `mmrl.replay.sequences.init`,
    in steps. `n` is the n of n-step targets, for which `tail` is n - 1. `sequence` is the index of
    the selected sequence. The default sizes are a tenth of R2D2's 80, 40 and 40 steps.
    """

    _esm = source("sequence_cutter")
    _css = style()
    lengths = Series((23, 9, 14))
    length = Int(8, min=2, max=16).tag(sync=True)
    overlap = Int(4, min=0, max=15).tag(sync=True)
    burn_in = Int(4, min=0, max=12).tag(sync=True)
    n = Int(3, min=1, max=6).tag(sync=True)
    sequence = Int(3, min=0).tag(sync=True)


class PriorityExplorer(Explorer):
    """Explorer for prioritized replay: priorities p, probabilities P and weights w of sequences.

        p = η max|δ| + (1 - η) mean|δ|,   P = p^α / Σ p^α,   w = (1 / (N P))^β / max w

    `errors` contains |δ| at `steps` steps of each sequence, concatenated. The first 16 sequences
    are shown. `draws` is the number of samples, which do not change from run to run. The maximum
    of w is over all sequences, whereas in `mmrl.replay.sequences.sample` it is over the batch.
    `sequence` is the index of the selected sequence. η, α and β have R2D2's values by default.
    """

    _esm = source("priority_explorer")
    _css = style()
    errors = Series(ERRORS)
    steps = Int(8, min=1, max=64).tag(sync=True)
    eta = Float(0.9, min=0.0, max=1.0).tag(sync=True)
    alpha = Float(0.9, min=0.0, max=1.0).tag(sync=True)
    beta = Float(0.6, min=0.0, max=1.0).tag(sync=True)
    draws = Int(200, min=0, max=2000).tag(sync=True)
    sequence = Int(2, min=0).tag(sync=True)
