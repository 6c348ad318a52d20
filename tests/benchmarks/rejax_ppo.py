"""rejax's PPO, for bench_ppo.py: runs in an environment of its own, without mmrl.

    python rejax_ppo.py SETTINGS.json

Builds the agent, says so in a line {"parameters": …} and then, for every line that it reads, trains
for `iterations` iterations, without evaluations, and answers {"cpu_seconds": …}.
"""

import json
import pathlib
import sys
import time

import gymnax
import jax
from gymnax.wrappers.compat import LegacyStepAPIWrapper
from rejax import PPO


class FiveValues(LegacyStepAPIWrapper):
    """gymnax 1.0 steps return six values, rejax reads five."""

    def __deepcopy__(self, memo: dict) -> "FiveValues":
        return self  # rejax copies its arguments, which gymnax's wrapper does not survive


def build(s: dict) -> PPO:
    env, params = gymnax.make(s["env"])
    return PPO.create(
        env=FiveValues(env),
        env_params=params,
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (s["width"], s["width"])},
        num_envs=s["environments"],
        num_steps=s["rollout"],
        num_minibatches=s["minibatches"],
        num_epochs=s["epochs"],
        learning_rate=s["learning_rate"],
        gamma=s["gamma"],
        gae_lambda=s["lam"],
        clip_eps=s["clip"],
        ent_coef=s["entropy_weight"],
        vf_coef=s["value_weight"],
        max_grad_norm=s["max_grad_norm"],
    )


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))
    agent = build(settings)
    state = agent.init_state(jax.random.key(0))

    @jax.jit
    def train(state):
        return jax.lax.fori_loop(
            0, settings["iterations"], lambda _, s: agent.train_iteration(s), state
        )

    parameters = (state.actor_ts.params, state.critic_ts.params)
    size = sum(x.size for x in jax.tree.leaves(parameters))
    print(json.dumps({"parameters": size}), flush=True)
    for _ in sys.stdin:
        time.sleep(1e-3)  # see `cpu_seconds` of bench_replay.py
        began = time.process_time()
        state = jax.block_until_ready(train(state))
        time.sleep(1e-3)
        print(json.dumps({"cpu_seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
