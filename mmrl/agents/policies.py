"""Actor-critic networks and their greedy policies."""

import math
from typing import Any

from jaxtyping import PRNGKeyArray

from mmrl.agents.checks import action_bounds, action_size, normalized_features, seen_picture
from mmrl.nets import ActorCritic
from mmrl.rollout import Policy


def actor_critic(config: Any, env: Any, params: Any, key: PRNGKeyArray) -> ActorCritic:
    """Build the `ActorCritic` for π and V that a config describes.

    The config's fields `memory`, `memory_sizes`, `width`, `shared`, `encoder` and
    `normalize_observations` determine the network.
    """
    picture, (actions, continuous) = seen_picture(config, env, params), action_size(env, params)
    size = 0 if picture else math.prod(env.observation_space(params).shape)
    kind = {"width": config.width, "shared": config.shared, **dict(config.memory_sizes)}
    kind |= {"continuous": continuous, "bounds": action_bounds(env, params)}
    kind |= {"normalized": normalized_features(config, env, params), "picture": picture}
    return ActorCritic.make(config.memory, size, actions, key=key, **kind)


def mode(net: Any) -> Policy:
    """Return the deterministic policy that selects the mode of π(· | s)."""

    def act(memory_state, obs, begin, key):
        memory_state, outputs = net.step(memory_state, obs, begin)
        return memory_state, outputs.policy.mode()

    return act
