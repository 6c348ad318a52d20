"""Verdicts on a training run: compare its result here with the expected range.

Training is chaotic in rounding: two processors that round one sum differently end with different
agents. So a notebook asserts algebra, which holds everywhere, and judges its agents by `verdict`.
"""

import math
from typing import SupportsFloat


def verdict(
    what: str,
    came: SupportsFloat,
    *,
    above: SupportsFloat = -math.inf,
    below: SupportsFloat = math.inf,
) -> None:
    """Report whether `above` < `came` < `below`, as expected of `what`; never raise an error."""
    value, ends = float(came), {"above": float(above), "below": float(below)}
    expected = " and ".join(f"{word} {x:.3g}" for word, x in ends.items() if math.isfinite(x))
    if ends["above"] < value < ends["below"]:
        print(f"✓ {what}: {value:.3g}, {expected} as expected.")
        return
    print(f"✗ {what}: {value:.3g}, where {expected} was expected.")
    print("  Rounding differs between processors, and training magnifies it: try another key.")
