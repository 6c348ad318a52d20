"""Measurements of how an agent uses its memory.

    agent = subject(net)                                    # or Subject(start, step)
    episodes = play(agent, env, params, key, episodes=32, steps=100)
    recall(agent, episodes, key).reach()                    # number of observations that matter
    leak(agent, episodes)                                   # effects of an earlier episode
    decode(episodes.memory, episodes.state, episodes.mask, lags=(0, 1, 2, 4))
    ablate(agent, env, params, key, harms(at=8), 64)        # wipe, freeze, delay, noise
    saturate(agent, env, params, key, episodes=16, times=8) # long episodes without resets

An agent is an mmrl network, or a function `(state, obs, begin) -> (state, values)` that resets
its state where `begin` is True (see `mmrl.memory`). `mmrl inspect RUN` prints all measurements.
"""

from typing import TYPE_CHECKING

from mmrl._lazy import on_demand

if TYPE_CHECKING:
    from mmrl.inspect.ablations import Harm as Harm
    from mmrl.inspect.ablations import ablate as ablate
    from mmrl.inspect.ablations import harms as harms
    from mmrl.inspect.decoding import decode as decode
    from mmrl.inspect.figures import overview as overview
    from mmrl.inspect.playing import Episodes as Episodes
    from mmrl.inspect.playing import play as play
    from mmrl.inspect.playing import read_entries as read_entries
    from mmrl.inspect.recalling import Leak as Leak
    from mmrl.inspect.recalling import Recall as Recall
    from mmrl.inspect.recalling import leak as leak
    from mmrl.inspect.recalling import recall as recall
    from mmrl.inspect.report import sentences as sentences
    from mmrl.inspect.report import stages as stages
    from mmrl.inspect.saturation import Saturation as Saturation
    from mmrl.inspect.saturation import saturate as saturate
    from mmrl.inspect.subjects import Subject as Subject
    from mmrl.inspect.subjects import all_numbers as all_numbers
    from mmrl.inspect.subjects import own_numbers as own_numbers
    from mmrl.inspect.subjects import policy_subject as policy_subject
    from mmrl.inspect.subjects import subject as subject

__all__, __getattr__, __dir__ = on_demand(__name__)
