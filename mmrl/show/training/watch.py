"""An agent at play."""

import dataclasses

import jax

from mmrl.rollout import collect, start
from mmrl.runs import AGENTS, Run
from mmrl.show.widgets import EpisodePlayer, episode_player


def watch(run: Run, seed: int = 0, episode: int = 0) -> EpisodePlayer:
    """The greedy agent of one seed in one episode; before its first block, the untrained one.

    `seed` counts from 0 among the run's seeds, `episode` chooses the random numbers. Raises
    `ValueError` for a seed that the run does not have, or an environment without a picture.
    """
    if not 0 <= seed < len(run.setup.seeds):
        raise ValueError(f"`seed` must be from 0 to {len(run.setup.seeds) - 1}; got {seed}.")
    env, params = run.program.env, run.program.params
    agent = AGENTS[run.setup.agent]
    state = run.state
    if state is None:
        config = dataclasses.replace(run.setup.config, blocks=1)
        keys = jax.vmap(jax.random.key)(jax.numpy.asarray(run.setup.seeds, "uint32"))
        state = run.program.init(config, keys)
    net = jax.tree.map(lambda x: x[seed], state.net)

    @jax.jit
    def play(net, key):
        first, rest = jax.random.split(key)
        carry = start(env, params, net.init(), first)
        return collect(agent.greedy(net), env, params, carry, rest, params.max_steps_in_episode)[1]

    return episode_player(run.setup.env, jax.device_get(play(net, jax.random.key(episode))))
