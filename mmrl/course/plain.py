"""Base configs of the course, from which its exercises, figures and experiments start.

These configs are simpler than the agents' defaults, which must work on any task. For example, they
have a constant learning rate, rewards that are not normalized, and no convolutions. The published
rows were measured with these configs.
"""

import dataclasses
from typing import Any

from mmrl.agents import clear, dqn, ppo, r2d2
from mmrl.agents.ppo import ppg

DQN = dqn.Config(
    encoder="dense",
    batch=500,
    capacity=16_384,
    blocks=16,
    normalize_rewards=False,
    reward_scale=25.0,
    learning_rate=3e-3,
    anneal=0.0,
    gamma=0.5,
    lam=0.0,
    epsilon_decay=80.0,
)
# A run has 303 104 steps, with half as many gradient steps per environment step.
LONG_DQN = dataclasses.replace(DQN, environments=32, block=37, epsilon_decay=120.0)
R2D2 = r2d2.Config(
    encoder="dense",
    overlap=40,
    rescale=True,
    batch=32,
    updates=1,
    target_period=100,
    blocks=16,
    n_step=5,
    normalize_rewards=False,
    learning_rate=1e-3,
    anneal=0.0,
    gamma=0.997,
)
_POLICIES: dict[str, Any] = {
    "encoder": "dense",
    "normalize_rewards": False,
    "environments": 64,
    "blocks": 16,
    "learning_rate": 5e-4,
    "anneal": 0.0,
    "max_grad_norm": float("inf"),
    "value_weight": 0.5,
}
PPO, PPG = ppo.Config(**_POLICIES), ppg.Config(**_POLICIES, auxiliary_rate=5e-4)
CLEAR = clear.Config(
    encoder="dense",
    environments=24,
    rollout=20,
    capacity=100_000,
    block=25,
    blocks=16,
    normalize_rewards=False,
    learning_rate=1e-3,
    anneal=0.0,
    policy_cloning=0.3,
    value_weight=0.5,
    value_cloning=0.15,
    entropy_weight=0.01,
    gamma=0.99,
    max_grad_norm=40.0,
)
