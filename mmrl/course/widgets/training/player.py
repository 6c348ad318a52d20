"""Players of trained agents, which are loaded from a run or from a file."""

import base64
import functools
import io
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.image import imsave

from mmrl.agents import AGENTS
from mmrl.course.drawings.episode import action_names
from mmrl.course.widgets.episodes import EpisodePlayer, _frames
from mmrl.rollout import Transition, collect, start
from mmrl.runs import Run, zoo
from mmrl.runs.content import Same
from mmrl.runs.player import Policy

OF_VALUES = ("dqn", "pqn", "r2d2")  # agents whose networks output Q(s, ·)


class AgentPlayer(EpisodePlayer):
    """Player of an episode that a run's agent plays greedily.

    `seed` is an index into the run's seeds, and `episode` determines the random key. If the run has
    no finished block, the untrained agent plays. If `steps` is given, only the first steps are
    shown, and the page loads faster. Raises `ValueError` if `seed` is out of range.
    """

    def __init__(self, run: Run, seed: int = 0, episode: int = 0, steps: int | None = None):
        EpisodePlayer.__init__(self, **_traits(run, seed, episode, steps))

    def show(self, run: Run, seed: int = 0, episode: int = 0, steps: int | None = None) -> None:
        """Show another episode. Arguments and errors are the same as in the constructor."""
        with self.hold_sync():
            for name, value in _traits(run, seed, episode, steps).items():
                setattr(self, name, value)


def _traits(run: Run, seed: int, episode: int, steps: int | None) -> dict[str, Any]:
    """Play an episode, and return the traits of a player that shows it."""
    if not 0 <= seed < len(run.setup.seeds):
        raise ValueError(f"`seed` must be between 0 and {len(run.setup.seeds) - 1}; got {seed}.")
    tape = jax.tree.map(lambda x: x[:steps], _play(run, seed, episode))
    frames = _frames(run.setup.env, tape)
    state = f"{len(run.history)} blocks of training" if run.history else "no training"
    return {
        "frames": frames,
        "rewards": np.asarray(tape.reward)[: len(frames)],
        "title": f"{run.setup.env}: {run.setup.config.memory} after {state}",
    }


def _play(run: Run, seed: int, episode: int) -> Transition:
    state = run.begin() if run.state is None else run.state
    play = _player(run.setup.agent, Same(run.program.env), Same(run.program.params))
    return jax.device_get(play(state.net, seed, jax.random.key(episode)))


@functools.lru_cache(4)  # players before and after training share a compiled program
def _player(agent: str, env: Same, params: Same) -> Callable[[Any, int, Any], Transition]:
    game, its = env.part, params.part  # compared by identity, because parameters may be arrays

    @jax.jit
    def play(nets, seed, key):
        net = jax.tree.map(lambda x: x[seed], nets)
        first, rest = jax.random.split(key)
        carry, policy = start(game, its, net.init(), first), AGENTS[agent].greedy(net)
        return collect(policy, game, its, carry, rest, its.max_steps_in_episode)[1]

    return play


class PolicyPlayer(EpisodePlayer):
    """Player of an episode of an exported policy, with its outputs and its memory.

    `policy` is an agent from the zoo, zoo/NAME, or a file that `mmrl export` wrote, and `episode`
    determines the random key. The player shows Q(s, ·) or the logits at the visible step, and the
    units of the memory up to that step, or what an attention reads. Only the first `steps` steps
    are shown (default: 210). If a `question` is given, the episode is hidden until the reader
    answers it.

    Raises `ValueError` for `steps` below 1, and the errors of `zoo.load`, `zoo.play` and
    `episode_svg`.
    """

    def __init__(
        self,
        policy: str | os.PathLike = "zoo/RepeatFirstEasy-dqn-lru",
        episode: int = 0,
        steps: int | None = None,
        question: str = "",
    ):
        if steps is not None and steps < 1:
            raise ValueError(f"`steps` must be at least 1; got {steps}.")
        policy_ = zoo.load(policy)
        about = policy_.about
        tape = [[x[0] for x in step] for step in zoo.play(policy_, 1, episode)][:steps]
        steps_of_play = zoo.Step(*map(np.array, zip(*tape, strict=True)))
        observe = about.get("setup", {}).get("observe", "observation")
        frames = _frames(about["env"], steps_of_play, observe=observe)
        outputs = steps_of_play.outputs[: len(frames)].astype(float)
        least = outputs.min(initial=0, where=np.isfinite(outputs))  # replaces -∞ of illegal actions
        memory = "no memory" if about["memory"] == "none" else f"memory {about['memory']}"
        EpisodePlayer.__init__(
            self,
            frames=frames,
            rewards=steps_of_play.reward[: len(frames)],
            policy={
                "actions": action_names(about["env"], about["actions"]),
                "says": "Q(s, ·)" if about["agent"] in OF_VALUES else "logits",
                "outputs": np.round(np.maximum(outputs, least), 4).tolist(),
                **_memory_strip(policy_, zoo.Step(*(x[: len(frames)] for x in steps_of_play))),
            },
            title=f"{about['env']}: {about['agent']} with {memory}",
            question=question,
        )


def _memory_strip(policy: Policy, steps: zoo.Step) -> dict[str, Any]:
    """Return a grayscale PNG [unit, time] of a memory's state, and a description of it.

    For a GRU, the range [-1, 1] of h is mapped to [0, 1]. For attention, the image shows its
    weights, with the current step on top. For other memories, it shows |h| divided by the maximum
    of the unit in the episode. Black is 0 and white is 1.
    """
    if policy.about["memory"] in ("window", "gtrxl"):
        levels, holds = _attention(policy, steps)
    elif not (units := steps.memory[0].size):
        return {"units": 0, "image": "", "holds": ""}
    elif policy.about["memory"] == "gru":
        levels, holds = (steps.memory + 1) / 2, f"h of {units} units, −1 is pale"
    else:
        size, order = abs(steps.memory.reshape(-1, units)), ""
        if "eigenvalues" in policy.arrays:
            size = size[:, np.argsort(-abs(policy.arrays["eigenvalues"]), kind="stable")]
            order = ", slowest on top"
        levels = size / np.maximum(size.max(0), 1e-12)
        holds = f"|h| of {units} units{order}"
    file = io.BytesIO()
    imsave(file, levels.T, cmap="gray", vmin=0, vmax=1, format="png")
    image = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"units": levels.shape[1], "image": image, "holds": holds}


def _attention(policy: Policy, steps: zoo.Step) -> tuple[Float[np.ndarray, "time slot"], str]:
    """Return the mean attention weights of all heads, newest step first, and a description."""
    levels = []
    for t, (obs, h) in enumerate(zip(steps.obs, steps.memory, strict=True)):
        action, reward = (None, 0.0) if t == 0 else (steps.action[t - 1], steps.reward[t - 1])
        weights = policy.attention(h, policy.inputs(obs, action, float(reward), t == 0))
        levels.append(weights.mean(1)[::-1])
    holds = f"attention to the last {len(levels[0])} steps, newest on top"
    return np.array(levels), holds
