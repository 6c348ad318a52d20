"""memorax's PPO, for bench_many.py: runs in a separate environment, without mmrl.

    python memorax_ppo.py SETTINGS.json

Builds the agent, prints a line {"parameters": …} and then, for every line that it reads, trains for
`iterations` iterations and prints their seconds. The networks equal those of
`mmrl.nets.ActorCritic` with a GRU, layer by layer.
"""

import json
import pathlib
import sys
import time

import flax.linen as nn
import gymnax
import jax
import optax
from gymnax.wrappers.compat import LegacyStepAPIWrapper
from memorax.algorithms import PPO, PPOConfig
from memorax.networks import RNN, FeatureExtractor, Network, heads
from memorax_r2d2 import Dense, Memory


class Head(nn.Module):
    """Two hidden layers, then `last`."""

    width: int
    last: nn.Module

    @nn.compact
    def __call__(self, x, **kwargs):
        return self.last(Dense(features=(self.width, self.width))(x))

    @nn.nowrap
    def loss(self, output, aux, targets, **kwargs):
        return self.last.loss(output, aux, targets)


def network(width: int, last: nn.Module) -> Network:
    return Network(
        feature_extractor=FeatureExtractor(Dense(features=(width,))),
        torso=Memory(RNN(cell=nn.GRUCell(features=width)), width),
        head=Head(width, last),
    )


def build(s: dict) -> PPO:
    env, params = gymnax.make(s["env"])
    config = PPOConfig(
        name="ppo",
        num_envs=s["environments"],
        num_eval_envs=1,
        num_steps=s["rollout"],
        gamma=s["gamma"],
        gae_lambda=s["lam"],
        num_minibatches=s["minibatches"],
        update_epochs=s["epochs"],
        normalize_advantage=True,
        clip_coef=s["clip"],
        clip_vloss=True,
        ent_coef=s["entropy_weight"],
        vf_coef=s["value_weight"],
    )
    adam = optax.chain(
        optax.clip_by_global_norm(s["max_grad_norm"]), optax.adam(s["learning_rate"])
    )
    actor = network(s["width"], heads.Categorical(env.action_space(params).n))
    critic = network(s["width"], heads.VNetwork())
    # gymnax 1.0 steps return six values, memorax reads five.
    return PPO(config, LegacyStepAPIWrapper(env), params, actor, critic, adam, adam)


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))
    agent = build(settings)
    key, state = agent.init(jax.random.key(0))
    parameters = state.actor_params, state.critic_params
    size = sum(x.size for x in jax.tree.leaves(parameters))
    print(json.dumps({"parameters": size}), flush=True)
    steps = settings["iterations"] * settings["rollout"] * settings["environments"]
    for _ in range(2):  # the first state differs in type from later ones, so two programs
        key, state, _ = agent.train(key, state, steps)
    for _ in sys.stdin:
        began, wall = time.process_time(), time.perf_counter()
        key, state, transitions = agent.train(key, state, steps)
        jax.block_until_ready((state, transitions))
        took = {"cpu_seconds": time.process_time() - began, "seconds": time.perf_counter() - wall}
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
