"""sb3-contrib's RecurrentPPO, for bench_sb3.py: runs in a separate environment, without mmrl.

    python sb3_ppo.py SETTINGS.json

Builds the agent on popgym's own environment, prints a line {"parameters": …} and then, for every
line that it reads, trains for `iterations` iterations and prints their seconds.
"""

import json
import pathlib
import sys
import time

import popgym
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env


def build(s: dict) -> RecurrentPPO:
    width = s["width"]
    return RecurrentPPO(
        "MlpLstmPolicy",
        make_vec_env(getattr(popgym.envs, s["env"]), n_envs=s["environments"], seed=0),
        n_steps=s["rollout"],
        batch_size=s["environments"] * s["rollout"] // s["minibatches"],
        n_epochs=s["epochs"],
        learning_rate=s["learning_rate"],
        gamma=s["gamma"],
        gae_lambda=s["lam"],
        clip_range=s["clip"],
        ent_coef=s["entropy_weight"],
        vf_coef=s["value_weight"],
        max_grad_norm=s["max_grad_norm"],
        policy_kwargs={"net_arch": [width, width], "lstm_hidden_size": width},
        device="cpu",
        seed=0,
    )


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))
    agent = build(settings)
    size = sum(x.numel() for x in agent.policy.parameters())
    print(json.dumps({"parameters": size}), flush=True)
    steps = settings["iterations"] * settings["rollout"] * settings["environments"]
    for _ in sys.stdin:
        began, wall = time.process_time(), time.perf_counter()
        agent.learn(steps, reset_num_timesteps=False)
        took = {"cpu_seconds": time.process_time() - began, "seconds": time.perf_counter() - wall}
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
