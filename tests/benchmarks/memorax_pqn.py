"""memorax's PQN, for bench_pqn.py: runs in a separate environment, without mmrl.

    python memorax_pqn.py SETTINGS.json

Builds the agent, prints a line {"parameters": …} and then, for every line that it reads, trains for
`iterations` iterations and prints their CPU-seconds. The network equals `mmrl.nets.Net` with a GRU,
layer by layer.
"""

import json
import pathlib
import sys
import time

import gymnax
import jax
import optax
from gymnax.wrappers.compat import LegacyStepAPIWrapper
from memorax.algorithms import PQN, PQNConfig
from memorax.networks import heads
from memorax_ppo import network


def build(s: dict) -> PQN:
    env, params = gymnax.make(s["env"])
    config = PQNConfig(
        name="pqn",
        num_envs=s["environments"],
        num_eval_envs=1,
        num_steps=s["rollout"],
        gamma=s["gamma"],
        td_lambda=s["lam"],
        num_minibatches=s["minibatches"],
        update_epochs=s["epochs"],
    )
    rule = optax.chain(
        optax.clip_by_global_norm(s["max_grad_norm"]), optax.radam(s["learning_rate"])
    )
    net = network(s["width"], heads.DiscreteQNetwork(action_dim=env.action_space(params).n))
    # gymnax 1.0 steps return six values, memorax reads five.
    env = LegacyStepAPIWrapper(env)
    return PQN(config, env, params, net, rule, optax.constant_schedule(0.1))


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))
    agent = build(settings)
    key, state = agent.init(jax.random.key(0))
    size = sum(x.size for x in jax.tree.leaves(state.params))
    print(json.dumps({"parameters": size}), flush=True)
    steps = settings["iterations"] * settings["rollout"] * settings["environments"]
    for _ in range(2):  # the first state differs in type from later ones, so two programs
        key, state, _ = agent.train(key, state, steps)
    for _ in sys.stdin:
        began = time.process_time()
        key, state, transitions = agent.train(key, state, steps)
        jax.block_until_ready((state, transitions))
        print(json.dumps({"cpu_seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
