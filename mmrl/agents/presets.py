"""The settings of the papers, each with the table that it stands in, and what differs from them.

`PRESETS["r2d2"]["paper"].config` is what `mmrl train ENVIRONMENT --agent r2d2 --preset paper` has
for settings. Sizes are the papers', which are for clusters and other environments: the notes say
which to lower on a smaller machine. What a paper does not say stays as our defaults are.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mmrl.agents import AGENTS


class Preset(NamedTuple):
    """Settings of an agent, as a source has them."""

    config: Any  # a `Config` of the agent
    source: str
    places: Mapping[str, str]  # where in the source a setting stands, by its name
    notes: tuple[str, ...]  # what the source has and the config has not, and what to change
    observes: tuple[str, ...] | None = None  # what the network is shown; None: the agent's own

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """The settings that differ from the defaults: (default, the preset's)."""
        usual, ours = vars(type(self.config)()), vars(self.config)
        return {name: (usual[name], ours[name]) for name in ours if usual[name] != ours[name]}


def find_preset(agent: str, name: str) -> Preset:
    """The preset of this name. Raises `ValueError` for an unknown one, with those there are."""
    known = PRESETS.get(agent, {})
    if name not in known:
        has = f"one of {', '.join(known)}" if known else "left out: there is none"
        raise ValueError(f"`preset` of {agent} must be {has}; got {name!r}.")
    return known[name]


# What our agents can do beyond their sources, and do by default here and there.
_WITHOUT = {"anneal": 0.0, "normalize_rewards": False, "lam": 0.0}


def _preset(
    agent: str,
    source: str,
    given: Mapping[str, Mapping[str, Any]],
    notes: Sequence[str],
    observes: tuple[str, ...] | None = None,
) -> Preset:
    """A preset from the settings that each place of its source gives; it does without the rest."""
    has = vars(AGENTS[agent].Config())
    given = {"of which it says nothing": {k: v for k, v in _WITHOUT.items() if k in has}, **given}
    settings = {name: value for values in given.values() for name, value in values.items()}
    places = {name: place for place, values in given.items() for name in values}
    return Preset(AGENTS[agent].Config(**settings), source, places, tuple(notes), observes)


_R2D2 = _preset(
    "r2d2",
    "Kapturowski et al. 2019, Recurrent experience replay in distributed reinforcement learning",
    {
        "Table 2": {
            "environments": 256,
            "length": 80,
            "burn_in": 40,
            "alpha": 0.9,
            "beta_start": 0.6,
            "beta_end": 0.6,
            "gamma": 0.997,
            "batch": 64,
            "learning_rate": 1e-4,
            "adam_eps": 1e-3,
            "target_period": 2500,
            "rescale": True,
            "rescale_eps": 1e-3,
        },
        "Table 2, 4 million": {"capacity": 4_003_840},
        "Table 2, of 400 steps": {"actor_period": 8},
        "Section 2.3": {"n_step": 5, "overlap": 40, "eta": 0.9},
        "Section 2.3, of 260 steps in 1/5 s": {"rollout": 52, "updates": 1},
        "Schrittwieser et al. 2020, Table 1, at second hand": {"block": 2160, "blocks": 1000},
        "Section 3": {"start": "stored"},
        "Appendix": {
            "memory": "lstm",
            "memory_sizes": (("state_size", 512),),
            "width": 512,
            "dueling": True,
        },
        "Horgan et al. 2018, as the paper has it": {
            "epsilon_base": 0.4,
            "epsilon_exponent": 7.0,
            "max_grad_norm": 40.0,
        },
    },
    (
        "The paper plays Atari and DMLab, whose images go through a convolutional network first; "
        "here the encoder is one layer.",
        "Its actors and its learner run side by side. Here they take turns: an actor makes 52 "
        "steps for each gradient step, as 260 steps and 5 gradient steps in a second come to, and "
        "gets new parameters every 8 gradient steps, which are 416 of its steps, not 400.",
        "The length of a run is at second hand: 2.16 million gradient steps, five days at 5 a "
        "second, are quoted from the MuZero paper without a look at it. An evaluation after every "
        "2160 is ours.",
        "Each actor's part of the storage is whole periods of 40 steps, so it is 4 003 840 in all.",
        "Ape-X, of which R2D2 takes over what its table does not name, has a squared error, where "
        "ours is Huber's, and waits for 50 000 steps before it learns.",
        "On a smaller machine: `--environments 16 --capacity 64000 --batch 32 --width 64 "
        "--memory-sizes state_size 64 --rollout 16`, and, since runs are shorter, "
        "`--block 10 --blocks 64 --target-period 100 --learning-rate 1e-3 --adam-eps 1e-5`.",
    ),
    ("previous_action", "previous_reward"),
)

_HILTON = (
    "Hilton et al. 2022, Batch size-invariance for policy optimization, Appendix B, and "
    "its published code, github.com/openai/ppo-ewma"
)
_TABLE_1 = {
    "environments": 256,
    "rollout": 256,
    "minibatches": 8,
    "learning_rate": 5e-4,
    "value_weight": 0.5,
    "entropy_weight": 0.01,
    "clip": 0.2,
    "gamma": 0.999,
    "lam": 0.95,
    "normalize_rewards": True,
    "normalize_advantages": True,
}
_SHARED: dict[str, dict[str, Any]] = {
    "Table 1": _TABLE_1,
    "Section 2": {"objective": "clip"},
    "Appendix B": {"memory": "none", "width": 256, "optimizer": "adam", "importance_max": 100.0},
    "Published code": {
        "adam_eps": 1e-8,
        "anneal": 0.0,
        "max_grad_norm": math.inf,
        "reward_gamma": 0.99,
        "reward_clip": 10.0,
    },
}
_RUN = "Appendix B, of 100 million steps"
_PPO = _SHARED | {
    _RUN: {"block": 14, "blocks": 109},
    "Table 2": {"epochs": 3},
    "Section 2, π_old": {"proximal": "behavior"},
    "Section 5.3, footnote 2": {"shared": True},  # a pass of one network, where PPG has two
}
_PPG = _SHARED | {
    "Table 3": {
        "policy_iterations": 32,
        "epochs": 1,
        "value_epochs": 1,
        "auxiliary_epochs": 6,
        "auxiliary_minibatches": 16 * 32,
        "clone_weight": 1.0,
    },
    "Table 1, α": {"auxiliary_rate": 5e-4},
    _RUN: {"blocks": 48},
    "Table 3, of a phase": {"block": 32},
    "Section 2, π_old": {"proximal": "behavior"},
}
_EWMA = {
    "Table 4": {"prox_center": 8.0},
    "Section 4": {"proximal": "ewma"},
}
_PROCGEN = (
    "The paper plays Procgen, whose images go through IMPALA's convolutional network to 256 "
    "features, without a memory; here the network is an MLP of that width.",
    "The network is shown the observation alone, without a flag at the start of an episode.",
    "Its 256 environments are 4 workers with 64 each, whose gradients are averaged: one batch.",
    "A run has 100 million steps, rounded up to whole blocks.",
    "On a smaller machine: `--environments 64 --rollout 128 --minibatches 4 --blocks 16`, and "
    "`--gamma 0.99` where episodes are short; for a task that needs a memory, `--memory lru`.",
)
_CENTER = (
    "β_prox = 0.889 is the center of mass 8 that the appendix derives it from, the number of "
    "minibatches of an iteration; 8 is β_prox = 8/9.",
)

_CLEAR = _preset(
    "clear",
    "Rolnick et al. 2019, Experience replay for continual learning, and where it refers to them "
    "Espeholt et al. 2018, IMPALA",
    {
        "Appendix A.4": {
            "policy_cloning": 0.01,
            "value_cloning": 0.005,
            "value_weight": 0.5,
            "entropy_weight": 0.005,
        },
        "Section 3": {"replay_fraction": 0.5},
        "Section 4.4": {"capacity": 450_000_000},
        "Section 4.4, of 900 million steps": {"block": 1_250, "blocks": 1_125},
        "Espeholt, Table G.1": {
            "rollout": 20,
            "environments": 32,
            "gamma": 0.99,
            "learning_rate": 6e-4,
            "anneal": 1.0,
            "rms_eps": 0.01,
            "max_grad_norm": 40.0,
        },
        "Espeholt, Table G.1, RMSProp": {"optimizer": "rmsprop"},
        "Espeholt, Table D.1": {"reduction": "sum"},
        "Espeholt, code (vtrace.py)": {"rho_max": 1.0, "c_max": 1.0},
        "Espeholt, Appendix G": {"memory": "none"},
        "Espeholt, Figure 3": {"shared": True, "width": 256},
    },
    (
        "The paper plays Atari and DMLab, whose images go through a convolutional network first, "
        "on DMLab to an LSTM of 256 (`--memory lstm --memory-sizes state_size 256`) with unrolls "
        "of 100 steps. There learning rate, entropy weight and ε were drawn at random for each "
        "run, so the rows of Espeholt's table are Atari's.",
        "Half of replay and the reservoir are those of the runs on DMLab. On Atari the paper "
        "replays a quarter (`--replay-fraction 0.25`), with the network and settings of Schwarz et "
        "al. 2018, Progress & compress.",
        "The network is shown the observation alone, without a flag at the start of an episode.",
        "Rewards are cut to ±1 there, and here left as they are.",
        "Its actors act with parameters that lag behind; ours with today's.",
        "The decay of RMSProp is not in the table; ours is that of IMPALA's published code.",
        "Its reservoir of 450 million frames is half of the 900 million that it plays; here both "
        "count steps, each of which may be several frames. No machine of ours holds it: take half "
        "of the steps that you play, `--blocks 5 --block 63 --capacity 100000` for 200 000.",
    ),
    (),
)

_TAPE = _preset(
    "dqn",
    "Morad et al. 2024, Revisiting recurrent reinforcement learning with memory monoids, which "
    "lists no settings; its code does: github.com/proroklab/memory-monoids at fbdda1f, "
    "experiments/repeat_first_easy/tape_lru.yaml",
    {
        "train": {
            "batch": 1000,
            "gamma": 0.99,
            "learning_rate": 1e-4,
            "updates": 1,
            "max_grad_norm": 0.01,
        },
        "train, 1/target_delay": {"tau": 1 / 200},
        "collect": {"epsilon_start": 0.2, "epsilon_end": 0.01, "epsilon_decay": 5000.0},
        "collect, an episode of 51 steps": {"environments": 1, "rollout": 51},
        "buffer": {"capacity": 4_000_000},
        "model": {
            "memory": "lru",
            "memory_sizes": (("layers", 2), ("state_size", 128)),
            "width": 256,
        },
        "eval": {"block": 10, "episodes": 20},
        "collect, 5000 epochs": {"blocks": 500},
        "tape_dqn.py": {"batching": "tape", "reward_scale": 1.0, "lam": 0.0},
        "modules.py": {"dueling": True},
    },
    (
        "An epoch of the code is one episode, and RepeatFirstEasy's have 51 steps: on another "
        "task set `--rollout` to its length. Its first 5000 epochs only fill the tape, without "
        "learning; ours learns from the first whole episode on.",
        "Its learning rate rises over the first 200 gradient steps.",
        "On RepeatPreviousEasy the code has γ = 0.5 and ε_end = 0.1, and on tasks that it lists "
        "as autoencode_easy four gradient steps to an episode.",
        "Its target scans the next observations alone, and its network has a norm and a layer "
        "more on either side: see the details in `mmrl.agents.dqn`.",
        "On a smaller machine: `--capacity 16384 --width 64 --memory-sizes state_size 32 "
        "--batch 500`; it is a matter of hours with one environment in any case.",
    ),
)

PRESETS: dict[str, dict[str, Preset]] = {
    "dqn": {"paper": _TAPE},
    "r2d2": {"paper": _R2D2},
    "ppo": {
        "paper": _preset("ppo", _HILTON, _PPO, _PROCGEN, ()),
        "ewma": _preset("ppo", _HILTON, _PPO | _EWMA, (*_PROCGEN, *_CENTER), ()),
    },
    "ppg": {
        "paper": _preset("ppg", _HILTON, _PPG, _PROCGEN, ()),
        "ewma": _preset("ppg", _HILTON, _PPG | _EWMA, (*_PROCGEN, *_CENTER), ()),
    },
    "clear": {"paper": _CLEAR},
}
"""Presets by agent and name."""
