"""An agent at play."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mmrl.agents import AGENTS
from mmrl.course.widgets import EpisodePlayer
from mmrl.course.widgets.episodes import _frames
from mmrl.rollout import Transition, collect, start
from mmrl.runs import Run


class AgentPlayer(EpisodePlayer):
    """The greedy agent of one seed in one episode; before its first block, the untrained one.

    `seed` counts from 0 among the run's seeds, `episode` chooses the random numbers. With `steps`
    only that many are shown: a page with fewer pictures loads sooner. Raises `ValueError` for a
    seed that the run does not have, or an environment without a picture.
    """

    def __init__(self, run: Run, seed: int = 0, episode: int = 0, steps: int | None = None):
        if not 0 <= seed < len(run.setup.seeds):
            raise ValueError(f"`seed` must be from 0 to {len(run.setup.seeds) - 1}; got {seed}.")
        tape = jax.tree.map(lambda x: x[:steps], _play(run, seed, episode))
        frames = _frames(run.setup.env, tape)
        done = f"{len(run.history)} blocks of training" if run.history else "no training"
        EpisodePlayer.__init__(
            self,
            frames=frames,
            rewards=np.asarray(tape.reward)[: len(frames)],
            title=f"{run.setup.env}: {run.setup.config.memory} after {done}",
        )


def _play(run: Run, seed: int, episode: int) -> Transition:
    state = run.begin() if run.state is None else run.state
    play = _playing(run.setup.agent, run.program.env, run.program.params)
    return jax.device_get(play(state.net, seed, jax.random.key(episode)))


@functools.cache  # so that an agent is compiled once, to be shown before and after training
def _playing(agent: str, env: Any, params: Any) -> Callable[[Any, int, Any], Transition]:
    @jax.jit
    def play(nets, seed, key):
        net = jax.tree.map(lambda x: x[seed], nets)
        first, rest = jax.random.split(key)
        carry, policy = start(env, params, net.init(), first), AGENTS[agent].greedy(net)
        return collect(policy, env, params, carry, rest, params.max_steps_in_episode)[1]

    return play
