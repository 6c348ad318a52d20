"""Labels, small settings for tests, and settings of Hilton et al. 2022, for PPO and PPG."""

import math
from typing import Any

from mmrl.agents.settings import Paper


def label(config: Any) -> tuple[str, str]:
    """Return a description and a folder name for runs with these settings."""
    words = f"{config.memory}, {config.objective}, proximal policy: {config.proximal}"
    return words, f"ppo-{config.memory}-{config.proximal}"


SMALL: dict[str, Any] = {"shared": True}

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
_COMMON: dict[str, dict[str, Any]] = {
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
_PPO = _COMMON | {
    _RUN: {"block": 14, "blocks": 109},
    "Table 2": {"epochs": 3},
    "Section 2, π_old": {"proximal": "behavior"},
    "Section 5.3, footnote 2": {"shared": True},  # a single network, whereas PPG has two
}
_PPG = _COMMON | {
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
    "features, without a memory. Here images of at least 32 × 32 pixels go through the same "
    "network, and other observations through an MLP of that width. No score was measured with "
    "this preset on images.",
    "The network receives only the observation, without a flag at the start of an episode.",
    "The paper's 256 environments are 64 on each of 4 workers, whose gradients are averaged. This "
    "is equivalent to one batch.",
    "A run has 100 million steps, rounded up to complete blocks.",
    "On a smaller machine: `--environments 64 --rollout 128 --minibatches 4 --blocks 16`, and "
    "`--gamma 0.99` where episodes are short; for a task that needs a memory, `--memory lru`.",
)
_CENTER = (
    "The appendix derives β_prox = 0.889 from a center of mass of 8, the number of minibatches in "
    "an iteration; a center of exactly 8 gives β_prox = 8/9.",
)

PPO = {
    "paper": Paper(_HILTON, _PPO, _PROCGEN, ()),
    "ewma": Paper(_HILTON, _PPO | _EWMA, (*_PROCGEN, *_CENTER), ()),
}
PPG = {
    "paper": Paper(_HILTON, _PPG, _PROCGEN, ()),
    "ewma": Paper(_HILTON, _PPG | _EWMA, (*_PROCGEN, *_CENTER), ()),
}
