"""Comparison of the result of a training run with the range that is expected.

Training amplifies rounding errors: if two processors round a single sum differently, they end with
different agents. A notebook therefore asserts only algebra, which holds on every machine, and uses
`verdict` for the results of training.
"""

import math
from typing import SupportsFloat


def verdict(
    what: str,
    result: SupportsFloat,
    *,
    above: SupportsFloat = -math.inf,
    below: SupportsFloat = math.inf,
) -> None:
    """Print whether `result`, the measured value of `what`, is between `above` and `below`.

    A value outside of the range is reported, but does not raise an error.
    """
    value, ends = float(result), {"above": float(above), "below": float(below)}
    expected = " and ".join(f"{word} {x:.3g}" for word, x in ends.items() if math.isfinite(x))
    if ends["above"] < value < ends["below"]:
        print(f"✓ {what}: {value:.3g}, {expected} as expected.")
        return
    print(f"✗ {what}: {value:.3g}, where {expected} was expected.")
    print("  Rounding differs between processors, and training magnifies it: try another key.")
