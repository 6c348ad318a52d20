"""A zoo agent that runs in the browser, where its memory can be erased."""

import base64
from typing import Any

import numpy as np
from traitlets import Dict, Int, List, Unicode, default

from mmrl.course.drawings.cards import SHAPES
from mmrl.course.widgets.base import Explorer, source, style
from mmrl.runs import zoo
from mmrl.runs.player import Policy


class LiveAgent(Explorer):
    """An agent that must remember the first card, and whose memory can be erased.

    The agent is zoo/RepeatFirstEasy-dqn-lru, a double DQN with an LRU, which runs in the browser.
    `deck` is the seed of the shuffle, and `step` is the visible step. The recurrent state is reset
    to its initial value before each of the steps in `wipes`.
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
        return pack(zoo.load("zoo/RepeatFirstEasy-dqn-lru"))


def pack(policy: Policy) -> dict[str, Any]:
    """Encode a policy as JSON, with the shapes of its arrays and their values in base64."""
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
