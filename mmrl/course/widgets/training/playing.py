"""An agent of the zoo that runs in the browser, where its memory can be wiped."""

import base64
from typing import Any

import numpy as np
from traitlets import Dict, Int, List, Unicode, default

from mmrl.course.drawings.cards import SHAPES
from mmrl.course.widgets.base import Explorer, source, style
from mmrl.runs import zoo
from mmrl.runs.player import Policy


class LiveAgent(Explorer):
    """A double DQN with an LRU, which names the first card of the deck until its memory is wiped.

    It is zoo/RepeatFirstEasy-dqn-lru, computed step by step in the browser. `deck` determines the
    shuffle, `step` is the visible one, and before each of the steps in `wipes` the recurrent state
    is reset to its value before the first observation.
    """

    _esm = source("live_agent")
    _css = style()
    policy = Dict().tag(sync=True)
    suits = List(Unicode(), list(SHAPES)).tag(sync=True)
    deck = Int(2, min=0, max=99).tag(sync=True)
    step = Int(20, min=0, max=9999).tag(sync=True)
    wipes = List(Int(min=0, max=50)).tag(sync=True)

    @default("policy")
    def _zoo(self) -> dict[str, Any]:
        return packed(zoo.load("zoo/RepeatFirstEasy-dqn-lru"))


def packed(policy: Policy) -> dict[str, Any]:
    """Encode a policy as JSON: names and shapes [row, column], with the numbers in base64."""
    arrays: dict[str, np.ndarray] = {}
    for name, array in policy.arrays.items():
        parts = {"_re": array.real, "_im": array.imag} if np.iscomplexobj(array) else {"": array}
        arrays |= {name + part: np.atleast_2d(numbers) for part, numbers in parts.items()}
    numbers = np.concatenate([x.ravel() for x in arrays.values()]).astype("<f4")
    return {
        "encoder": policy.about["encoder"],
        "head": policy.about["head"],
        "shapes": [[name, x.shape] for name, x in arrays.items()],
        "weights": base64.b64encode(numbers.tobytes()).decode(),
    }
